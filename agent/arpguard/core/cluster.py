"""What the agent keeps of the cluster's objects: only what decisions need, because there may be 10,000 of a kind.

`problems`: the parts that could not be understood, in words for the object's author; the other parts are used.
EndpointSlice and ConfigMap have no such field: the API server refuses every value there that the agent cannot read.
"""

from dataclasses import dataclass
from typing import TypeAlias

from arpguard.addresses import Address, Network

Key: TypeAlias = tuple[str, str]  # namespace and name
Pairs: TypeAlias = tuple[tuple[str, str], ...]  # of labels or annotations, sorted by name

PREFIX = "arpguard.io/"
OWNED_BY = PREFIX + "owned-by"  # `core.ownedby`
EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"

# Annotations of other announcers (docs/follow.md) that a `Service` keeps besides those under arpguard.io/.
KUBE_VIP_HOST = "kube-vip.io/vipHost"
KUBE_VIP_LEASE = "kube-vip.io/leaseName"
PURELB_BRAND = "purelb.io/allocated-by"
PURELB_IPV4 = "purelb.io/announcing-IPv4"
PURELB_IPV6 = "purelb.io/announcing-IPv6"
OPENELB_BRAND = "lb.kubesphere.io/v1alpha1"
OPENELB_NEXT_HOP = "layer2.openelb.kubesphere.io/v1alpha1"
MARKS = frozenset(
    (KUBE_VIP_HOST, KUBE_VIP_LEASE, PURELB_BRAND, PURELB_IPV4, PURELB_IPV6, OPENELB_BRAND, OPENELB_NEXT_HOP)
)


@dataclass(frozen=True, slots=True)
class Service:
    """A Service. `annotations` are those under arpguard.io/ except `owned_by`, which agents write.

    `marks` are the annotations of other announcers (`MARKS`). `local_only` is externalTrafficPolicy Local; `made` is
    when, as the API server writes it (RFC 3339, seconds, UTC).
    """

    namespace: str
    name: str
    uid: str = ""
    labels: Pairs = ()
    annotations: Pairs = ()
    owned_by: str = ""
    marks: Pairs = ()
    external_ips: tuple[Address, ...] = ()
    ingress_ips: tuple[Address, ...] = ()
    load_balancer_class: str | None = None
    local_only: bool = False
    made: str = ""
    problems: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All that it asks for, each once."""
        return tuple(dict.fromkeys(self.external_ips + self.ingress_ips))


@dataclass(frozen=True, slots=True)
class EndpointSlice:
    """Where a Service has ready endpoints. `nodes` is sorted; `service` is empty if the slice belongs to none.

    `version`: the family of the endpoints' addresses, 4 or 6; 0 for others.
    """

    namespace: str
    name: str
    service: str = ""
    nodes: tuple[str, ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A Node. `excluded`: labelled node.kubernetes.io/exclude-from-external-load-balancers."""

    name: str
    uid: str = ""
    ready: bool = False
    excluded: bool = False
    unschedulable: bool = False
    addresses: tuple[Address, ...] = ()
    pod_networks: tuple[Network, ...] = ()
    deleting: bool = False
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease. A replacement has to name its `uid` and `version`; `annotations` are those under arpguard.io/.

    The times that other nodes wrote into the Lease are left out: no decision may depend on them.
    """

    name: str
    uid: str = ""
    version: str = ""
    holder: str = ""
    duration_s: int = 0
    transitions: int = 0
    annotations: Pairs = ()
    deleting: bool = False
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Announcement:
    """What an object of another announcer says: `node` announces, or holds, what the object is about.

    `about` is the namespace and name of a Service, or of the Lease itself; `uid` is the Service's, if known. `made`
    sorts objects by age, as text: when the server created the object (RFC 3339, whole seconds), or for an Event the
    version of its last write. `version` is compared with those of Events about the same Service. `also`: the node
    that another part of the object names.
    The times that holders write are left out: a renewal is not a change.
    """

    about: tuple[str, str]
    node: str = ""
    made: str = ""
    uid: str = ""
    version: str = ""
    also: str = ""
    problems: tuple[str, ...] = ()

    @property
    def disputed(self) -> bool:
        """Whether two parts of the object name different nodes."""
        return bool(self.also)


@dataclass(frozen=True, slots=True)
class SpeakerReport:
    """What the agent of a node sees of the announcer there: whether it answers for a Service (`core.speakers`).

    `version`: of the latest Event or object about the Service that the agent had read.
    """

    version: str
    answers: bool


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap; `text` is its key config.yaml, None if it has none."""

    namespace: str
    name: str
    uid: str = ""
    text: str | None = None


@dataclass(slots=True)
class SourceState:
    """The state of the watch on one kind; `lost`: why it fails, empty once a new stream has lasted for a while."""

    lost: str = ""
    lists: int = 0
    streams: int = 0
    failures: int = 0
    unreadable: int = 0
