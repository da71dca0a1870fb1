"""Why an agent of a DaemonSet has to stop: it asks the API server or, if that refuses, decides by what it saw before.

An uninstall removes the guard; a Pod that only restarts needs it: without it, the node would answer freely until
the next agent runs, beside the VIPs' owners. So the guard goes only if something shows that arpguard is uninstalled.
A refusal alone does not: a role may be wrong, or the API server not ready yet.
"""

import asyncio
import logging
import os
from collections.abc import Mapping

from arpguard.clock import boot_ns
from arpguard.core.cluster import ConfigMap
from arpguard.kube.claims import node_lease_name
from arpguard.kube.client import Client
from arpguard.kube.errors import ClusterError, ForbiddenError, UnauthorizedError
from arpguard.kube.projections import is_deleting
from arpguard.kube.resources import DAEMON_SETS, LEASES, PODS, Request
from arpguard.runtime.controlplane import End
from arpguard.units import NS_PER_S

log = logging.getLogger(__name__)

ASK_S = 2.0
SEE_S = 2.0  # for what is deleted a moment later
LATELY_NS = 600 * NS_PER_S  # an uninstall deletes the ConfigMap and ends the agent within this time
_TERMINATING = "being terminated"  # the words of a kube-apiserver's NamespaceLifecycle
_KEPT = (
    "the API server refuses to say why this agent is stopping, and the agent's ConfigMap was not deleted recently, so "
    "this may be just a restart: the guard stays, and this node's elected VIPs fall silent when the fence expires. "
    "If arpguard was uninstalled, remove the guard from each node with deploy/cleanup or `arpguard cleanup`"
)


class Ending:
    """This agent's end. `configmap_lost`: set while its ConfigMap is deleted, after it was there.

    A watch that the API server refuses does not set it.
    """

    def __init__(self, client: Client, namespace: str, node: str) -> None:
        self.configmap_lost = asyncio.Event()
        self._lost_ns = 0
        self._client = client
        self._namespace = namespace
        self._node = node
        self._configmap: object = self  # nothing was seen yet

    def saw(self, found: ConfigMap | None) -> bool:
        """Takes note of the agent's ConfigMap; returns whether it is another one than before."""
        if found is self._configmap:
            return False
        if found is not None:
            self.configmap_lost.clear()
        elif self._configmap is not self:
            self._lost_ns = boot_ns()
            self.configmap_lost.set()
        self._configmap = found
        return True

    async def why(self, environment: Mapping[str, str] = os.environ) -> End:
        """Looks up what the environment names (POD_NAMESPACE, POD_NAME, DAEMONSET_NAME), once."""
        namespace = environment.get("POD_NAMESPACE", self._namespace)
        daemonset, pod = environment.get("DAEMONSET_NAME", ""), environment.get("POD_NAME", "")
        try:
            if daemonset and await self._is_going(Request("get", DAEMON_SETS, namespace, daemonset)):
                return End.REMOVED
            if pod and await self._is_going(Request("get", PODS, namespace, pod)):
                return End.NAMESPACE_GOES if await self._is_terminating(namespace) else End.REPLACED
        except (ForbiddenError, UnauthorizedError) as error:
            log.warning("cannot find out why this agent is stopping: %s", error)
            return await self._without_rights()
        except ClusterError as error:
            log.warning("cannot find out why this agent is stopping: %s", error)
        return End.STOPPED

    async def _is_going(self, request: Request) -> bool:
        found = await self._client.find(request, ASK_S)
        return found is None or is_deleting(found)

    async def _is_terminating(self, namespace: str) -> bool:
        """Whether the namespace is being deleted: its Pods may go before their DaemonSet does, and none comes after.

        Agents have no right to read it. No object can be created in it any more, which a dry run shows.
        """
        metadata = {"name": node_lease_name(self._node), "namespace": namespace}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        try:
            await self._client.call(Request("create", LEASES, namespace, query={"dryRun": "All"}, body=body), ASK_S)
        except ClusterError as error:
            return isinstance(error, ForbiddenError) and _TERMINATING in error.failure.text
        return False

    async def _without_rights(self) -> End:
        """Watches that were open stay open, and show for a while what else is deleted.

        Agents keep running after somebody has deleted their ConfigMap. A Pod that is deleted by force then has no valid
        token either, though it only restarts: so a ConfigMap that went long ago says nothing.
        """
        try:
            await asyncio.wait_for(self.configmap_lost.wait(), SEE_S)
        except TimeoutError:
            is_lost = False
        else:
            is_lost = boot_ns() - self._lost_ns < LATELY_NS
        if not is_lost:
            log.warning(_KEPT)
        return End.RIGHTS_GONE if is_lost else End.STOPPED
