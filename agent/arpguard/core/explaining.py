"""Why an entry is what it is: the chain from the object that makes an address a VIP to what the kernel has."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from arpguard.addresses import Address
from arpguard.config.model import AgentConfig
from arpguard.core.admission import Admission, avoided
from arpguard.core.choosing import home_link
from arpguard.core.claimwords import Candidate, claim_steps
from arpguard.core.keepalived import InstanceStates, owner_step
from arpguard.core.origins import Origin
from arpguard.core.ownership.records import Holder
from arpguard.model import Grants, Link, NodeControl, OwnerKind, RangeKey, Surroundings, Vip, VipEntry
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind, Mode

Around: TypeAlias = tuple[RangeKey, VipEntry]


@dataclass(frozen=True, slots=True)
class OwnershipFacts:
    """`fence_left_ns` is None if no fence is needed.

    `voucher_left_ns`: the time until the voucher's fence; None while this node is bound to no voucher.
    """

    candidates: tuple[Candidate, ...] = ()
    fence_left_ns: int | None = None
    voucher_left_ns: int | None = None
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InCluster:
    """What is known in the cluster about an address.

    `candidates` and `holder` are of an elected VIP. `complete`: everything that defines VIPs has been read. `yielding`:
    another agent uses this node's name. `renewal_lost`: why this node's lease is not renewed.
    """

    origin: Origin = field(default_factory=Origin)
    candidates: tuple[Candidate, ...] = ()
    holder: Holder = field(default_factory=Holder)
    complete: bool = True
    yielding: bool = False
    renewal_lost: str = ""


@dataclass(frozen=True, slots=True)
class Viewpoint:
    """Where the question is asked: this node, the link, the links that are guarded, and the moment (boot clock).

    `around`: the range that decides about the address on that link if no entry does. `grants`: what the kernel has of
    this node's voucher. `keepalived`: what this node's keepalived says. `waits`: the agent changes nothing in the
    kernel yet.
    """

    node: str
    link: Link
    guarded: tuple[Link, ...]
    surroundings: Surroundings
    control: NodeControl
    now_ns: int
    around: Around | None = None
    grants: Grants = field(default_factory=Grants)
    keepalived: InstanceStates = field(default_factory=InstanceStates)
    waits: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether the link suppresses the address unless it has an entry."""
        return self.around is not None and self.around[1].kind is Kind.CLOSED

    @property
    def voucher_left_ns(self) -> int | None:
        """What is left of the voucher's fence; None while this node is bound to no voucher."""
        return _voucher_left_ns(self.control, self.grants, self.now_ns)


# Of an entry, for the doctor too.
KINDS = {
    Kind.OWNED: "this node answers",
    Kind.FOREIGN: "another node or another link of this node answers, so this link is silent",
    Kind.EXTERNAL: "a host outside the cluster answers, and this node is silent",
    Kind.UNCLAIMED: "no node owns it, so this node is silent",
    Kind.DELEGATED: "another program on this node answers, and the guard passes its answers",
}


def summary(entry: VipEntry | None, scene: Viewpoint) -> str:
    """What the kernel's entry means, in a sentence; without one, the range around the address."""
    if entry is None and not scene.is_closed:
        return "not guarded: the kernel and other programs answer freely"
    mode = (entry.mode if entry is not None else Mode.INHERIT) or scene.control.mode
    observed = "; in observe mode, so every frame passes" if mode is Mode.OBSERVE else ""
    if entry is None:
        return f"not a VIP, but its range is closed: this node is silent{observed}"
    return _what_for(entry, scene) + observed


def _what_for(entry: VipEntry, scene: Viewpoint) -> str:
    if _is_stale(entry, scene.control):
        return "owned, but the entry is from another epoch of this node: this node is silent"
    if _needs_fence(entry) and not _fence_left_ns(scene.control, scene.now_ns):
        return "owned, but the fence has expired: this node is silent"
    if _needs_fence(entry) and scene.voucher_left_ns == 0:
        return "owned, but the voucher's fence has expired: this node is silent"
    return f"{entry.kind.name.lower()}, {KINDS[entry.kind]}"


@dataclass(frozen=True, slots=True)
class FencesLeft:
    """The time until both fences, in nanoseconds. `voucher_ns`: None while this node is bound to no voucher."""

    api_ns: int
    voucher_ns: int | None = None

    @property
    def right_ns(self) -> int:
        """What is left of the right to answer, which the first of them ends."""
        return self.api_ns if self.voucher_ns is None else min(self.api_ns, self.voucher_ns)


def fences_left(control: NodeControl, grants: Grants, now_ns: int) -> FencesLeft:
    """What the programs would find at this moment."""
    return FencesLeft(_fence_left_ns(control, now_ns), _voucher_left_ns(control, grants, now_ns))


def need_fences(entries: Iterable[VipEntry]) -> bool:
    """Whether the right to answer for one of them ends unless it is renewed."""
    return any(map(_needs_fence, entries))


def is_owner(entry: VipEntry, control: NodeControl, left: FencesLeft) -> bool:
    """Whether this node answers for the VIP now: the entry has the node's epoch, and no fence has expired."""
    if entry.kind is not Kind.OWNED:
        return entry.kind is Kind.DELEGATED
    return not entry.is_stale(control) and (entry.unfenced or left.right_ns > 0)


def explain_ownership(
    address: Address,
    source: str,
    vip: Vip | None,
    entry: VipEntry | None,
    scene: Viewpoint,
    cluster: InCluster | None = None,
) -> OwnershipFacts:
    """The chain for an address on a link.

    `source` names the object that `vip` is from; without a VIP, the configuration that has none; empty: not known.
    `cluster` None: the agent runs standalone.
    """
    fence = voucher = None
    if entry is not None and _needs_fence(entry):
        fence = _fence_left_ns(scene.control, scene.now_ns)
        voucher = scene.voucher_left_ns
    refused = Admission.of(AgentConfig(), {}, avoided(scene.surroundings)).refusal(address)
    if vip is not None and cluster is None and refused is not None:
        steps = [f"{source} lists this address, but {refused.why}", *_link_steps(address, None, entry, scene)]
        return OwnershipFacts(steps=(*steps, *_entry_steps(entry, scene)))

    steps = _source_steps(address, source, vip, cluster)
    if vip is not None and vip.owner.kind is OwnerKind.KEEPALIVED:
        steps.append(owner_step(vip.owner, scene.node, scene.keepalived, waits=scene.waits))
    elif vip is not None and cluster is not None:
        steps += _owner_steps(address, vip, cluster, scene)
    elected = vip is not None and vip.elected
    steps += [*_link_steps(address, vip, entry, scene), *_entry_steps(entry, scene)]
    if entry is not None and entry.kind is Kind.OWNED:
        steps.append(_fence_step(fence, voucher, elected=elected))
    candidates = cluster.candidates if elected and cluster else _candidates(vip, scene.node)
    return OwnershipFacts(candidates, fence, voucher, tuple(steps))


def _needs_fence(entry: VipEntry) -> bool:
    return entry.kind is Kind.OWNED and not entry.unfenced


def _is_stale(entry: VipEntry, control: NodeControl) -> bool:
    return entry.kind is Kind.OWNED and entry.is_stale(control)


def _fence_left_ns(control: NodeControl, now_ns: int) -> int:
    return max(0, control.trusted_fence_ns(now_ns) - now_ns)


def _voucher_left_ns(control: NodeControl, grants: Grants, now_ns: int) -> int | None:
    return max(0, grants.trusted_fence_ns(now_ns) - now_ns) if grants.binds(control.term) else None


_CHOSEN = {
    OwnerKind.FOLLOW: "chosen by another announcer",
    OwnerKind.KEEPALIVED: "its keepalived is MASTER",
}


def _candidates(vip: Vip | None, node: str) -> tuple[Candidate, ...]:
    """Who might answer: an owner that is named leaves no choice."""
    if vip is None:
        return ()
    if vip.owner.kind is OwnerKind.EXTERNAL:
        return (Candidate(node, eligible=False, chosen=False, why="the owner is a host outside the cluster"),)
    if vip.elected:
        return (Candidate(node, eligible=False, chosen=False, why="an election needs Kubernetes"),)
    if not vip.owner.node:
        return ()
    how = _CHOSEN.get(vip.owner.kind, "named as the owner")
    named = Candidate(vip.owner.node, eligible=True, chosen=True, why=how)
    if vip.owner.node == node:
        return (named,)
    verb = "has the VIP through another announcer" if vip.owner.kind is OwnerKind.FOLLOW else "is named as the owner"
    return (named, Candidate(node, eligible=False, chosen=False, why=f"{vip.owner.node} {verb}"))


def _source_steps(address: Address, source: str, vip: Vip | None, cluster: InCluster | None) -> list[str]:
    if not source:
        return [f"only a running agent knows which object makes {address} a VIP"]
    origin = cluster.origin if cluster else Origin()
    if vip is not None:
        why = f": {origin.why}" if origin.why else ""
        return [f"{source} makes {address} a VIP with the owner {vip.owner}{why}", *origin.others]
    nothing = f"nothing in {source} makes {address} a VIP"
    if cluster is None:
        return [nothing]
    if not cluster.complete:
        return [f"{nothing}, and the agent is still reading from the API server", *origin.refusals]
    if not origin.refusals:
        return [f"{nothing}, and no Service has this address"]
    return [nothing, *origin.refusals]


def _owner_steps(address: Address, vip: Vip, cluster: InCluster, scene: Viewpoint) -> list[str]:
    """Which node owns the VIP in the cluster, where the source does not name it."""
    if vip.owner.kind is OwnerKind.FOLLOW:
        chosen = f"so {vip.owner.node} has it" if vip.owner.node else "so all nodes suppress answers for the VIP"
        known = cluster.origin.follows or "nothing is known about that announcer"
        return [f"the VIP follows another announcer ({known}), {chosen}"]
    if not vip.elected:
        return []
    steps = claim_steps(address, cluster.holder, cluster.candidates, scene.now_ns)
    if cluster.renewal_lost:
        steps.append(f"{scene.node} is this node, and cannot renew its lease: {cluster.renewal_lost}")
    if cluster.yielding:
        steps.append(f"another agent uses the node name {scene.node}, so this one is silent")
    return steps


def _link_steps(address: Address, vip: Vip | None, entry: VipEntry | None, scene: Viewpoint) -> list[str]:
    """Which link answers, where this node is the owner; who else on this node might; and whether the link is up."""
    steps = []
    if vip is not None and vip.owner.node == scene.node:
        home = home_link(address, scene.guarded, scene.surroundings.routes)
        steps.append(f"{scene.node} is this node" + (f"; {_home(address, home, scene)}" if home else ""))
    bound = [link.name for link in scene.surroundings.links if any(own.address == address for own in link.addresses)]
    if bound:
        steps.append(
            f"{address} is bound on {', '.join(bound)} of this node: {_unguarded(address, bound, entry, scene)}"
        )
    if not scene.link.up:
        steps.append(f"{scene.link.name} is down: no frame arrives or leaves there now")
    return steps


def _unguarded(address: Address, bound: list[str], entry: VipEntry | None, scene: Viewpoint) -> str:
    """What the kernel does by itself: for an IPv4 address of any link, for an IPv6 one of the same link only."""
    if address.version == 6 and scene.link.name not in bound:
        return f"the kernel answers for an IPv6 address only on the link that has it, so not on {scene.link.name}"
    silent = entry.kind is not Kind.DELEGATED if entry is not None else scene.is_closed
    return "without the guard the kernel would answer for it" if silent else "the kernel answers for it"


def _home(address: Address, home: Link, scene: Viewpoint) -> str:
    elsewhere = "" if home == scene.link else f", and not on {scene.link.name}"
    if home.reaches(address):
        return f"it answers on {home.name}{elsewhere}: the VIP is in the subnet of {home.name}"
    if len(scene.guarded) == 1:
        return f"it answers on {home.name}: no other link is guarded"
    return (
        f"it answers on {home.name}{elsewhere}: no link has the VIP's subnet, and the routes lead through {home.name}"
    )


def _entry_steps(entry: VipEntry | None, scene: Viewpoint) -> list[str]:
    if entry is None:
        return _range_steps(scene)
    mode = entry.mode or scene.control.mode
    whose = "the VIP's own" if entry.mode else "the node's"
    steps = [
        f"so the kernel's entry on {scene.link.name} is {entry.kind.name.lower()}: {KINDS[entry.kind]}",
        f"the mode is {mode.name.lower()} ({whose})",
    ]
    if _is_stale(entry, scene.control):
        steps.append(
            f"the entry is from epoch {entry.epoch}, but this node is in epoch {scene.control.epoch}, so it does "
            "not answer"
        )
    return steps


def _range_steps(scene: Viewpoint) -> list[str]:
    nothing = f"so the kernel has no entry for it on {scene.link.name}"
    if scene.around is None:
        return [f"{nothing}, and every frame about the address passes"]
    key, _ = scene.around
    if not scene.is_closed:
        return [f"{nothing}, and {key.network} is an exception in a closed range: every frame about the address passes"]
    silent = f"{nothing}, and {key.network} is closed there (unknown: suppress): this node is silent"
    return [silent, f"the mode is {scene.control.mode.name.lower()} (the node's)"]


_HELD = "hold is set, so the right to answer does not expire: while the API server is unreachable, two nodes can answer"


def _fence_step(left_ns: int | None, voucher_left_ns: int | None, *, elected: bool) -> str:
    if left_ns is None:
        return _HELD if elected else "the owner is fixed, so the right to answer does not expire (no fence)"
    if not left_ns:
        return "the fence has expired: this node does not answer until it renews its lease"
    if voucher_left_ns is None:
        return f"the fence expires in {left_ns / NS_PER_S:.3f} s, unless this node renews its lease"
    if not voucher_left_ns:
        return "the voucher's fence has expired: this node does not answer until its voucher hears from it again"
    left, voucher_left = f"{left_ns / NS_PER_S:.3f} s", f"{voucher_left_ns / NS_PER_S:.3f} s"
    return f"the fence expires in {left}, and the voucher's fence in {voucher_left}, unless they are renewed"
