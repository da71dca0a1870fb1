"""What is wrong with an agent's view of the cluster, in words."""

from collections.abc import Iterator

from arpguard.core.bounding import some
from arpguard.core.electing import Wishes
from arpguard.runtime.cluster.livestate import LiveState
from arpguard.runtime.cluster.objects import Cluster
from arpguard.runtime.cluster.outlook import Outlook


def problems_of(node: str, cluster: Cluster, outlook: Outlook, state: LiveState, owned_by: str) -> Iterator[str]:
    """All of them but those of elections. `owned_by`: what keeps owners' names from Services."""
    yield from outlook.collected.problems
    yield from cluster.announcers.all_problems
    for name, source in cluster.sources.items():
        if source.lost:
            yield f"Kubernetes: lost the watch on {name}; what the agent knows about them is going stale: {source.lost}"
    if state.renewal_lost:
        yield f"Kubernetes: cannot renew the lease: {state.renewal_lost}"
    if owned_by:
        yield f"Kubernetes: {owned_by}"
    if state.yielding:
        yield f"Kubernetes: another agent uses the node name {node}, so this agent stays silent"
    if (vouching := state.vouching) is not None:
        yield from vouching.problems


def problems_of_elections(wishes: Wishes, outlook: Outlook) -> Iterator[str]:
    """The VIPs that no node may own, or not together."""
    if wishes.nobody:
        names = some(sorted(map(str, wishes.nobody)))
        yield f"no node is eligible to own {names}: `arpguard explain ADDRESS` says why for each node"
    if wishes.apart:
        apart = sorted(wishes.apart, key=str)
        pairs = some([f"{outlook.lead(address)} and {address}" for address in apart])
        yield (
            f"no node is eligible to own both {pairs}, so each gets an owner of its own: "
            "`arpguard explain ADDRESS` says why for each node"
        )
