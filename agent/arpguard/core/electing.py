"""Which elected VIPs this node wants: a function of what it sees, and of how long it has seen that.

| a VIP                              | is wanted by                                                              |
| ---------------------------------- | ------------------------------------------------------------------------- |
| held by a node that may own it     | that node                                                                 |
| held apart from its lead           | its holder no longer: the node that holds the lead takes it               |
| held, its first choice has 2 fewer | its holder no longer, once all is quiet: its first choice takes it        |
| held by a node that may not own it | the first choice, which waits until it is released                        |
| free, or its holder is silent      | the first choice at once, choice k after (k - 1) x BACKUP_NS              |
| free, and never held before        | the same, but not before this node has looked around for `settle_ns`      |
| undecided                          | its holder                                                                |

Elections are about groups (`core/groups`); nearly every VIP is a group by itself. Each group has one seat, which knows
the nodes that may own all of it, and which of them is preferred. The lead is elected as if it were alone, so there are
no cycles. For the other VIPs of a group the first choice is the node that holds the lead or, while none does, the
lead's first choice; a node that holds one of them without the lead gives it up to that node at once. VIPs that no node
may own together get seats of their own.

It does no harm if two nodes want the same VIP: claims are taken by compare-and-swap. Nodes need not agree beforehand.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from arpguard.addresses import Address
from arpguard.core.balancing import to_move
from arpguard.core.groups import Group, groups
from arpguard.core.members import Member, Pool, Pools, Preference
from arpguard.core.moving import NOBODYS, Moves, as_choice, to_balance, to_lead
from arpguard.core.rendezvous import fingerprint
from arpguard.model import Vip
from arpguard.units import NS_PER_S

BACKUP_NS = 2 * NS_PER_S
SETTLE_NS = 3 * NS_PER_S // 2
STEADY_NS = 60 * NS_PER_S
BATCH_NS = 10 * NS_PER_S
GIVE_UP_NS = 5 * NS_PER_S  # a VIP that this node could not release for so long, it keeps
SHUN_NS, LONGEST_SHUN_NS = 30 * NS_PER_S, 600 * NS_PER_S  # a node that did not take a VIP may just have been busy
LOOKED_AT_ONCE = 200  # seats, in a step
FOLLOW_AT_ONCE = 50  # at most so many VIPs that this node gave up to their lead's holder, and that no node has yet
_EMPTY = Pool(())


@dataclass(frozen=True, slots=True)
class Wishes:
    """What this node wants; `nobody`: VIPs that no node may own. `next_ns`: when to ask again if nothing changes.

    `apart`: VIPs that nodes may own, but no node together with their leads. `why`: in words, why this node wants a VIP
    that it does not have, or no longer wants one that it has.
    """

    wanted: frozenset[Address] = frozenset()
    nobody: frozenset[Address] = frozenset()
    apart: frozenset[Address] = frozenset()
    next_ns: int | None = None
    why: Mapping[Address, str] = field(default_factory=dict, compare=False)


@dataclass(slots=True)
class _Past:
    """What this node has seen of one VIP.

    `since_ns`: since when `first` is its first choice; `free_ns`: since when no node has it. `giving_to`: the node that
    this one gives it up to; until `giving_ns` this node does not want it. `holder`: the node that had it last.
    """

    address: Address
    first: str = ""
    since_ns: int = 0
    free_ns: int | None = None
    giving_to: str = ""
    giving_ns: int = 0
    holder: str = ""

    def choose(self, first: str, now_ns: int) -> None:
        """Notes its first choice, and since when it is that."""
        if first != self.first:
            self.first, self.since_ns = first, now_ns


@dataclass(slots=True)
class _Seat:
    """A group of VIPs, the nodes that may own all of it, and how many of those are preferred to this one (`ahead`).

    `number`: the lead's fingerprint, which orders the nodes. `is_apart`: some node may own it, and some node may own
    the lead that it should go with, but none may own both.
    """

    lead: _Past
    number: int
    others: tuple[_Past, ...] = ()
    pool: Pool = _EMPTY
    ahead: int = 0
    is_apart: bool = False

    def place(self, past: _Past, me: str) -> int:
        """Which choice this node is for one of its VIPs, from 0 on, if it is in the pool."""
        if me == past.first:
            return 0
        return self.ahead + (past.first != self.lead.first and self.pool.prefers(self.number, me, past.first))

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Its VIPs."""
        return tuple(past.address for past in (self.lead, *self.others))


class Election:
    """What this node remembers. Times are CLOCK_BOOTTIME; `started_ns`: when this node knew the others' heartbeats."""

    def __init__(self, me: str, started_ns: int, settle_ns: int = SETTLE_NS) -> None:
        self._me = me
        self._number = fingerprint(me)
        self._settled_ns = started_ns + settle_ns
        self._vips: Mapping[Address, Vip] = {}
        self._groups: dict[Address, Group] = {}
        self._seats: dict[Address, _Seat] = {}
        self._pasts: dict[Address, _Past] = {}
        self._members: tuple[Member, ...] = ()
        self._pools = Pools(())
        self._steady_ns = started_ns
        self._balance_ns = started_ns
        self._shunned: dict[str, int] = {}  # until when nodes get nothing that this one gives up
        self._shuns: dict[str, int] = {}  # for how long they got nothing the last time
        self.wishes = Wishes()  # the result of the last look

    def look(
        self, holders: Mapping[Address, str], now_ns: int, undecided: AbstractSet[Address] = frozenset()
    ) -> Iterator[None]:
        """Looks at all seats, in steps; then `wishes` is what this node wants.

        `holders`: the live node with a valid claim to each VIP; "" if the claim is released or void, or its holder is
        not alive. A VIP that is missing was never held.
        """
        moves = Moves(self._vips, self._members, self._pools)
        look = _Look(self._me, now_ns, self._settled_ns, undecided, moves)
        if self._members and all(member.alive for member in self._members if member.ready and not member.excluded):
            look.settled_ns = now_ns
        for number, (address, seat) in enumerate(self._seats.items()):
            if number % LOOKED_AT_ONCE == 0:
                yield
            holder = holders.get(address)
            look.at(seat.lead, seat, holder)
            if seat.others:
                look.at_others(seat, holder or "", holders)
        self._shun(look)

        given_up = self._give_after(look, holders) if look.strays else frozenset()
        if look.is_calm and look.misplaced:
            given_up |= self._give_up(look)
        self.wishes = look.wishes(given_up)

    def _shun(self, look: "_Look") -> None:
        """Gives nothing for a while to nodes that did not take a VIP, each time for longer, until they take one."""
        for node in look.willing:
            self._shuns.pop(node, None)
        for node in look.unwilling:
            shun_ns = min(2 * self._shuns.get(node, SHUN_NS // 2), LONGEST_SHUN_NS)
            self._shuns[node], self._shunned[node] = shun_ns, look.now_ns + shun_ns

    def sit_down(self, vips: Mapping[Address, Vip], members: tuple[Member, ...], now_ns: int) -> Iterator[None]:
        """Brings the seats up to date with VIPs and members, in steps; the caller must go through all of them.

        `vips` does not change from one call to the next: it is the same object, or another one.
        """
        seated: Mapping[Address, Group] | None = self._groups
        if vips is not self._vips:
            self._vips, self._groups = vips, groups(vips)
            yield
        if members != self._members:
            self._members, pools = members, Pools(members)
            if pools != self._pools:
                self._pools, self._steady_ns, seated = pools, now_ns, None
                yield
        if seated is self._groups:
            return

        for lead, group in self._groups.items():
            if seated is None or seated.get(lead) != group:
                self._seat(group, now_ns)
                yield
        self._forget_what_is_gone()

    def _seat(self, group: Group, now_ns: int) -> None:
        """Seats a group or, if no node may own all of it, the groups that it falls into."""
        parts = self._pools.divided(group)
        for vips, pool in parts:
            seat = self._take_seat(vips, pool, now_ns)
            seat.is_apart = vips is not parts[0][0] and bool(pool and parts[0][1])

        if len(group) > 1:
            for vip in parts[0][0][1:]:
                self._seats.pop(vip.address, None)

    def _take_seat(self, vips: Group, pool: Pool, now_ns: int) -> _Seat:
        address = vips[0].address
        seat = self._seats.get(address)
        if seat is None:
            seat = self._seats[address] = _Seat(self._past(address, now_ns), fingerprint(str(address)))
        seat.others = tuple(self._past(vip.address, now_ns) for vip in vips[1:]) if len(vips) > 1 else ()

        known = Preference(seat.lead.first, seat.ahead)
        first, seat.ahead = pool.preference_after(seat.pool, known, seat.number, self._number)
        seat.pool = pool
        seat.lead.choose(first, now_ns)
        return seat

    def _past(self, address: Address, now_ns: int) -> _Past:
        past = self._pasts.get(address)
        if past is None:
            past = self._pasts[address] = _Past(address, since_ns=now_ns)
        return past

    def _forget_what_is_gone(self) -> None:
        if len(self._pasts) != sum(map(len, self._groups.values())):
            elected = {vip.address for group in self._groups.values() for vip in group}
            self._pasts = {address: past for address, past in self._pasts.items() if address in elected}
            self._seats = {address: seat for address, seat in self._seats.items() if address in elected}

    def _give_after(self, look: "_Look", holders: Mapping[Address, str]) -> frozenset[Address]:
        """VIPs to give to their leads' holders. A node that did not take one lately gets none for a while."""
        room = FOLLOW_AT_ONCE - sum(1 for past in self._pasts.values() if past.giving_to)
        given_up: list[Address] = []
        for lead, past in look.strays:
            if lead in look.undecided or holders.get(lead) != past.first:
                continue
            if self._shunned.get(past.first, 0) > look.now_ns:
                look.times.append(self._shunned[past.first])
                continue

            look.is_calm = False
            if holders.get(past.address) == self._me and not past.giving_to and len(given_up) < room:
                look.give(past, to_lead(past.first, lead))
                given_up.append(past.address)
        return frozenset(given_up)

    def _give_up(self, look: "_Look") -> frozenset[Address]:
        """A batch of VIPs to give to their first choices, once the cluster has been quiet for long enough.

        A node that did not take what was given up last time is alive, but cannot: it gets nothing for a while.
        """
        due_ns = max(self._balance_ns, self._steady_ns + STEADY_NS)
        if look.now_ns < due_ns:
            look.times.append(due_ns)
            return frozenset()
        self._balance_ns = look.now_ns + BATCH_NS
        look.times.append(self._balance_ns)
        steady_ns = look.now_ns - STEADY_NS
        given_up = frozenset(to_move(look.placed, self._me, lambda address: self._is_ripe(address, steady_ns)))
        for address in given_up:
            look.give(self._pasts[address], to_balance(self._pasts[address].first))
        return given_up

    def _is_ripe(self, address: Address, steady_ns: int) -> bool:
        past = self._pasts[address]
        return past.since_ns <= steady_ns and self._shunned.get(past.first, 0) <= steady_ns + STEADY_NS


@dataclass(slots=True)
class _Look:
    """One look at all seats, and its results.

    `placed`: each lead that a node has, with its holder and its first choice. `strays`: VIPs that are held apart from
    their leads; those move first.
    """

    me: str
    now_ns: int
    settled_ns: int
    undecided: AbstractSet[Address]
    moves: Moves
    wanted: list[Address] = field(default_factory=list)
    nobody: list[Address] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    placed: list[tuple[Address, str, str]] = field(default_factory=list)
    unwilling: set[str] = field(default_factory=set)
    willing: set[str] = field(default_factory=set)
    strays: list[tuple[Address, _Past]] = field(default_factory=list)
    apart: list[Address] = field(default_factory=list)
    why: dict[Address, str] = field(default_factory=dict)
    is_calm: bool = True
    misplaced: bool = False

    def at_others(self, seat: _Seat, lead_holder: str, holders: Mapping[Address, str]) -> None:
        """Looks at the VIPs of a group that follow its lead."""
        first = lead_holder if lead_holder in seat.pool else seat.lead.first
        for past in seat.others:
            past.choose(first, self.now_ns)
            self.at(past, seat, holders.get(past.address))

    def at(self, past: _Past, seat: _Seat, holder: str | None) -> None:
        """Looks at one VIP. `holder` None: it was never held; empty: it is free."""
        if seat.is_apart:
            self.apart.append(past.address)
        if not past.first:
            self.nobody.append(past.address)
            if holder == self.me:
                self.why[past.address] = self.moves.refusal(self.me, past.address, seat.addresses)
        elif holder:
            self._held(past, seat, holder)
        elif not self.undecided or past.address not in self.undecided:  # hashing an address costs as much as all else
            self._free(past, seat, never_held=holder is None)

    def _held(self, past: _Past, seat: _Seat, holder: str) -> None:
        past.free_ns, past.holder = None, holder
        first = self._drawn_to(past, seat, holder)
        if past is seat.lead:
            self.placed.append((past.address, holder, first))  # the rest of its group moves with it
        if past.giving_to:
            self._given(past, seat, holder)
        if holder != self.me or past.giving_to:
            return

        if holder == first or holder in seat.pool:
            self.wanted.append(past.address)
        else:
            self.why[past.address] = self.moves.refusal(holder, past.address, seat.addresses)

    def _drawn_to(self, past: _Past, seat: _Seat, holder: str) -> str:
        """The first choice of a VIP that somebody has; this node keeps it, gives it up, or waits for it."""
        if holder == past.first:
            return holder
        if holder not in seat.pool:
            self.is_calm = False
            if past.first == self.me and past.address not in self.undecided:
                self.wanted.append(past.address)  # so that this node takes it as soon as it is released
                self.why[past.address] = self.moves.refused(holder, past.address, seat.addresses)
        elif past.address in self.undecided:
            return holder
        elif past is seat.lead:
            self.misplaced = True
        else:
            self.strays.append((seat.lead.address, past))
        return past.first

    def give(self, past: _Past, why: str) -> None:
        """Makes this node give a VIP up to its first choice."""
        self.why[past.address] = why
        past.giving_to, past.giving_ns = past.first, self.now_ns + GIVE_UP_NS
        self.times.append(past.giving_ns)

    def _given(self, past: _Past, seat: _Seat, holder: str) -> None:
        """Notes that another node has a VIP that this one was giving up."""
        if holder == self.me and past.giving_ns > self.now_ns:
            self.times.append(past.giving_ns)
            return
        has_moved_on = past is not seat.lead and past.first != past.giving_to
        if holder == past.giving_to:
            self.willing.add(holder)
        elif not has_moved_on:
            self.unwilling.add(past.giving_to)
        past.giving_to, past.giving_ns = "", 0

    def _free(self, past: _Past, seat: _Seat, *, never_held: bool) -> None:
        """Looks at a free VIP. One that nobody takes for long, since a host outside has it, say, counts as quiet."""
        past.giving_ns = 0
        if past.free_ns is None:
            past.free_ns = self.now_ns
        if self.now_ns - past.free_ns < STEADY_NS:
            self.is_calm = False
        if self.me not in seat.pool:
            return

        place = seat.place(past, self.me)
        due_ns = max(past.free_ns, past.since_ns) + BACKUP_NS * place
        if never_held:
            due_ns = max(due_ns, self.settled_ns)
        if due_ns <= self.now_ns:
            self.wanted.append(past.address)
            self.why[past.address] = f"{self._lost(past, seat)}; {self._chosen(past, seat, place)}"
        else:
            self.times.append(due_ns)

    def _lost(self, past: _Past, seat: _Seat) -> str:
        """Why no node has a VIP."""
        if not past.holder:
            return NOBODYS
        if past.holder in seat.pool:
            return f"{past.holder} no longer has it"
        return self.moves.refused(past.holder, past.address, seat.addresses)

    def _chosen(self, past: _Past, seat: _Seat, place: int) -> str:
        """Why this node takes a free VIP, and no other."""
        return as_choice(place, past.first, None if past is seat.lead else seat.lead.address)

    def wishes(self, given_up: AbstractSet[Address]) -> Wishes:
        """The result of the look."""
        return Wishes(
            wanted=frozenset(self.wanted) - given_up,
            nobody=frozenset(self.nobody),
            apart=frozenset(self.apart),
            next_ns=min(self.times, default=None),
            why=self.why,
        )
