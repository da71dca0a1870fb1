"""Consistent lists, a page at a time."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from arpguard.kube.client import Client
from arpguard.kube.errors import Failure, JsonObject, UnavailableError
from arpguard.kube.projections import version_of
from arpguard.kube.resources import Request, Resource

# Small: what a page leaves in memory cannot be given back, since objects that stay lie between. For 5,000 Services and
# 10,000 EndpointSlices, 100 make 12 MB, and client-go's 500 make 26 MB. Also, nothing else runs while a page is read.
PAGE = 100
LIST_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects of a kind: of one namespace or all, and selectors as the API's parameters have them."""

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
    """A part of a list. All parts are of one `version`; `sent_ns` is the boot clock before this part was asked for."""

    items: list[object]
    version: str
    sent_ns: int


async def read_pages(
    client: Client, resource: Resource, scope: Scope = EVERYTHING, limit: int = PAGE, timeout_s: float = LIST_TIMEOUT_S
) -> AsyncGenerator[Page, None]:
    """The objects as they are now, and not as some cache has them: no resourceVersion is asked for.

    Raises ClusterError; GoneError when it took so long that the server forgot the version, and all is to be read anew.
    The server offers to go on with a newer version then, in which an object may be twice or not at all.
    """
    token = ""
    while True:
        query = {**scope.query, "limit": str(limit), **({"continue": token} if token else {})}
        request = Request("list", resource, scope.namespace, query=query)
        answer = await client.call(request, timeout_s)
        yield _page(request, answer.body, answer.sent_ns)
        before, token = token, answer.body["metadata"].get("continue") or ""
        if not isinstance(token, str) or token == before != "":
            raise UnavailableError(Failure("list", request.what, 0, "the answer has no page after it"))
        if not token:
            return


def _page(request: Request, body: JsonObject, sent_ns: int) -> Page:
    """A proxy's {} must not be taken for the news that everything was deleted."""
    items = body.get("items") or []
    version = version_of(body)
    if "items" not in body or not isinstance(items, list) or not version:
        raise UnavailableError(Failure("list", request.what, 0, "the answer is no list"))
    return Page(items, version, sent_ns)
