"""Which elected VIPs this node wants: a function of what it sees, and of since when it has seen it so.

| a VIP                              | is wanted by                                                              |
| ---------------------------------- | ------------------------------------------------------------------------- |
| held by one who may own it         | that one                                                                  |
| held by one who may not (any more) | the first choice, which waits until it is released                        |
| free                               | the first choice at once, choice k after (k - 1) x BACKUP_NS              |
| free, and never held before        | the same, but not before this node has looked around for `settle_ns`      |
| undecided                          | who holds it                                                              |

An address of a dual-stack Service goes with another, its lead: `Vip.lead`. Those who may own both may own either,
the first choice for it is the one that holds the lead, or the lead's first choice while nobody does, and who holds it
apart from its lead gives it up to that one at once. The lead is elected as if it were alone, so nothing goes in
circles. Where no node may own both, each is elected by itself.

Two that want the same VIP are no harm: claims are compared and swapped. Nobody is asked, and nobody has to agree.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from arpguard.addresses import Address
from arpguard.config.model import LeaseConfig
from arpguard.core.balancing import to_move
from arpguard.core.members import Member, Place, Pool, Pools, parties
from arpguard.core.rendezvous import fingerprint
from arpguard.model import OwnerKind, Vip
from arpguard.units import NS_PER_S

BACKUP_NS = 2 * NS_PER_S
SETTLE_NS = 3 * NS_PER_S // 2
STEADY_NS = 60 * NS_PER_S
BATCH_NS = 10 * NS_PER_S
GIVE_UP_NS = 5 * NS_PER_S
SHUN_NS = 600 * NS_PER_S
FOLLOW_AT_ONCE = 50  # VIPs that this node has given up to whom they follow, and nobody has yet
MAX_WRITES_PER_S = 100  # of heartbeats, in the whole cluster; each is sent to all nodes
MAX_WRITES_PER_S_AT_REST = 10
REST_NS = 10 * NS_PER_S  # as kubelets renew theirs
_EMPTY = Pool(())


@dataclass(frozen=True, slots=True)
class Wishes:
    """What this node wants; `nobody`: VIPs that no node may own. `next_ns`: when to ask again if nothing changes.

    `apart`: VIPs that no node may own together with their leads, though it may own them without.
    """

    wanted: frozenset[Address] = frozenset()
    nobody: frozenset[Address] = frozenset()
    apart: frozenset[Address] = frozenset()
    next_ns: int | None = None


@dataclass(slots=True)
class _Seat:
    """An elected VIP. `since_ns`: since when `first` is its first choice; `free_ns`: since when nobody has it.

    `ahead`: how many are preferred to this node. `giving_to`: the first choice that this node gives it up to, and until
    `giving_ns` does not want it itself.
    `party`: the VIPs that are to have one owner with it, the lead first; `follows`: it goes with that, and is another.
    `leader`: the one of both that `number` is of, by which nodes are preferred. `is_apart`: no node may own it too.
    """

    vip: Vip
    number: int
    pool: Pool
    first: str
    since_ns: int
    ahead: int = 0
    free_ns: int | None = None
    giving_to: str = ""
    giving_ns: int = 0
    leader: Address | None = None
    party: tuple[Vip, ...] = ()
    follows: bool = False
    is_apart: bool = False

    def place(self, me: str) -> int:
        """Which choice this node is, from 0 on, if it is in the pool."""
        if me == self.first:
            return 0
        return self.ahead + (self.follows and self.pool.prefers(self.number, me, self.first))


class Election:
    """This node's memory. Times are CLOCK_BOOTTIME; `started_ns`: when this node knew the others' heartbeats."""

    def __init__(self, me: str, started_ns: int, settle_ns: int = SETTLE_NS) -> None:
        self._me = me
        self._number = fingerprint(me)
        self._settled_ns = started_ns + settle_ns
        self._seats: dict[Address, _Seat] = {}
        self._vips: Mapping[Address, Vip] = {}
        self._members: tuple[Member, ...] = ()
        self._pools = Pools(())
        self._steady_ns = started_ns
        self._balance_ns = started_ns
        self._shunned: dict[str, int] = {}

    def wanted(
        self,
        vips: Mapping[Address, Vip],
        members: tuple[Member, ...],
        holders: Mapping[Address, str],
        now_ns: int,
        undecided: AbstractSet[Address] = frozenset(),
    ) -> Wishes:
        """What this node wants now.

        `holders`: who has a VIP, by a claim that is valid, and is alive; "" where the claim is released or void, or
        its holder is not heard of. A VIP that is not in it was never held. `vips` is not changed between two calls.
        """
        for _ in self.sit_down(vips, members, now_ns):
            pass
        look = _Look(self._me, now_ns, self._settled_ns, undecided)
        if members and all(member.alive for member in members if member.ready and not member.excluded):
            look.settled_ns = now_ns
        for address, seat in self._seats.items():
            if seat.follows:
                self._follow(seat, holders.get(seat.party[0].address, ""), now_ns)
            look.at(address, seat, holders.get(address))
        self._shunned |= dict.fromkeys(look.unwilling, now_ns + SHUN_NS)
        given_up = self._give_after(look, holders) if look.strays else frozenset()
        if look.is_calm and look.misplaced:
            given_up |= self._give_up(look)
        return look.wishes(given_up)

    def _follow(self, seat: _Seat, lead_holder: str, now_ns: int) -> None:
        """Whoever has the lead is the first choice; while nobody has, or one who must not, it is the lead's."""
        lead = self._seats[seat.party[0].address]
        seat.ahead = lead.ahead
        first = lead_holder if lead_holder in seat.pool else lead.first
        if first != seat.first:
            seat.first, seat.since_ns = first, now_ns

    def _give_after(self, look: "_Look", holders: Mapping[Address, str]) -> frozenset[Address]:
        """VIPs for those who have their leads. Who did not take one lately gets none for a while, as in `_give_up`."""
        room = FOLLOW_AT_ONCE - sum(1 for seat in self._seats.values() if seat.giving_to)
        given_up: list[Address] = []
        for address in look.strays:
            seat = self._seats[address]
            lead = seat.party[0].address
            if lead in look.undecided or holders.get(lead) != seat.first:
                continue
            if self._shunned.get(seat.first, 0) > look.now_ns:
                look.times.append(self._shunned[seat.first])
                continue
            look.is_calm = False
            if holders.get(address) == self._me and not seat.giving_to and len(given_up) < room:
                seat.giving_to, seat.giving_ns = seat.first, look.now_ns + GIVE_UP_NS
                look.times.append(seat.giving_ns)
                given_up.append(address)
        return frozenset(given_up)

    def sit_down(self, vips: Mapping[Address, Vip], members: tuple[Member, ...], now_ns: int) -> Iterator[None]:
        """What `wanted` begins with, in steps, for who has others to attend to: all that takes long.

        It brings the seats up to date with VIPs and members, and has to be gone through to the end.
        """
        pools = self._pools
        if members != self._members:
            self._members = members
            pools = Pools(members)
        if pools != self._pools:
            self._pools, self._steady_ns = pools, now_ns
            for seat in self._seats.values():
                self._choose(seat, now_ns)
                yield
        if vips is not self._vips:
            self._vips = vips
            yield from self._invite(vips, now_ns)

    def _invite(self, vips: Mapping[Address, Vip], now_ns: int) -> Iterator[None]:
        elected, groups = 0, parties(vips)
        for address, vip in vips.items():
            if not _is_elected(vip):
                continue
            elected += 1
            seat = self._seats.get(address)
            party = groups.get(address if vip.lead is None else vip.lead, ())
            if seat is None:
                number = fingerprint(str(address))
                seat = self._seats[address] = _Seat(vip, number, _EMPTY, "", now_ns, leader=address, party=party)
            elif seat.vip is not vip or seat.party != party:
                seat.vip, seat.party = vip, party
            else:
                continue
            self._choose(seat, now_ns)
            yield
        if len(self._seats) != elected:
            self._seats = {address: seat for address, seat in self._seats.items() if _is_elected(vips.get(address))}

    def _choose(self, seat: _Seat, now_ns: int) -> None:
        before, leader = seat.pool, seat.leader
        seat.pool = self._pools.of(seat.vip)
        if seat.party or seat.follows:
            self._join(seat)
        if seat.follows:
            return  # its first choice is the holder of another: `_follow`
        place = Place(seat.first, seat.ahead) if seat.leader == leader else Place()
        first, seat.ahead = seat.pool.place_after(before, place, seat.number, self._number)
        if first != seat.first:
            seat.first, seat.since_ns = first, now_ns

    def _join(self, seat: _Seat) -> None:
        """Puts a VIP to those that are to have one owner with it, or apart from them."""
        own, leader = seat.pool, seat.vip.address
        seat.follows = seat.is_apart = False
        if seat.party:
            pool, joined = self._pools.together(seat.party)
            if leader in joined:
                seat.pool, leader = pool, seat.party[0].address
            seat.follows = leader != seat.vip.address
            seat.is_apart = seat.vip.address not in joined and bool(own) and bool(self._pools.of(seat.party[0]))
        if leader != seat.leader:
            seat.leader, seat.number = leader, fingerprint(str(leader))

    def _give_up(self, look: "_Look") -> frozenset[Address]:
        """A batch of VIPs for those who are their first choice, where all has been quiet for long enough.

        Who did not take what was given up last time is alive, and yet cannot: it gets nothing for a while.
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
            seat = self._seats[address]
            seat.giving_to, seat.giving_ns = seat.first, look.now_ns + GIVE_UP_NS
            look.times.append(seat.giving_ns)
        return given_up

    def _is_ripe(self, address: Address, steady_ns: int) -> bool:
        seat = self._seats[address]
        return seat.since_ns <= steady_ns and self._shunned.get(seat.first, 0) <= steady_ns + STEADY_NS


def _is_elected(vip: Vip | None) -> bool:
    return vip is not None and vip.owner.kind is OwnerKind.ELECT


@dataclass(slots=True)
class _Look:
    """One look at all seats, and what comes of it."""

    me: str
    now_ns: int
    settled_ns: int
    undecided: AbstractSet[Address]
    wanted: list[Address] = field(default_factory=list)
    nobody: list[Address] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    placed: list[tuple[Address, str, str]] = field(default_factory=list)
    unwilling: set[str] = field(default_factory=set)
    strays: list[Address] = field(default_factory=list)
    apart: list[Address] = field(default_factory=list)
    is_calm: bool = True
    misplaced: bool = False

    def at(self, address: Address, seat: _Seat, holder: str | None) -> None:
        """One VIP. `holder` None: it was never held; empty: it is free."""
        if seat.is_apart:
            self.apart.append(address)
        if not seat.first:
            self.nobody.append(address)
        elif holder:
            self._held(address, seat, holder)
        elif address not in self.undecided:
            self._free(address, seat, never_held=holder is None)

    def _held(self, address: Address, seat: _Seat, holder: str) -> None:
        seat.free_ns = None
        first = self._drawn_to(address, seat, holder)
        if not seat.follows:
            self.placed.append((address, holder, first))  # those that go with it are moved with it
        if seat.giving_to:
            self._given(seat, holder)
        if holder == self.me and not seat.giving_to and (holder == first or holder in seat.pool):
            self.wanted.append(address)

    def _drawn_to(self, address: Address, seat: _Seat, holder: str) -> str:
        """Where a VIP that somebody has would go, and what that means for the look."""
        if holder == seat.first:
            return holder
        if holder not in seat.pool:
            self.is_calm = False
            if seat.first == self.me and address not in self.undecided:
                self.wanted.append(address)  # so that its release is answered at once
        elif address in self.undecided:
            return holder
        elif seat.follows:
            self.strays.append(address)
        else:
            self.misplaced = True
        return seat.first

    def _given(self, seat: _Seat, holder: str) -> None:
        """A VIP that this node has given up: somebody has it."""
        if holder == self.me and seat.giving_ns > self.now_ns:
            self.times.append(seat.giving_ns)
            return
        if holder != seat.giving_to and not (seat.follows and seat.first != seat.giving_to):
            self.unwilling.add(seat.giving_to)
        seat.giving_to, seat.giving_ns = "", 0

    def _free(self, address: Address, seat: _Seat, *, never_held: bool) -> None:
        """One that nobody takes for long, since a host outside has it, say, is no unrest."""
        seat.giving_ns = 0
        if seat.free_ns is None:
            seat.free_ns = self.now_ns
        if self.now_ns - seat.free_ns < STEADY_NS:
            self.is_calm = False
        if self.me not in seat.pool:
            return
        due_ns = max(seat.free_ns, seat.since_ns) + BACKUP_NS * seat.place(self.me)
        if never_held:
            due_ns = max(due_ns, self.settled_ns)
        if due_ns <= self.now_ns:
            self.wanted.append(address)
        else:
            self.times.append(due_ns)

    def wishes(self, given_up: AbstractSet[Address]) -> Wishes:
        """All of it."""
        return Wishes(
            wanted=frozenset(self.wanted) - given_up,
            nobody=frozenset(self.nobody),
            apart=frozenset(self.apart),
            next_ns=min(self.times, default=None),
        )


def rest_ns(heartbeating: int) -> int:
    """How often a node that neither has nor wants a VIP renews, in a cluster with so many nodes."""
    return max(REST_NS, heartbeating * NS_PER_S // MAX_WRITES_PER_S_AT_REST)


def lease_times(lease: LeaseConfig, heartbeating: int) -> LeaseConfig:
    """The times of a cluster with so many heartbeating nodes: the API server takes no more than MAX_WRITES_PER_S."""
    renew_ns = max(lease.renew_ns, heartbeating * NS_PER_S // MAX_WRITES_PER_S)
    return LeaseConfig(
        duration_ns=lease.duration_ns * renew_ns // lease.renew_ns,
        renew_ns=renew_ns,
        margin_ns=lease.margin_ns * renew_ns // lease.renew_ns,
    )
