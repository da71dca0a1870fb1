"""The objects of other announcers that name a node: where they are, which of them to watch, and whether they can be.

One row for each `Source`; `SOURCES` are where the announcers' own manifests have them.
Nothing here is watched unless a Service follows an announcer that it belongs to (`core.following.Following.sources`).
Events are watched in few namespaces and not for long: servers keep no cache of them for watches, and there are many.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from arpguard.config.model import FollowConfig
from arpguard.core.cluster import Announcement
from arpguard.core.following import Source
from arpguard.kube.client import Client
from arpguard.kube.errors import ForbiddenError, JsonObject, NotFoundError
from arpguard.kube.listing import Scope
from arpguard.kube.projections import held, l2_event, l2_status
from arpguard.kube.resources import CORE_EVENTS, L2_STATUSES, LEASES, Discovery, Request, Resource


@dataclass(frozen=True, slots=True)
class FollowSource:
    """What a reflector needs to know to follow a source."""

    source: Source
    resource: Resource
    scope: Scope
    project: Callable[[JsonObject], Announcement]

    def within(self, namespace: str) -> "FollowSource":
        """The same in another namespace."""
        return replace(self, scope=replace(self.scope, namespace=namespace))


# kubelets alone renew a Lease each, every 10 s, and none of those is an announcer's.
_NOT_OF_KUBELETS = "metadata.namespace!=kube-node-lease"
_OF_SPEAKERS = "involvedObject.kind=Service,reason=nodeAssigned"


def sources_at(places: FollowConfig) -> tuple[FollowSource, ...]:
    """The sources, where the configuration has them."""
    lease_of_all = Scope(places.kube_vip, fields=f"metadata.name={places.kube_vip_lease}")
    speaker = Scope(places.openelb, fields="metadata.name=openelb-speaker")
    return (
        FollowSource(Source.METALLB, L2_STATUSES, Scope(places.metallb), l2_status),
        FollowSource(Source.METALLB_EVENT, CORE_EVENTS, Scope(fields=_OF_SPEAKERS), l2_event),
        FollowSource(Source.CILIUM, LEASES, Scope(places.cilium), held),
        FollowSource(Source.KUBE_VIP_SERVICES, LEASES, Scope(fields=_NOT_OF_KUBELETS), held),
        FollowSource(Source.KUBE_VIP, LEASES, lease_of_all, held),
        FollowSource(Source.OPENELB, LEASES, speaker, held),
    )


SOURCES = sources_at(FollowConfig())


@dataclass(frozen=True, slots=True)
class Readable:
    """Whether a source can be watched, and why not. `forbidden`: there is such a kind, and a right is missing."""

    readable: bool
    why: str = ""
    forbidden: bool = False


_READABLE = Readable(readable=True)
_NOT_INSTALLED = Readable(readable=False, why="not installed")


async def is_served(client: Client, resource: Resource) -> bool:
    """Whether the server has this kind now: a CustomResourceDefinition comes and goes.

    Raises ClusterError for any answer but yes and no.
    """
    try:
        answer = await client.call(Discovery("get", resource))
    except NotFoundError:
        return False
    found = answer.body.get("resources")
    return isinstance(found, list) and any(
        isinstance(each, dict) and each.get("name") == resource.plural for each in found
    )


async def can_read(client: Client, source: FollowSource) -> Readable:
    """Whether a reflector of it would get anything. To be asked before one is started, and again after a while.

    Raises ClusterError when that cannot be found out now.
    """
    if source.resource.group == L2_STATUSES.group and not await is_served(client, source.resource):
        return _NOT_INSTALLED
    try:
        await client.call(Request("list", source.resource, source.scope.namespace, query=_one_of(source.scope)))
    except ForbiddenError as error:
        return Readable(readable=False, why=str(error), forbidden=True)
    except NotFoundError:
        return _NOT_INSTALLED
    return _READABLE


def _one_of(scope: Scope) -> dict[str, str]:
    return {**scope.query, "limit": "1"}
