"""Consistent lists, a page at a time."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from arpguard.kube.client import Client
from arpguard.kube.errors import Failure, JsonObject, UnavailableError
from arpguard.kube.projections import version_of
from arpguard.kube.resources import Request, Resource

# Small, because the memory of a page cannot be given back: objects that stay lie between. With 5,000 Services and
# 10,000 EndpointSlices, 100 cost 12 MB, and client-go's 500 cost 26 MB. Also, nothing else runs while a page is read.
PAGE = 100
LIST_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects of a kind: one namespace or all, and selectors in the form of the API's parameters."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    @property
    def query(self) -> dict[str, str]:
        """The parameters of lists and watches."""
        pairs = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: text for name, text in pairs.items() if text}


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. All parts have one `version`; `sent_ns` is the boot clock before the request for this part."""

    items: list[object]
    version: str
    sent_ns: int


async def read_pages(
    client: Client, resource: Resource, scope: Scope = EVERYTHING, limit: int = PAGE, timeout_s: float = LIST_TIMEOUT_S
) -> AsyncGenerator[Page, None]:
    """The objects as they are now, not from a cache: the request names no resourceVersion.

    Raises ClusterError; GoneError when it took so long that the server forgot the version: then list again. The server
    offers to continue at a newer version, but that may list an object twice or not at all.
    """
    token = ""
    while True:
        query = {**scope.query, "limit": str(limit), **({"continue": token} if token else {})}
        request = Request("list", resource, scope.namespace, query=query)
        answer = await client.call(request, timeout_s)
        yield _page(request, answer.body, answer.sent_ns)
        before, token = token, answer.body["metadata"].get("continue") or ""
        if not isinstance(token, str) or token == before != "":
            raise UnavailableError(Failure("list", request.what, 0, "the continue token in the answer is not valid"))
        if not token:
            return


def _page(request: Request, body: JsonObject, sent_ns: int) -> Page:
    """A page of a list. Refuses other answers: a proxy's {} must not mean that everything was deleted."""
    items = body.get("items") or []
    version = version_of(body)
    if "items" not in body or not isinstance(items, list) or not version:
        raise UnavailableError(Failure("list", request.what, 0, "the answer is not a list"))
    return Page(items, version, sent_ns)
