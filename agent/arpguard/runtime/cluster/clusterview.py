"""One look at the API server, for the doctor. A module of its own, as not every command needs the Kubernetes client."""

import os
from contextlib import aclosing
from pathlib import Path

from arpguard.config.files import parse_config
from arpguard.config.model import FollowConfig
from arpguard.core.checkup.snapshot import ClusterView, Unread
from arpguard.core.cluster import ConfigMap
from arpguard.errors import ConfigError
from arpguard.kube.client import Client
from arpguard.kube.connecting import SERVICE_ACCOUNT, find_access
from arpguard.kube.errors import ClusterError
from arpguard.kube.following import sources_at
from arpguard.kube.looking import (
    read_announcers,
    read_config_map,
    read_eips,
    read_kube_proxy,
    read_nodes,
    read_services,
)
from arpguard.runtime.cluster.objects import addresses_of


def is_in_pod() -> bool:
    """Whether this process has a Pod's service account."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and SERVICE_ACCOUNT.is_dir()


async def read_cluster(
    kubeconfig: Path | None, node: str, configmap: str, places: FollowConfig
) -> tuple[ClusterView | Unread, ConfigMap | None]:
    """The cluster as `node` sees it, and the ConfigMap NAMESPACE/NAME, if one is named and exists.

    The ConfigMap says where other announcers are; without one, `places` does.
    """
    access = await find_access(kubeconfig)
    found = None

    try:
        async with aclosing(Client(access, node)) as client:
            if configmap:
                namespace, _, name = configmap.partition("/")
                found = await read_config_map(client, namespace, name)

            view = ClusterView(
                services=await read_services(client),
                nodes=await read_nodes(client),
                api_servers=addresses_of(access.host),
                kube_proxy=await read_kube_proxy(client),
                eips=await read_eips(client),
                announcers=await read_announcers(client, sources_at(_places(found, places))),
            )
    except ClusterError as error:
        return Unread(str(error)), found
    return view, found


def _places(found: ConfigMap | None, otherwise: FollowConfig) -> FollowConfig:
    """Where other announcers are. A ConfigMap that is wrong is ignored here: the caller reports it."""
    try:
        return parse_config(found.text).follow if found is not None and found.text is not None else otherwise
    except ConfigError:
        return otherwise
