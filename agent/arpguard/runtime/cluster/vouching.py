"""Vouching on this node: which voucher its heartbeat names, which it seeks, and what it tells the others about that.

`core/vouching/seeking` decides which node to seek, and `core/ownership` what the heartbeat names. What this node does
for others is in `granting`.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from arpguard.addresses import Network
from arpguard.clock import boot_ns
from arpguard.config.model import VouchingConfig
from arpguard.core.bounding import some
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.records import Heartbeat, NamedVoucher, PublishedVouching
from arpguard.core.vouching.hearing import LinkHearing
from arpguard.core.vouching.ring import vouchers_for
from arpguard.core.vouching.seeking import Seeking, VoucherChoice, VoucherPlan, VoucherView
from arpguard.core.vouching.state import VouchedNode, VouchingState
from arpguard.core.vouching.trials import clean_ns, trial_term
from arpguard.dataplane.device import frames_heard
from arpguard.runtime.cluster.granting import Granting, meeting_point
from arpguard.runtime.cluster.here import Here
from arpguard.runtime.cluster.leases import Leases
from arpguard.runtime.cluster.publishing import LinkPublisher
from arpguard.runtime.cluster.terms import Terms
from arpguard.units import NS_PER_S
from arpguard.verdict import Mode

UNHEARD_NS = 10 * NS_PER_S  # a first pong takes a hundredth of it


class Vouching:
    """`look` is called in each decision."""

    def __init__(
        self, here: Here, ownership: Ownership, leases: Leases, links: LinkPublisher, terms: Terms, granting: Granting
    ) -> None:
        self._here = here
        self._ownership = ownership
        self._leases = leases
        self._links = links
        self._terms = terms
        self._granting = granting
        self._seeking: Seeking | None = None  # None: this node takes no part yet
        self._hearing = LinkHearing(frames_heard)
        self._met_on = ""  # the link over which the voucher is met
        self._reading: asyncio.Task[None] | None = None
        self._ending = False
        self._plan = VoucherPlan()
        self._expected = False
        self._since: tuple[str, int] = "", 0  # the term that the heartbeat names, and since when

    def close(self) -> None:
        """Ends the voucher's process."""
        if self._reading is not None:
            self._reading.cancel()
        self._granting.close()

    # ---- in a decision ----

    def look(self, now_ns: int, *, takes_part: bool) -> int | None:
        """Does what is to be done now; returns when to look again."""
        config = self._terms.config
        if config is None:
            self._name_nobody(now_ns)
            return None
        own = self._ownership.heartbeat
        is_able = takes_part and not (own.lease.parting or self._ending)
        others = self._others(now_ns) if is_able else {}
        may = is_able and self._enforces
        choices = self._choices(others) if may else ()
        self._expected = self._is_missed(config, choices, now_ns, may=may)

        if not self._terms.ready:
            self._ask_for_secret(config.secret, now_ns, may=may)
            return None

        listening_ns = self._listen(others, now_ns)
        if own.holds:  # without an answer of the API server all stays as it is
            self._seek(others, choices, now_ns, may=may)

        moments = (self._plan.next_ns, listening_ns, self._granting.look(others, now_ns))
        self._publish(now_ns, takes_part=is_able)
        return min((moment for moment in moments if moment is not None), default=None)

    def _others(self, now_ns: int) -> dict[str, Heartbeat]:
        """The nodes that are alive and take part, too."""
        peers = self._ownership.peers
        return {each.node: each for each in peers.heartbeats if each.vouching and peers.alive(each.node, now_ns)}

    def _ask_for_secret(self, name: str, now_ns: int, *, may: bool) -> None:
        """Once it is of use: another node is on a segment of this one, or the kernel has a term from before."""
        if self._reading is None and (self._ownership.heartbeat.naming.kernel.number or (may and self._meets(now_ns))):
            self._reading = asyncio.create_task(self._learn_secret(name))

    def _is_missed(self, config: VouchingConfig, choices: tuple[VoucherChoice, ...], now_ns: int, *, may: bool) -> bool:
        """Whether a node could be the voucher; where vouching is asked for, also if only the Secret is missing."""
        return bool(choices) or (may and config.asked and self._meets(now_ns))

    def _meets(self, now_ns: int) -> bool:
        peers = self._ownership.peers
        return bool(self._ring({each.node: each for each in peers.heartbeats if peers.alive(each.node, now_ns)}))

    def _listen(self, others: Mapping[str, Heartbeat], now_ns: int) -> int | None:
        """Finds out whether anything comes in over the link to the voucher; returns when to look again."""
        naming = self._ownership.heartbeat.naming
        if naming.named is not None:
            found = meeting_point(self._here.kernel.state.links, self._ownership.peers.links(naming.named.node))
            self._met_on = found[0].name if found else ""

        others_bound = any(self._is_bound_elsewhere(other) for other in others.values())
        next_ns = self._hearing.look(naming.unbinds, self._met_on, others_bound=others_bound, now_ns=now_ns)
        if self._links.deaf != self._hearing.deaf:
            self._links.deaf = self._hearing.deaf
            self._leases.wake()
        return next_ns

    async def _learn_secret(self, name: str) -> None:
        await self._terms.learn_secret(name)
        self._leases.wake()

    # ---- as the node that is vouched for ----

    @property
    def _enforces(self) -> bool:
        control = self._here.kernel.state.control
        return control is not None and control.mode is Mode.ENFORCE

    def _name_nobody(self, now_ns: int) -> None:
        self._plan = VoucherPlan()
        if self._ownership.heartbeat.naming.named is not None:
            self._leases.do(self._ownership.heartbeat.name(None, now_ns))
        self._terms.try_out(None)

    def _seek(
        self, others: Mapping[str, Heartbeat], choices: tuple[VoucherChoice, ...], now_ns: int, *, may: bool
    ) -> None:
        """Names a voucher, or has one try this node."""
        if not may:  # V13, among others
            self._name_nobody(now_ns)
            return

        self._seeking = self._seeking or Seeking(self._terms.profile, clean_ns(os.environ))
        plan = self._plan = self._seeking.decide(self._view(others, choices), now_ns)
        self._leases.do(self._ownership.heartbeat.name(plan.names, now_ns))

        own, sought = self._ownership.heartbeat, others.get(plan.seeks)
        trial = sought and (self._here.node, own.epoch, sought.node, sought.instance, sought.epoch)
        self._terms.try_out(trial_term(*trial) if trial else None)

    def _view(self, others: Mapping[str, Heartbeat], choices: tuple[VoucherChoice, ...]) -> VoucherView:
        naming = self._ownership.heartbeat.naming
        return VoucherView(
            choices=() if self._is_left(naming.named) else choices,
            node=self._here.node,
            named=naming.named,
            bound=naming.kernel.bound,
            unbinds=naming.unbinds,
            unheard=naming.unheard,
            revocations=naming.revocations,
            heard_ns=self._granting.heard_ns,
            others_bound=any(other.bound for other in others.values()),
            others_hear=any(self._is_bound_elsewhere(others[choice.node]) for choice in choices),
        )

    def _is_bound_elsewhere(self, other: Heartbeat) -> bool:
        """Whether a node is bound to another one than this."""
        return other.bound and other.voucher is not None and other.voucher.node != self._here.node

    def _is_left(self, named: NamedVoucher | None) -> bool:
        """Whether the voucher takes no part any more: its agent ends, and says so before it does (V11)."""
        found = self._ownership.peers.known(named.node) if named else None
        return found is not None and found.instance != "" and found.vouching is None

    def _choices(self, others: Mapping[str, Heartbeat]) -> tuple[VoucherChoice, ...]:
        return tuple(self._choice(others[name]) for name in self._ring(others))

    def _ring(self, others: Mapping[str, Heartbeat]) -> Sequence[str]:
        """Those of them that are on a segment of this node, in the order in which it seeks them."""
        own = frozenset(network for link in self._here.kernel.state.links if link.up for network in link.subnets)
        return vouchers_for(self._here.node, own, {name: _networks(each) for name, each in others.items()})

    def _choice(self, other: Heartbeat) -> VoucherChoice:
        accepts = dict(other.vouching.accepts) if other.vouching else {}
        names, least_ns = other.voucher.node if other.voucher else "", accepts.get(self._here.node)
        return VoucherChoice(other.node, other.instance, other.epoch, least_ns, names, other.bound)

    def _publish(self, now_ns: int, *, takes_part: bool) -> None:
        """Tells the others which nodes it seeks and accepts, with the next renewal (`LinkPublisher.tells_ns`)."""
        verdict = self._granting.judge(now_ns)
        plan = self._plan
        published = PublishedVouching(plan.seeks, verdict.accepts, doubted=plan.doubted)
        self._links.vouching = published if takes_part else None

    # ---- for those who read ----

    @property
    def doubted(self) -> set[str]:
        """The nodes that others may not hear: any other node is a better owner."""
        others = (each.node for each in self._ownership.peers.heartbeats if each.vouching and each.vouching.doubted)
        return {*others, self._here.node} if self._plan.doubted else set(others)

    def state(self) -> VouchingState | None:
        """The state of vouching on this node; None while it is off."""
        if self._terms.config is None:
            return None
        naming, granting = self._ownership.heartbeat.naming, self._granting
        named, vouched = naming.named, granting.vouched()
        return VouchingState(
            voucher=named.node if named else "",
            d_ns=named.d_ns if named else 0,
            since_ns=self._since_ns(named),
            bound=naming.kernel.bound,
            expected=self._expected,
            seeks=self._plan.seeks,
            isolated=self._plan.isolated,
            vouched=vouched,
            priority=granting.priority.value if granting.priority else "",
            unbinds=naming.unbinds,
            revocations=naming.revocations,
            decided=granting.decided,
            gaps=sum((each.gaps for each in vouched if not each.trial), granting.gaps),
            problems=tuple(self._problems(self._terms.config, vouched)),
            lacks_right=self._terms.lacks_right,
        )

    def _since_ns(self, named: NamedVoucher | None) -> int | None:
        term = named.term if named else ""
        if term != self._since[0]:
            self._since = term, boot_ns()
        return self._since[1] if term else None

    def _problems(self, config: VouchingConfig, vouched: Iterable[VouchedNode]) -> Iterator[str]:
        if self._terms.problem:
            yield f"vouching: cannot read the Secret, so no node can vouch for this one: {self._terms.problem}"
        if self._hearing.deaf:
            yield (
                f"vouching: nothing arrives over {self._hearing.deaf}, while other nodes hear each other, so this "
                "node hands over its VIPs: check the link and the switch"
            )
        if self._plan.doubted:
            yield (
                "vouching: other nodes do not hear this node's frames, although it hears theirs; handing over this "
                "node's VIPs until a node hears it again; check the link and the switch"
            )
        elif self._plan.isolated:
            yield (
                "vouching: no other node on the segment hears this one, although it reaches the API server: check its "
                "link and the switch"
            )

        unheard = [each.node for each in vouched if _is_unheard(each, boot_ns())]
        if unheard:
            yield (
                f"vouching: no ping comes back from {some(unheard)}: check whether anything on the path "
                f"drops EtherType 0x{config.ethertype:04X}"
            )

    # ---- the end ----

    async def leave(self) -> None:
        """Takes no part any more."""
        self._ending = True
        await self._granting.leave()


def _is_unheard(tried: VouchedNode, now_ns: int) -> bool:
    return tried.trial and not tried.pongs and tried.pings > 0 and now_ns >= tried.since_ns + UNHEARD_NS


def _networks(heartbeat: Heartbeat) -> frozenset[Network]:
    return frozenset(network for link in heartbeat.links for network in link.networks)
