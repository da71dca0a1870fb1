"""Which node a node seeks and names as its voucher, and when it has none.

| what happened                               | what follows                                                        |
| ------------------------------------------- | ------------------------------------------------------------------- |
| a node that it sought accepted it           | it is named                                                         |
| the voucher is in another instance or epoch | it is sought again                                                  |
| the voucher names this node, too            | one of the two leaves, if a third may vouch for it: when two that   |
|                                             | vouch for each other die together, no node may revoke them for long |
| the one that should leave has not in        | the other one leaves, if a third may vouch for it                   |
| TURN_NS: it shuns the third, say            |                                                                     |
| it un-bound, or was not accepted for long   | another one is sought, and this one not for SHUN_NS if there is any |
|                                             | and this one's agent has not restarted since                     |
| it un-bound MANY times in RECENT_NS         | none for a minute, ever longer                                      |
| it was revoked, and its kernel was bound    | none for ten minutes, ever longer: it lived, so that was a mistake  |
| MANY failed in a row, and others have one   | it is isolated until it is accepted, which is reported              |
| it un-bound, and its voucher pinged it, but | it is doubted, unless a ping of its own comes back within PROOF_NS, |
| did not hear it, while others are bound     | until one does, or a node accepts it: others are better owners      |

A voucher that does not hear is either deaf itself, or without a right to grant (V16), or this node's frames get lost. A
pong to a ping of this node shows that they do not. A doubted node is tested even while it may name no voucher.

Naming a voucher costs a write: nothing here asks for more than one in a few seconds.
"""

from collections import deque
from dataclasses import dataclass, replace

from arpguard.core.ownership.records import NamedVoucher
from arpguard.core.vouching.profiles import PROFILES, SLOW, Profile
from arpguard.core.vouching.trials import CLEAN_NS, quarantine
from arpguard.core.vouching.voucher import REPORT_NS
from arpguard.units import NS_PER_S

MANY = 3
RECENT_NS = SHUN_NS = 600 * NS_PER_S
UNACCEPTED_NS = 3 * CLEAN_NS
TURN_NS = 30 * NS_PER_S  # a node that can leave its voucher does so with its next renewal
PROOF_NS = 3 * REPORT_NS // 2  # a voucher's process reports what it hears once in REPORT_NS
UNBOUND_NS, LONGEST_UNBOUND_NS = 60 * NS_PER_S, 3600 * NS_PER_S
REVOKED_NS, LONGEST_REVOKED_NS = 600 * NS_PER_S, 86_400 * NS_PER_S


@dataclass(frozen=True, slots=True)
class VoucherChoice:
    """A node that may be this one's voucher, as its heartbeat is.

    `least_ns`: the d for which it accepts this one. `names`: its own voucher, "" if it has none; `bound`: to that.
    """

    node: str
    instance: str
    epoch: str
    least_ns: int | None = None
    names: str = ""
    bound: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The node until its agent starts again, which may be sound where the one before it was not."""
        return self.node, self.instance


@dataclass(frozen=True, slots=True)
class VoucherView:
    """What a decision depends on. `choices`: in order of preference (`ring`), empty if no node may be named.

    `node`: this one. `named`, `bound`: as the heartbeat and the kernel are. `unbinds`, `revocations`: how often that
    happened so far, and `unheard` of the last un-bind (`Naming`). `heard_ns`: when a ping of this node last came back.
    `others_bound`: some node besides has a voucher; `others_hear`: one on this segment, by another node than this.
    While the API server does not take this node's renewals, nothing is decided.
    """

    choices: tuple[VoucherChoice, ...]
    node: str = ""
    named: NamedVoucher | None = None
    bound: bool = False
    unbinds: int = 0
    unheard: bool = False
    revocations: int = 0
    heard_ns: int = 0
    others_bound: bool = False
    others_hear: bool = False


@dataclass(frozen=True, slots=True)
class VoucherPlan:
    """Which node to seek ("": none), and which to name. `next_ns`: when to ask again at the latest.

    `isolated`: no node on its segment hears this node, which is reported and moves no VIP. `doubted`: other nodes may
    not hear this one: any other node is a better owner.
    """

    seeks: str = ""
    names: NamedVoucher | None = None
    isolated: bool = False
    doubted: bool = False
    next_ns: int | None = None


class Seeking:
    """What a node remembers of its vouchers.

    `profile`: the fastest that this node may have, whatever others accept. `clean_ns`: of a trial; where that is
    shorter than it should be, so is every wait.
    """

    def __init__(self, profile: Profile, clean_ns: int = CLEAN_NS) -> None:
        self.profile = profile
        self._voucher = ("", "")  # the last that was named, as `VoucherChoice.key`
        self._unbinds = 0
        self._revocations = 0
        self._unbound_ns: deque[int] = deque(maxlen=MANY)
        self._shunned_ns: dict[tuple[str, str], int] = {}
        self._failed: set[str] = set()  # in a row
        self._turn_ns: int | None = None  # since when the voucher, which names this node, should leave
        self._unheard_ns: int | None = None  # when it un-bound unheard, and no node has shown to hear it since
        self._sought = ""
        self._sought_ns = 0
        self._shun_ns = SHUN_NS * clean_ns // CLEAN_NS  # after an un-bind, or a revocation
        self._unsteady = quarantine(UNBOUND_NS, LONGEST_UNBOUND_NS, clean_ns)
        self._mistaken = quarantine(REVOKED_NS, LONGEST_REVOKED_NS, clean_ns)

    def decide(self, view: VoucherView, now_ns: int) -> VoucherPlan:
        """Whom to seek or to name now."""
        self._note(view, now_ns)
        plan = replace(self._plan(view, now_ns), isolated=self._is_isolated(view), doubted=self._is_doubted(now_ns))
        if self._unheard_ns is None:
            return plan
        look_ns = now_ns + REPORT_NS if plan.doubted else self._unheard_ns + PROOF_NS
        return replace(plan, next_ns=look_ns if plan.next_ns is None else min(plan.next_ns, look_ns))

    def _plan(self, view: VoucherView, now_ns: int) -> VoucherPlan:
        pause_ns = max(self._unsteady.until_ns, self._mistaken.until_ns)
        pauses = now_ns < pause_ns
        if view.named is not None and self._stays(view.named, view, now_ns, pauses=pauses):
            return VoucherPlan(names=view.named)

        if pauses and self._unheard_ns is None:
            self._sought = ""
            return VoucherPlan(next_ns=pause_ns)
        return self._seek(view, now_ns, pause_ns)

    def _note(self, view: VoucherView, now_ns: int) -> None:
        """What has happened since the last time."""
        if view.unbinds > self._unbinds:
            self._fail(self._voucher, now_ns + self._shun_ns)
            self._unbound_ns.append(now_ns)
            if view.unheard and view.others_hear:
                self._unheard_ns = now_ns
            if len(self._unbound_ns) == MANY and now_ns - self._unbound_ns[0] <= RECENT_NS:
                self._unbound_ns.clear()
                self._unsteady.begin(now_ns)
        if view.revocations > self._revocations:
            self._fail(self._voucher, now_ns + self._shun_ns)
            self._mistaken.begin(now_ns)
        self._unbinds, self._revocations = view.unbinds, view.revocations

        if view.named is not None:
            self._voucher = (view.named.node, view.named.instance)
        if view.bound:
            self._prove()
        if self._unheard_ns is not None and view.heard_ns > self._unheard_ns:
            self._unheard_ns = None

    def _prove(self) -> None:
        """Another node hears this one."""
        self._failed.clear()
        self._unheard_ns = None

    def _fail(self, key: tuple[str, str], until_ns: int) -> None:
        self._failed.add(key[0])
        self._shunned_ns[key] = until_ns

    def _stays(self, named: NamedVoucher, view: VoucherView, now_ns: int, *, pauses: bool) -> bool:
        """Whether the voucher is as it was named, and not left; of one whose heartbeat is missing the grants tell."""
        is_same = all(
            (choice.instance, choice.epoch) == (named.instance, named.epoch)
            for choice in view.choices
            if choice.node == named.node
        )
        return bool(view.choices) and is_same and (pauses or not self._leaves(named, view, now_ns))

    def _seek(self, view: VoucherView, now_ns: int, pause_ns: int) -> VoucherPlan:
        self._turn_ns = None
        choice = self._choice(view, now_ns)
        if choice is None:
            return VoucherPlan()
        if choice.least_ns is None:
            return VoucherPlan(choice.node, next_ns=self._sought_ns + UNACCEPTED_NS)

        self._sought = ""
        self._prove()
        return (
            VoucherPlan(next_ns=pause_ns)
            if now_ns < pause_ns
            else VoucherPlan(names=self._named(choice, choice.least_ns))
        )

    def _leaves(self, named: NamedVoucher, view: VoucherView, now_ns: int) -> bool:
        """Whether the voucher names this node, too, and this one is to find another: if only one can, it does.

        Of two that can, the last by name. This node cannot know whom that one shuns, so it waits no longer than
        TURN_NS. One that is bound to a third node certainly hears others.
        """
        choices = {choice.node: choice for choice in view.choices}
        if named.node not in choices or choices[named.node].names != view.node:
            self._turn_ns = None
            return False
        sound = [choice for choice in view.choices if choice.node != named.node and choice.bound]
        may = any(each.names != view.node and now_ns >= self._shunned_ns.get(each.key, 0) for each in sound)
        other_may = any(each.names != named.node for each in sound)
        others_turn = other_may and view.node < named.node
        self._turn_ns = (self._turn_ns or now_ns) if others_turn else None
        return may and (self._turn_ns is None or now_ns >= self._turn_ns + TURN_NS)

    def _choice(self, view: VoucherView, now_ns: int) -> VoucherChoice | None:
        """Who is sought already, unless that has taken too long; else the first that did not fail lately.

        Of those the first that does not name this node.
        """
        found = {choice.node: choice for choice in view.choices}
        if self._sought in found and now_ns >= self._sought_ns + UNACCEPTED_NS:
            self._fail(found[self._sought].key, now_ns + SHUN_NS)  # unscaled: all others are sought before it again
            self._sought = ""
        if self._sought not in found:
            self._shunned_ns = {key: until_ns for key, until_ns in self._shunned_ns.items() if now_ns < until_ns}
            order = {node: (self._shunned_ns.get(each.key, 0), each.names == view.node) for node, each in found.items()}
            self._sought = min(found, key=lambda node: order[node], default="")
            self._sought_ns = now_ns
        return found.get(self._sought)

    def _named(self, choice: VoucherChoice, least_ns: int) -> NamedVoucher:
        """The first profile that is slow enough for both."""
        d_ns = max(least_ns, self.profile.d_ns)
        profile = next((each for each in PROFILES if each.d_ns >= d_ns), SLOW)
        return NamedVoucher(choice.node, choice.instance, choice.epoch, "", profile.d_ns, profile.m_ns)

    def _is_isolated(self, view: VoucherView) -> bool:
        """Whether this node alone is not heard: it reaches the API server, and other nodes hear each other."""
        needed = min(MANY, max(2, len(view.choices)))
        return len(self._failed) >= needed and view.others_bound

    def _is_doubted(self, now_ns: int) -> bool:
        """Whether others may not hear this node: one did not, and nothing shows that any does."""
        return self._unheard_ns is not None and now_ns >= self._unheard_ns + PROOF_NS
