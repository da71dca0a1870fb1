"""This node's voucher: which node its heartbeat names, and what its kernel knows of that (V1, V2, V8 to V11, V15).

The kernel gets a term only after an accepted write, or a read, has shown that the heartbeat names it, and loses it only
after one has shown that the heartbeat names another or none. In between the kernel takes grants. So only the agent that
asked for a write to the heartbeat has to know its outcome.
"""

from collections.abc import Callable
from dataclasses import replace

from arpguard.core.ownership.records import (
    NO_TERM,
    ClearTerm,
    Effect,
    Heartbeat,
    KernelTerm,
    NamedVoucher,
    ReadTerm,
    SetTerm,
)
from arpguard.units import NS_PER_MS, NS_PER_S

# How much of the voucher's fence has to be left when the node un-binds: a request to the API server takes less, and so
# does a grant that is late.
SPARE_NS = 120 * NS_PER_MS
UNBOUND_NS = 10 * NS_PER_S  # a voucher that grants nothing for so long is of no use
# Un-bound so soon after the voucher's fence, the node found the API server in reach when the grants stopped. Otherwise
# the voucher may have been without a right of its own (V16).
PROMPT_NS = 500 * NS_PER_MS
LOOK_NS = 100 * NS_PER_MS


class Naming:
    """`named`: by the heartbeat, as the last accepted write or read showed. `kernel`: as of the last look.

    `adopts`: until the agent says which node to name, the voucher that the previous agent named stays; else none.
    `unbinds`: how often the node un-bound; `revocations`: how often an epoch ended in which the kernel was bound.
    `unheard`: when it un-bound last, pings came but no grants, and the API server answered: others may not hear this
    node. `is_behind`: the voucher grants, but does not renew, so it could not revoke this node (V19).
    """

    def __init__(self, node: str, new_term: Callable[[], str], kept: KernelTerm, *, adopts: bool) -> None:
        self.named: NamedVoucher | None = None
        self.kernel = kept
        self.unbinds = 0
        self.revocations = 0
        self.unheard = False
        self.is_behind = False

        self._node = node
        self._new_term = new_term

        self._wished: NamedVoucher | None = None  # without a term
        self._adopts = adopts
        self._lapsing = False
        self._lapsed_unheard = False  # when that began
        self._sent: NamedVoucher | None = None
        self._says_bound = False  # the heartbeat, or the renewal under way

        self._since_ns: int | None = None  # when the kernel got its term, or was first looked at
        self._look_ns = 0
        self._looking = False

    # ---- whom to name ----

    def wish(self, voucher: NamedVoucher | None) -> None:
        """Whom to name from the next renewal on; the term in it does not matter."""
        self._wished = _identity(voucher)
        self._adopts = False

    def _next(self, may_begin: bool) -> NamedVoucher | None:  # noqa: FBT001 - of no other kind
        """Whom the next renewal names; without a term if that is to be a new one."""
        if self._wished is None or _identity(self.named) != self._wished:
            return self._wished if may_begin else None
        return None if self._lapsing or self.is_behind else self.named

    def is_stale(self, may_begin: bool) -> bool:  # noqa: FBT001
        """Whether the heartbeat names a voucher that it should not, or is wrong about the kernel."""
        following = self._next(may_begin)
        return following != self.named or self._is_bound(self.named) != self._says_bound

    def publish(self, may_begin: bool) -> tuple[NamedVoucher | None, bool]:  # noqa: FBT001
        """A renewal is about to be sent: whom it names, and whether it says "bound". No term is sent twice (V1).

        `may_begin`: whether it may name one that the heartbeat did not name before.
        """
        voucher = self._next(may_begin)
        if voucher is not None and not voucher.term:
            voucher = replace(voucher, term=self._new_term())
        self._sent, self._says_bound = voucher, self._is_bound(voucher)
        return voucher, self._says_bound

    def _is_bound(self, voucher: NamedVoucher | None) -> bool:
        return voucher is not None and self.kernel.bound and self.kernel.number == voucher.number

    # ---- what is known of it, and told to the kernel ----

    def applied(self, epoch: str, now_ns: int) -> list[Effect]:
        """The renewal was applied."""
        return self._show(self._sent, epoch, now_ns)

    def read(self, found: Heartbeat, now_ns: int) -> list[Effect]:
        """A read shows the heartbeat in this node's epoch."""
        if self._adopts:
            self.wish(found.voucher)
        self._says_bound = found.bound
        return self._show(found.voucher, found.epoch, now_ns)

    def _show(self, voucher: NamedVoucher | None, epoch: str, now_ns: int) -> list[Effect]:
        if voucher != self.named and (self._lapsing or self.is_behind):
            self.unbinds += 1
            self.unheard = self._lapsing and self._lapsed_unheard and now_ns <= self.kernel.fence_ns + PROMPT_NS
            self._lapsing = self.is_behind = False
            self._wished = None if _identity(self.named) == self._wished else self._wished
        self.named = voucher

        if voucher is not None and _identity(voucher) != self._wished:
            return []  # the next renewal takes that back
        number = voucher.number if voucher else 0
        if number == self.kernel.number:
            return []
        self.kernel = KernelTerm(number)
        self._since_ns = self._look_ns = now_ns
        return [SetTerm(voucher.to(self._node, epoch)) if voucher else ClearTerm()]

    def begin_anew(self) -> list[Effect]:
        """An epoch begins, and the kernel knows it (V9): nobody vouches in it yet."""
        self.revocations += self.kernel.bound
        number, self.kernel = self.kernel.number, NO_TERM
        self.named, self._lapsing, self.is_behind = None, False, False
        self.wish(None)
        return [ClearTerm()] if number else []

    # ---- looking at the kernel ----

    def is_fence_ahead(self, now_ns: int) -> bool:
        """Whether the voucher's fence has not passed, or this node is not bound. It is looked at before it passes."""
        return not self.kernel.bound or now_ns < self.kernel.fence_ns

    @property
    def next_ns(self) -> int | None:
        """When to look at the kernel next; None: it has no term, or is being looked at."""
        return self._look_ns if self.kernel.number and not self._looking else None

    def tick(self, now_ns: int) -> list[Effect]:
        """A look at the kernel, if one is due."""
        if self.next_ns is None or now_ns < self._look_ns:
            return []
        self._looking = True
        return [ReadTerm()]

    def looked(self, seen: KernelTerm, now_ns: int) -> None:
        """What the kernel has: without enough left of the voucher's fence, or without a grant for long, un-binds (V8).

        A voucher that grants again before the renewal is sent is kept.
        """
        self._looking = False
        if not self.kernel.number:
            return
        if seen.number != self.kernel.number:
            seen = KernelTerm(self.kernel.number)  # it was looked at before it had this term
        self.kernel = seen
        self._since_ns = now_ns if self._since_ns is None else self._since_ns

        due_ns = seen.fence_ns - SPARE_NS if seen.bound else self._since_ns + UNBOUND_NS
        lapses = now_ns >= due_ns
        if lapses and not self._lapsing:  # a node that stood still looks after the fence, and finds late pings
            self._lapsed_unheard = seen.unheard and now_ns < seen.fence_ns
        self._lapsing = lapses
        self._look_ns = due_ns if seen.bound and not self._lapsing else now_ns + LOOK_NS


def _identity(voucher: NamedVoucher | None) -> NamedVoucher | None:
    return replace(voucher, term="") if voucher else None
