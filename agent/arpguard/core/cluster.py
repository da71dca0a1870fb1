"""What the agent keeps of the cluster's objects: only what a decision needs, since there may be 10,000 of a kind.

Each has `problems`: what could not be understood of the object, in words for the one who wrote it. What could be
understood is there all the same.
"""

from dataclasses import dataclass
from typing import TypeAlias

from arpguard.addresses import Address, Network

Key: TypeAlias = tuple[str, str]  # namespace and name
Pairs: TypeAlias = tuple[tuple[str, str], ...]  # of labels or annotations, sorted by name

PREFIX = "arpguard.io/"
CONFIG_KEY = "config.yaml"

# Annotations of other announcers (docs/follow.md) that are kept of a Service besides those under arpguard.io/.
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
    """A Service. `annotations` are those under arpguard.io/, `marks` those of other announcers (`MARKS`).

    `local_only` is externalTrafficPolicy Local; `made` is when, as the API server writes it (RFC 3339, seconds, UTC).
    """

    namespace: str
    name: str
    uid: str = ""
    type: str = "ClusterIP"
    labels: Pairs = ()
    annotations: Pairs = ()
    marks: Pairs = ()
    external_ips: tuple[Address, ...] = ()
    ingress_ips: tuple[Address, ...] = ()
    load_balancer_class: str | None = None
    local_only: bool = False
    health_check_port: int = 0
    deleting: bool = False
    made: str = ""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointSlice:
    """Where a Service has ready endpoints. `nodes` is sorted; `service` is empty when the slice belongs to none.

    `version`: the family of the endpoints' addresses, 4 or 6; 0 where they have none.
    """

    namespace: str
    name: str
    service: str = ""
    nodes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
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
    """A Lease. (`uid`, `version`) is what a replacement is compared with; `annotations` are those under arpguard.io/.

    Times that others wrote into it are not here: nothing may be decided by them.
    """

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    holder: str = ""
    duration_s: int = 0
    transitions: int = 0
    labels: Pairs = ()
    annotations: Pairs = ()
    finalizers: tuple[str, ...] = ()
    deleting: bool = False
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Announcement:
    """What an object of another announcer says: `node` announces, or holds, what the object is about.

    `about` is the namespace and name of a Service, or those of the Lease itself; `uid` the Service's, where it is
    known. `made` tells the newer of two by the order of texts: when the server made the object (RFC 3339, whole
    seconds), or of an Event the version of its last write. Nothing is waited for by it. `version`, of an object that
    Events are about, too, is compared with theirs. `disputed`: another part of the object names another node.
    Times that holders write are not here: a renewal is no change.
    """

    about: tuple[str, str]
    node: str = ""
    made: str = ""
    uid: str = ""
    version: str = ""
    disputed: bool = False
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap; `text` is its key config.yaml, None when it has none."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    text: str | None = None
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class SourceState:
    """How the following of one kind is: `lost` says why nothing is heard, and is empty once it has lasted again."""

    lost: str = ""
    lists: int = 0
    streams: int = 0
    failures: int = 0
    unreadable: int = 0
