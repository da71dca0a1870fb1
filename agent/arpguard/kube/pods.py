"""The agents' Pods, for commands that run in them."""

from dataclasses import dataclass

from arpguard.kube.client import Client
from arpguard.kube.errors import JsonObject
from arpguard.kube.listing import Scope, read_pages
from arpguard.kube.resources import PODS

CONTAINER = "agent"
_LABELS = "app.kubernetes.io/name=arpguard"


@dataclass(frozen=True, slots=True)
class AgentPod:
    """The Pod of a node's agent. `trouble`: why nothing can be run in it; empty where something can."""

    node: str
    name: str
    trouble: str = ""


async def read_agent_pods(client: Client, namespace: str) -> list[AgentPod]:
    """One for each node that has any, by node: during a rollout the one that is ready, or else the newest.

    Raises ClusterError.
    """
    best: dict[str, tuple[tuple[bool, bool, str], AgentPod]] = {}
    async for page in read_pages(client, PODS, Scope(namespace, labels=_LABELS)):
        for item in page.items:
            if isinstance(item, dict) and (found := _agent_pod(item)) is not None:
                rank = (not found.trouble, _is_ready(item), str(item["metadata"].get("creationTimestamp")))
                if found.node not in best or rank > best[found.node][0]:
                    best[found.node] = rank, found
    return [best[node][1] for node in sorted(best)]


def _agent_pod(item: JsonObject) -> AgentPod | None:
    """None for the Pod of something else, and for one that has no node."""
    node = item["spec"].get("nodeName")
    if not node or all(each.get("name") != CONTAINER for each in item["spec"].get("containers") or ()):
        return None
    return AgentPod(str(node), str(item["metadata"]["name"]), _trouble(item))


def _is_ready(item: JsonObject) -> bool:
    conditions = item.get("status", {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _trouble(item: JsonObject) -> str:
    """The kubelet's reason why the container does not run; from a node that is away it may be old."""
    status = item.get("status", {})
    for each in status.get("containerStatuses") or ():
        state = each.get("state") or {}
        if each.get("name") == CONTAINER and "running" not in state:
            why = state.get("waiting") or state.get("terminated") or {}
            return f"is not running: {why.get('reason') or 'the kubelet gives no reason'}"
    phase = status.get("phase", "Running")
    return "" if phase == "Running" else f"is {phase}"
