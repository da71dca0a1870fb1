"""One look at the cluster, without watches: Services, Nodes, and how kube-proxy and arpguard are configured."""

from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import TypeVar

import yaml

from arpguard.core.checkup.snapshot import Eip, Followable, KubeProxy, Unread
from arpguard.core.cluster import ConfigMap, Node, Service
from arpguard.kube import projections
from arpguard.kube.client import Client
from arpguard.kube.errors import ClusterError, JsonObject, NotFoundError
from arpguard.kube.following import FollowSource, can_read
from arpguard.kube.listing import Scope, read_pages
from arpguard.kube.resources import CONFIG_MAPS, NODES, SERVICES, Request, Resource

T = TypeVar("T")

EIPS = Resource("network.kubesphere.io", "v1alpha2", "eips")
KUBE_PROXY = ("kube-system", "kube-proxy", "config.conf")
_TIMEOUT_S = 5.0


async def read_services(client: Client) -> dict[tuple[str, str], Service]:
    """All Services. Raises ClusterError."""
    return await _read_all(client, SERVICES, projections.service)


async def read_nodes(client: Client) -> dict[str, Node]:
    """All Nodes. Raises ClusterError."""
    found = await _read_all(client, NODES, projections.node)
    return {name: node for (_, name), node in found.items()}


async def _read_all(client: Client, resource: Resource, project: Callable[[JsonObject], T]) -> dict[tuple[str, str], T]:
    found: dict[tuple[str, str], T] = {}
    async for page in read_pages(client, resource, timeout_s=_TIMEOUT_S):
        for item in page.items:
            if isinstance(item, dict) and (key := projections.key_of(item)) is not None:
                found[key] = project(item)
    return found


async def read_eips(client: Client) -> tuple[Eip, ...] | Unread:
    """OpenELB's address pools that name their link by an address; none if OpenELB is not installed."""
    try:
        found = await _read_all(client, EIPS, lambda raw: raw)
    except NotFoundError:
        return ()
    except ClusterError as error:
        return Unread(str(error))
    return tuple(eip for (_, name), raw in sorted(found.items()) if (eip := _eip(name, raw)) is not None)


def _eip(name: str, raw: JsonObject) -> Eip | None:
    spec = raw.get("spec")
    interface = spec.get("interface") if isinstance(spec, dict) else None
    kind, _, text = interface.partition(":") if isinstance(interface, str) else ("", "", "")
    try:
        return Eip(name, ip_address(text.strip())) if kind == "can_reach" else None
    except ValueError:  # OpenELB refuses it
        return None


async def read_announcers(client: Client, sources: Iterable[FollowSource]) -> tuple[Followable, ...]:
    """Which objects of other announcers this process has the right to read."""
    return tuple([await _followable(client, source) for source in sources])


async def _followable(client: Client, source: FollowSource) -> Followable:
    try:
        found = await can_read(client, source)
    except ClusterError as error:
        return Followable(source.source.value, str(error))
    return Followable(source.source.value, "" if found.readable else found.why)


async def read_config_map(client: Client, namespace: str, name: str) -> ConfigMap | None:
    """A ConfigMap; None when it does not exist. Raises ClusterError.

    It is listed by its name: the agent's own right is to list and watch it, and not to get it.
    """
    async for page in read_pages(
        client, CONFIG_MAPS, Scope(namespace, fields=f"metadata.name={name}"), timeout_s=_TIMEOUT_S
    ):
        for item in page.items:
            if isinstance(item, dict) and projections.key_of(item) == (namespace, name):
                return projections.config_map(item)
    return None


async def read_kube_proxy(client: Client) -> KubeProxy | Unread:
    """What kube-proxy's ConfigMap says; kubeadm creates it."""
    namespace, name, key = KUBE_PROXY
    try:
        found = await client.find(Request("get", CONFIG_MAPS, namespace, name), _TIMEOUT_S)
    except ClusterError as error:
        return Unread(str(error))
    if found is None:
        where = "kube-proxy is not installed, or reads its configuration from elsewhere"
        return Unread(f"no ConfigMap {namespace}/{name}: {where}")
    data = found.get("data")
    text = data.get(key) if isinstance(data, dict) else None
    return parse_kube_proxy(text) if isinstance(text, str) else Unread(f"ConfigMap {namespace}/{name} has no {key}")


def parse_kube_proxy(text: str) -> KubeProxy | Unread:
    """A KubeProxyConfiguration (kubeproxy.config.k8s.io)."""
    try:
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return Unread("kube-proxy's configuration is not YAML")
    if not isinstance(raw, dict) or raw.get("kind") != "KubeProxyConfiguration":
        return Unread("kube-proxy's configuration is not a KubeProxyConfiguration")
    mode, ipvs = raw.get("mode"), raw.get("ipvs")
    strict = ipvs.get("strictARP") if isinstance(ipvs, dict) else None
    return KubeProxy(mode.strip().lower() if isinstance(mode, str) else "", strict is True)
