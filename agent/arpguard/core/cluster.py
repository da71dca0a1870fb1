"""What the agent keeps of the cluster's objects: only what a decision needs, since there may be 10,000 of a kind.

Each has `problems`: what could not be understood of the object, in words for the one who wrote it. What could be
understood is there all the same.
"""

from dataclasses import dataclass
from typing import TypeAlias

from arpguard.addresses import Address, Network

Pairs: TypeAlias = tuple[tuple[str, str], ...]  # of labels or annotations, sorted by name

PREFIX = "arpguard.io/"
CONFIG_KEY = "config.yaml"


@dataclass(frozen=True, slots=True)
class Service:
    """A Service. `annotations` are those under arpguard.io/; `local_only` is externalTrafficPolicy Local."""

    namespace: str
    name: str
    uid: str = ""
    type: str = "ClusterIP"
    labels: Pairs = ()
    annotations: Pairs = ()
    external_ips: tuple[Address, ...] = ()
    ingress_ips: tuple[Address, ...] = ()
    load_balancer_class: str | None = None
    local_only: bool = False
    health_check_port: int = 0
    deleting: bool = False
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointSlice:
    """Where a Service has ready endpoints. `nodes` is sorted; `service` is empty when the slice belongs to none."""

    namespace: str
    name: str
    service: str = ""
    nodes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


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
