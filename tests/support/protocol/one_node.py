"""One node of the claim protocol, and a server that does what the test wants."""

from dataclasses import replace
from ipaddress import IPv4Address
from itertools import count

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.records import (
    NO_TERM,
    NOTHING_KEPT,
    Claim,
    ClearEntry,
    ClearTerm,
    DeleteClaim,
    Heartbeat,
    KernelTerm,
    ListOwnClaims,
    Outcome,
    Probe,
    ReadClaim,
    ReadHeartbeat,
    ReadTerm,
    SetFence,
    SetTerm,
    Version,
    WriteClaim,
    WriteHeartbeat,
)
from arpguard.core.ownership.stages import Owned
from arpguard.units import NS_PER_S
from arpguard.wire.vouching import term_number

S = NS_PER_S
TIMES = Times(3 * S, S, S, 30 * S)
VOUCHED = replace(TIMES, bound_ns=60 * S, bound_margin_ns=10 * S)
VIP, OTHER = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
STRANGER, SECOND_STRANGER = MacAddress.parse("02:00:00:00:00:0a"), MacAddress.parse("02:00:00:00:00:0b")


class Bench:
    """A node `a` and a server that answers at once, but what is in `held`: that waits in `waiting` with its time.

    `did` has what was done besides reading, in order. `term`: what the kernel has of a voucher. `shown`: up to which
    resourceVersion the watch has shown everything.
    """

    def __init__(self, kept=NOTHING_KEPT, takes_part=True, times=TIMES, new_epoch=None):
        self.now = 100 * S
        self.epochs, self.revisions = count(1), count(1)
        self.core = Ownership("a", "a/1", times, new_epoch or (lambda: f"epoch-{next(self.epochs)}"), kept)
        self.term = kept.term
        self.shown = ""
        self.store = {}
        self.outside = {}
        self.held, self.waiting, self.did = (), [], []
        self.refused = ()  # kinds of effects
        self.refused_names = ()
        self.kernel = SetFence("", 0, 0)
        if not takes_part:
            self.serve(self.core.take_part(False, self.now))

    @property
    def owned(self):
        """The VIPs that the kernel answers for."""
        claims = self.core.claims
        return frozenset(vip for vip in claims.all if claims.stage(vip) is Owned)

    def version(self, old=None):
        number = next(self.revisions)
        return Version(old.uid if old else f"uid-{number}", str(number))

    def heartbeat(self, node="b", epoch="b-1", instance="b/1", duration=3 * S, links=(), **more):
        """The watch shows that a node has renewed."""
        old = self.store.get(node)
        made = Heartbeat(node, epoch, instance, duration, self.version(old.version if old else None), links, **more)
        self.store[node] = made
        self.serve(self.core.heartbeat_seen(node, made, self.now))

    def is_granted(self, until_ns):
        """The kernel is bound to its term."""
        self.term = KernelTerm(self.term.number, bound=True, fence_ns=until_ns)

    def claim(self, holder="b", epoch="b-1", vip=VIP, **changes):
        """The watch shows a claim."""
        old = self.store.get(vip)
        self.store[vip] = Claim(vip, holder, epoch, self.version(old.version if old else None), **changes)
        self.serve(self.core.claim_seen(vip, self.store[vip], self.now))

    def serve(self, effects):
        for effect in effects:
            if not isinstance(effect, ReadClaim | ReadHeartbeat | ReadTerm | ListOwnClaims):
                self.did.append(effect)
            if isinstance(effect, SetFence):
                self.kernel = effect
            if isinstance(effect, SetTerm | ClearTerm):
                self.term = KernelTerm(term_number(effect.term.uuid)) if isinstance(effect, SetTerm) else NO_TERM
            if isinstance(effect, ReadHeartbeat) and effect.node != "a":
                self.now += 1  # what it is asked for was seen a moment before
            if isinstance(effect, self.held):
                self.waiting.append((effect, self.now))
            else:
                self.answer(effect, self.now)

    def answer(self, effect, sent_ns):
        if isinstance(effect, WriteHeartbeat | WriteClaim | DeleteClaim):
            self.serve(self.answer_write(effect, sent_ns))
        else:
            self.serve(self.answer_question(effect, sent_ns))

    def answer_write(self, sent, sent_ns):
        if isinstance(sent, WriteHeartbeat):
            return self.core.heartbeat_written(sent, *self.write(sent.node, sent), self.shown, sent_ns, self.now)
        if isinstance(sent, WriteClaim):
            return self.core.claim_written(sent, *self.write(sent.vip, sent), self.now)
        return self.core.claim_deleted(sent, *self.write(sent.vip, sent), self.now)

    def answer_question(self, effect, sent_ns):
        core, now, found = self.core, self.now, []
        match effect:
            case ReadHeartbeat(node):
                found = core.heartbeat_read(node, self.store.get(node), sent_ns, now)
            case ReadClaim(vip):
                found = core.claim_read(vip, self.store.get(vip), sent_ns, now)
            case ListOwnClaims():
                mine = [claim for claim in self.store.values() if isinstance(claim, Claim) and claim.holder == "a"]
                found = core.own_claims_listed(mine, sent_ns, now)
            case ReadTerm():
                found = core.term_read(self.term, now)
            case Probe(vip):
                found = core.probed(vip, self.outside.get(vip), now)
            case ClearEntry(vip, drain=True):
                found = core.drained(vip, now)
        return found

    def write(self, name, effect):
        old = self.store.get(name)
        if isinstance(effect, self.refused) or name in self.refused_names:
            return Outcome.REFUSED, None
        if (old.version if old else None) != effect.version:
            return Outcome.CONFLICT, None
        version = self.version(effect.version)
        if isinstance(effect, WriteHeartbeat):
            made = Heartbeat(effect.node, effect.epoch, effect.instance, effect.duration_ns, version)
            made = replace(made, voucher=effect.voucher, bound=effect.bound)
        elif isinstance(effect, DeleteClaim):
            made = replace(old, deleting=True, version=version)
        else:
            made = Claim(
                effect.vip, effect.holder, effect.epoch, version,
                external=effect.external, transitions=effect.transitions, holder_uid=effect.holder_uid,
            )  # fmt: skip
        self.store[name] = made
        if getattr(effect, "let_go", False):
            del self.store[name]
        return Outcome.APPLIED, version

    def let(self):
        """Answers what waits."""
        waiting, self.waiting = self.waiting, []
        for effect, sent_ns in waiting:
            self.answer(effect, sent_ns)

    def pass_time(self, seconds):
        """Wakes the core when it asks for it, and never otherwise."""
        until = self.now + int(seconds * S)
        for _ in range(10_000):
            due = self.core.next_ns(self.now)
            if due is None or due > until:
                self.now = until
                return
            self.now = due
            self.serve(self.core.tick(self.now))
        pytest.fail("it is woken again and again")

    def want(self, *vips):
        self.serve(self.core.want(vips, self.now))

    def took(self):
        """What was done since the last time, without heartbeats and fences."""
        did, self.did = self.did, []
        return [effect for effect in did if not isinstance(effect, WriteHeartbeat | SetFence)]

    def renewals(self):
        return [effect for effect in self.did if isinstance(effect, WriteHeartbeat) and effect.node == "a"]


def an_owner(**changes):
    """It answers for the VIP."""
    bench = Bench(**changes)
    bench.pass_time(0)
    bench.want(VIP)
    assert bench.owned == {VIP}
    bench.did.clear()
    return bench
