"""The objects of other announcers that name a node: where they are, which of them to watch, and whether the agent can.

One row for each `Source`; `SOURCES` has the places that the announcers' own manifests use.
The agent watches a source only while a Service follows its announcer (`core.following.Following.sources`).
It watches Events in few namespaces and not for long: there are many, and servers keep no watch cache for them.
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
    """What a reflector needs to watch a source."""

    source: Source
    resource: Resource
    scope: Scope
    project: Callable[[JsonObject], Announcement]

    def within(self, namespace: str) -> "FollowSource":
        """The same source in another namespace."""
        return replace(self, scope=replace(self.scope, namespace=namespace))


# Each kubelet renews a Lease every 10 s, and none of those is an announcer's.
_NOT_OF_KUBELETS = "metadata.namespace!=kube-node-lease"
_OF_SPEAKERS = "involvedObject.kind=Service,reason=nodeAssigned"


def sources_at(places: FollowConfig) -> tuple[FollowSource, ...]:
    """The sources, in the places that the configuration names."""
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
    """Whether a source can be watched, and why not. `forbidden`: the kind exists, but a right is missing."""

    readable: bool
    why: str = ""
    forbidden: bool = False


_READABLE = Readable(readable=True)
_NOT_INSTALLED = Readable(readable=False, why="not installed")


async def is_served(client: Client, resource: Resource) -> bool:
    """Whether the server has this kind now: CustomResourceDefinitions come and go.

    Raises ClusterError when the answer is neither yes nor no.
    """
    served = await client.find(Discovery("get", resource))
    found = served.get("resources") if served is not None else None
    return isinstance(found, list) and any(
        isinstance(each, dict) and each.get("name") == resource.plural for each in found
    )


async def can_read(client: Client, source: FollowSource) -> Readable:
    """Whether a reflector could read it. Ask before starting one, and again after a while.

    Raises ClusterError when it cannot find out now.
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
