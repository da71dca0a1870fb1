"""Why an agent of a DaemonSet has to stop: it asks the API server."""

import logging
import os
from collections.abc import Mapping

from arpguard.kube.client import Client
from arpguard.kube.errors import ClusterError
from arpguard.kube.projections import is_deleting
from arpguard.kube.resources import DAEMON_SETS, PODS, Request
from arpguard.runtime.controlplane import End

log = logging.getLogger(__name__)

ASK_S = 2.0


async def why_it_ends(client: Client, namespace: str, environment: Mapping[str, str] = os.environ) -> End:
    """Looks up what the environment names (POD_NAMESPACE, POD_NAME, DAEMONSET_NAME), once."""
    namespace = environment.get("POD_NAMESPACE", namespace)
    daemonset, pod = environment.get("DAEMONSET_NAME", ""), environment.get("POD_NAME", "")
    try:
        if daemonset and await _is_going(client, Request("get", DAEMON_SETS, namespace, daemonset)):
            return End.REMOVED
        if pod and await _is_going(client, Request("get", PODS, namespace, pod)):
            return End.REPLACED
    except ClusterError as error:
        log.warning("cannot find out why this agent has to stop: %s", error)
    return End.STOPPED


async def _is_going(client: Client, request: Request) -> bool:
    found = await client.find(request, ASK_S)
    return found is None or is_deleting(found)
