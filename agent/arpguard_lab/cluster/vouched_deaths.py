"""Nodes that vouch for each other, and some die: the others know it soon, and nobody else falls silent."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from arpguard.addresses import Address
from arpguard_lab.bench import Bounded, Step
from arpguard_lab.cluster.bench import KubeBench, Watch, ms, now_ns, vip
from arpguard_lab.cluster.vouched import (
    PATIENCE_S,
    VIPS,
    an_owner,
    begin,
    is_doubted,
    losses,
    none_lost,
    until_bound,
    verdict,
    voucher_of,
    vouchers,
)
from arpguard_lab.oracle import Spread
from arpguard_lab.topology import Host

_DEATHS = 2
_WORST_MS = 1500
_BOTH_MS = _LAN_MS = 3000
_APART_S = 5.0
_AFTER_S = 5.0
_NEW_VIPS, _LATER_VIPS = ([vip(first + number) for number in range(12)] for first in (150, 170))


@dataclass
class Deaths:
    """Nodes that die under a watch. `taken_ns`: for each of their VIPs, until another node answered."""

    bench: KubeBench
    watch: Watch
    taken_ns: list[int] = field(default_factory=list)

    def die(self, text: str, *victims: Host) -> Step:
        """Their links go down, and their agents are killed, with the processes that vouch for others."""
        owned = self._owned(victims)
        killed_ns = now_ns()
        for host in victims:
            self.bench.lab.pull(host)
        for host in victims:
            self.bench.agent(host).kill(signal.SIGKILL)
        return self.taken_over(text, owned, killed_ns)

    def fall_silent(self, text: str, victim: Host, silence: Callable[[], None]) -> Step:
        """The LAN does not hear a node any more, by `silence`. It has its carrier, and reaches the API server."""
        owned = self._owned([victim])
        began_ns = now_ns()
        silence()
        return self.taken_over(text, owned, began_ns)

    def _owned(self, victims: Sequence[Host]) -> dict[Host, list[Address]]:
        return {host: self.bench.owned(VIPS, host) for host in victims}

    def taken_over(self, text: str, owned: dict[Host, list[Address]], since_ns: int) -> Step:
        """Waits until other nodes answer for all VIPs of some that are not heard any more."""
        firsts = [
            said for host, vips in owned.items() for said in self.watch.takeovers(vips, host, since_ns, PATIENCE_S)
        ]
        taken = [said.time_ns - since_ns for said in firsts]
        self.taken_ns += taken
        return self.bench.one_of(
            text,
            firsts[0].vip,
            self.bench.others(*owned),
            [firsts[0].mac],
            vips=len(firsts),
            first_answer_ms=ms(min(taken)),
            all_answered_ms=ms(max(taken)),
        )

    def verdict(self, text: str, worst_ms: int, **facts: object) -> Step:
        """Whether all of it was in time, and at most one answered; for when the watch is over."""
        spread = Spread.of(self.taken_ns)
        return verdict(
            self.bench,
            self.watch,
            f"{text}: at most one node answered at any moment",
            takeovers=spread.count,
            median_ms=spread.median_ms,
            worst_ms=Bounded(spread.worst_ms, worst_ms, "dead_in_time"),
            **facts,
        )


def run_node_dies(bench: KubeBench) -> Iterator[Step]:
    """Kills owners, one after the other, with their nodes."""
    yield from begin(bench)

    alive = list(bench.nodes)
    with bench.watch(VIPS) as watch:
        deaths = Deaths(bench, watch)
        for number in range(_DEATHS):
            victim = an_owner(bench, alive)
            yield deaths.die(f"{victim.name} dies", victim)
            bench.lab.plug_in(victim)
            bench.agent(victim).start()
            bench.agent(victim).wait_for()
            bench.settle_evenly(VIPS)
            alive.remove(victim)  # its boot clock has gone on: who revoked it takes that for a mistake, and waits
            if number + 1 < _DEATHS:
                until_bound(bench, alive)

    yield deaths.verdict("all deaths", _WORST_MS)


def run_voucher_dies(bench: KubeBench) -> Iterator[Step]:
    """Kills an owner's voucher: the owner finds another one in time, and answers all the while."""
    yield from begin(bench)

    with bench.watch(VIPS) as watch:
        owner = an_owner(bench)
        victim = voucher_of(bench, owner)
        others = bench.others(victim)
        kept = [address for host in others for address in bench.owned(VIPS, host)]
        owners = bench.settle(kept)
        yield Deaths(bench, watch).die(f"{victim.name}, the voucher of {owner.name}, dies", victim)
        bound_s = until_bound(bench, others)
        stayed = bench.still(owners)

    yield none_lost(
        bench,
        watch,
        "the other nodes lose no request",
        kept,
        stayed=stayed,
        bound_after_s=bound_s,
    )


def run_both_die(bench: KubeBench) -> Iterator[Step]:
    """Kills an owner and its voucher at once: others learn that the voucher is over, and revoke the owner (V17)."""
    yield from begin(bench)

    with bench.watch(VIPS) as watch:
        owner = an_owner(bench)
        victims = owner, voucher_of(bench, owner)
        survivors = bench.others(*victims)
        kept = [address for host in survivors for address in bench.owned(VIPS, host)]
        deaths = Deaths(bench, watch)
        yield deaths.die(f"{owner.name} dies, and its voucher, {victims[1].name}, with it", *victims)

    yield deaths.verdict("both deaths", _BOTH_MS, **losses(watch, kept))


def run_ring_of_three(bench: KubeBench) -> Iterator[Step]:
    """Each node vouches for the next. None hears another one for a while; then two of the three die together."""
    yield from begin(bench)

    named = vouchers(bench)
    yield bench.ask(
        "vouched for: "
        + ", ".join(f"{host.name} by {named[host].name}" for host in bench.nodes)
        + "; no two vouch for each other",
        VIPS[0],
        [bench.owner(VIPS[0])],
        each_by_another=all(named[named[host]] is not host for host in bench.nodes),
    )

    owners = bench.settle(VIPS)
    with bench.watch(VIPS) as watch:
        bench.lab.part(bench.nodes)
        time.sleep(_APART_S)
        bench.lab.heal(bench.nodes)
        stayed = bench.still(owners)
    yield none_lost(bench, watch, f"no node hears another node for {_APART_S:g} s", stayed=stayed)
    rebound_s = until_bound(bench)

    with bench.watch(VIPS) as watch:
        deaths = Deaths(bench, watch)
        owner = an_owner(bench)
        other = next(host for host, voucher in vouchers(bench).items() if voucher is owner)
        yield deaths.die(f"{owner.name} dies, and {other.name}, which it vouches for, with it", owner, other)
    yield deaths.verdict("two of three", _BOTH_MS, bound_again_after_s=rebound_s)


def run_lan_dead(bench: KubeBench) -> Iterator[Step]:
    """The switch carries nothing for the owner any more, whose link stays up; then it does again."""
    yield from begin(bench)

    with bench.watch(VIPS) as watch:
        deaths, victim = Deaths(bench, watch), an_owner(bench)
        text = f"{victim.name}: nothing gets through on the LAN"
        yield deaths.fall_silent(text, victim, partial(bench.lab.split_off, victim))
        time.sleep(_AFTER_S)
        bench.lab.rejoin(victim)
        time.sleep(_AFTER_S)
        bench.settle(VIPS)
    yield deaths.verdict("a dead LAN, and its end", _LAN_MS)


def run_voucher_deaf(bench: KubeBench) -> Iterator[Step]:
    """An owner's voucher receives nothing any more: it hands its VIPs over, and the owner keeps those that it has."""
    yield from begin(bench)

    with bench.watch(VIPS) as watch:
        owner = an_owner(bench)
        victim = voucher_of(bench, owner)
        kept = [address for host in bench.others(victim) for address in bench.owned(VIPS, host)]
        owners = bench.settle(kept)

        text = f"{victim.name}, the voucher of {owner.name}, receives nothing"
        yield Deaths(bench, watch).fall_silent(text, victim, partial(bench.lab.deafen, victim.port))
        time.sleep(_AFTER_S)
        stayed = bench.still(owners)
        bench.lab.restore(victim.port)

    yield none_lost(bench, watch, "the others keep their VIPs, and lose no request", kept, stayed=stayed)


def run_lan_mute(bench: KubeBench) -> Iterator[Step]:
    """The switch drops what the owner sends, which hears all others: it owns no VIP until others hear it again."""
    yield from begin(bench)

    with bench.watch(VIPS) as watch:
        deaths, victim = Deaths(bench, watch), an_owner(bench)
        text = f"{victim.name}: what it sends on the LAN gets lost"
        yield deaths.fall_silent(text, victim, partial(bench.lab.mute, victim.port))

        bench.publish("while-mute", _NEW_VIPS)
        found = bench.settle(_NEW_VIPS)
        yield bench.one_of(
            f"new VIPs go to nodes that are heard, and none to {victim.name}",
            _NEW_VIPS[0],
            bench.others(victim),
            found[_NEW_VIPS[0]],
            doubted=is_doubted(bench, victim),
        )

        bench.lab.restore(victim.port)
        began = time.monotonic()
        bench.until(lambda: not is_doubted(bench, victim), PATIENCE_S, f"others hear {victim.name} again")
        heard_s = round(time.monotonic() - began)
    yield deaths.verdict("a node that is not heard, and its end", _LAN_MS, heard_again_after_s=heard_s)

    bench.publish("once-heard", _LATER_VIPS)
    bench.settle(_LATER_VIPS)
    owned = bench.owned(_LATER_VIPS, victim)
    yield bench.ask(
        f"{victim.name} is heard, and gets new VIPs again",
        (owned or _LATER_VIPS)[0],
        [victim],
        vips_of_it=len(owned),
    )
