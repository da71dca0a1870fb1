"""What the agent knows of the cluster, as messages."""

from collections.abc import Iterable
from dataclasses import replace

from arpguard.addresses import Address
from arpguard.api import messages
from arpguard.core.claimwords import ClaimState, claim_state
from arpguard.core.cluster import Node, SourceState
from arpguard.core.clusterstate import ClusterState
from arpguard.core.explaining import InCluster
from arpguard.core.members import Member
from arpguard.core.ownership.records import Holder, epoch_number
from arpguard.core.vouching.state import VouchedNode, VouchingState
from arpguard.model import Vip
from arpguard.v1 import agent_pb2 as pb

_MAX_TRANSITIONS = (1 << 32) - 1
_HELD = (ClaimState.VALID, ClaimState.DELETING)


def kubernetes(state: ClusterState | None, clock: messages.MessageClock) -> pb.Kubernetes:
    """The connection, the lease and the nodes; None: the agent runs without Kubernetes."""
    if state is None:
        return pb.Kubernetes(state=pb.Kubernetes.STATE_NOT_USED)

    macs: dict[str, list[str]] = {}
    for mac, node in state.published().items():
        macs.setdefault(node, []).append(str(mac))

    message = pb.Kubernetes(
        state=connection(state),
        server=state.server,
        namespace=state.namespace,
        sources=[_source(name, source) for name, source in sorted(state.sources.items())],
        renewal_problem=state.renewal_lost,
        yielding=state.yielding,
        nodes=[_node(member, state.nodes.get(member.name), macs.get(member.name, ())) for member in state.members],
        writes=[
            pb.LeaseWrites(kind=kind, outcome=outcome, count=count)
            for (kind, outcome), count in sorted(state.writes.items())
        ],
        events_written=state.events["written"],
        events_dropped=state.events["dropped"],
    )

    if state.renewed_ns is not None:
        message.renewal_time.CopyFrom(clock.timestamp(state.renewed_ns))
    if state.vouching is not None:
        message.vouching.CopyFrom(_vouching(state.vouching, clock))
    return message


def _vouching(state: VouchingState, clock: messages.MessageClock) -> pb.Vouching:
    message = pb.Vouching(
        voucher=state.voucher,
        timeout=messages.duration(state.d_ns),
        bound=state.bound,
        seeks=state.seeks,
        isolated=state.isolated,
        vouched_nodes=[_vouched(node, clock) for node in state.vouched],
        priority=state.priority,
        unbinds=state.unbinds,
        revocations=state.revocations,
        found_dead=state.decided,
        lacks_right=state.lacks_right,
    )
    if state.since_ns is not None:
        message.since_time.CopyFrom(clock.timestamp(state.since_ns))
    return message


def _vouched(node: VouchedNode, clock: messages.MessageClock) -> pb.VouchedNode:
    return pb.VouchedNode(
        node=node.node,
        timeout=messages.duration(node.d_ns),
        since_time=clock.timestamp(node.since_ns),
        trial=node.trial,
        bound=node.bound,
        pings=node.pings,
        pongs=node.pongs,
        usual_interval=messages.duration(node.gaps.within_ns(999)),
        longest_interval=messages.duration(node.gaps.longest_ns),
    )


def connection(state: ClusterState) -> pb.Kubernetes.State.ValueType:
    """The state of the agent's connection to the API server."""
    if not state.complete:
        return pb.Kubernetes.STATE_CONNECTING
    lost = any(source.lost for source in state.sources.values())
    return pb.Kubernetes.STATE_LOST if lost else pb.Kubernetes.STATE_FOLLOWING


def is_well(state: ClusterState) -> bool:
    """Whether everything is followed, and the lease is renewed or need not be."""
    return connection(state) == pb.Kubernetes.STATE_FOLLOWING and not state.renewal_lost and not state.yielding


def _source(name: str, source: SourceState) -> pb.KubernetesSource:
    return pb.KubernetesSource(
        name=name,
        lost=source.lost,
        lists=source.lists,
        streams=source.streams,
        failures=source.failures,
        unreadable=source.unreadable,
    )


def _node(member: Member, found: Node | None, macs: Iterable[str]) -> pb.ClusterNode:
    addresses = [str(address) for address in found.addresses] if found else []
    return pb.ClusterNode(
        name=member.name, alive=member.alive, refusal=member.refusal or "", addresses=addresses, macs=macs
    )


def claim(holder: Holder, clock: messages.MessageClock) -> pb.Claim:
    """Who has a VIP."""
    message = pb.Claim(
        holder=holder.node,
        epoch=_number(holder.epoch),
        state=_STATES[claim_state(holder)],
        alive=holder.alive,
        external_mac=holder.external,
        transitions=min(holder.transitions, _MAX_TRANSITIONS),
        voucher=holder.voucher,
    )
    if holder.seen_ns:
        message.seen_time.CopyFrom(clock.timestamp(holder.seen_ns))
    return message


def _number(epoch: str) -> int:
    """0 for none, and for text that other programs wrote there."""
    try:
        return epoch_number(epoch)
    except ValueError:
        return 0


_STATES = {state: pb.Claim.State.Value(f"STATE_{state.name}") for state in ClaimState}


def in_cluster(state: ClusterState, address: Address, vip: Vip | None) -> InCluster:
    """All that is known of an address."""
    about = InCluster(origin=state.origin(address), complete=state.complete)
    if vip is None or not vip.elected:
        return about
    holder = state.holder(address)
    owner = holder.node if claim_state(holder) in _HELD else ""
    return replace(
        about,
        candidates=tuple(replace(each, chosen=each.node == owner) for each in state.candidates(vip)),
        holder=holder,
        yielding=state.yielding,
        renewal_lost=state.renewal_lost,
    )
