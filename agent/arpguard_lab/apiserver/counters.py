"""What was asked, by whom, and how it ended."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from arpguard_lab.apiserver.rbac import Use

Json: TypeAlias = dict[str, Any]

NO_ANSWER = 0  # the code of a request that got none


@dataclass(frozen=True, slots=True)
class Request:
    """A kind of request with its end."""

    client: str
    verb: str
    resource: str
    code: int


class Counters:
    """Since the server was made."""

    def __init__(self) -> None:
        self.requests: Counter[Request] = Counter()
        self.received: Counter[str] = Counter()  # bytes of bodies, by client
        self.sent: Counter[str] = Counter()
        self.watches: Counter[str] = Counter()  # open now, by client
        self.past: Counter[str] = (
            Counter()
        )  # reads with resourceVersion=0, which may be answered from the past, by client
        self.uses: dict[str, set[Use]] = {}  # by client: what RBAC had to allow

    @contextmanager
    def watch(self, client: str) -> Iterator[None]:
        """Counts a watch while it is open."""
        self.watches[client] += 1
        try:
            yield
        finally:
            self.watches[client] -= 1

    def to_json(self) -> Json:
        """All of it."""
        return {
            "requests": [{**asdict(request), "count": count} for request, count in self.requests.items()],
            "received": dict(self.received),
            "sent": dict(self.sent),
            "watches": dict(+self.watches),
            "uses": {client: [asdict(use) for use in uses] for client, uses in self.uses.items()},
        }
