"""One voucher and one node that it vouches for, in a time of their own."""

from arpguard.core.vouching.tracing import TracedVoucher
from arpguard.core.vouching.voucher import (
    PING_NS,
    AdoptedTerm,
    Decided,
    OwnRight,
    Pong,
    SendGrant,
    SendPing,
    Voucher,
)
from arpguard.units import NS_PER_MS, NS_PER_S

MS, S = NS_PER_MS, NS_PER_S
INSTANCE, EPOCH = "voucher/1", 7
D, M = 600 * MS, 200 * MS
TERM = AdoptedTerm(number=11, instance=INSTANCE, epoch=EPOCH, d_ns=D)
TRIAL = AdoptedTerm(number=12, instance=INSTANCE, epoch=EPOCH, d_ns=D, trial=True)
AHEAD = 5 * S  # the node's boot clock


class ToldVoucher(TracedVoucher):
    """Appends the lines of its trace to `lines`, each at the time that it is given; its own right has no end there."""

    def __init__(self, instance, lines):
        self.now = 0
        who = {"node": "voucher", "instance": f"{instance}, the one of line {len(lines)}"}
        kept = {"epoch": "", "vips": [], "fence_ns": 10**18, "term": {"number": 0, "bound": False, "fence_ns": 0}}
        lines.append({"at": 0, "ns": 0, **who, "event": "started", "times": {"duration_ns": D}, "kept": kept})

        def tell(event, what):
            lines.append({"at": self.now, "ns": self.now, **who, "event": event, **what})

        super().__init__(instance, tell)

    def adopt(self, term, now_ns):
        self.now = now_ns
        return super().adopt(term, now_ns)

    def pong(self, number, pong, right, now_ns):
        self.now = self.heard_ns = now_ns
        return super().pong(number, pong, right, now_ns)

    def emptied(self, number, heard, now_ns):
        self.now = now_ns
        return super().emptied(number, heard, now_ns)


class VouchedFor:
    """A node's kernel, as V3 and V4 have it."""

    def __init__(self):
        self.alive = True
        self.deaf = False  # grants do not reach it
        self.bound = False
        self.fence_ns = 0  # on the voucher's clock, which goes as fast

    def pong(self, number, now_ns):
        return Pong(number, now_ns + AHEAD, self.bound)

    def take(self, grant, window_ns=D - M):
        if self.alive and not self.deaf:
            self.fence_ns = max(self.fence_ns, grant.stamp_ns - AHEAD + window_ns)
            self.bound = True


class VoucherBench:
    """The loop of a voucher: pongs come `delay_ns` after their pings. `did`: effects with their times."""

    def __init__(self, *terms, start_ns=100 * S, step_ns=MS):
        self.now = start_ns
        self.step = step_ns
        self.voucher = Voucher(INSTANCE)
        self.node = VouchedFor()
        self.right = OwnRight(EPOCH, 10**18)
        self.delay_ns = 2 * MS
        self.heard = 0  # frames
        self.busy_link = True
        self.stuck = False  # the socket is never empty
        self.on_the_way = []  # (when, pong)
        self.did = []
        for term in terms or (TERM,):
            assert self.voucher.adopt(term, self.now)

    def do(self, effects):
        for effect in effects:
            self.did.append((self.now, effect))
            if isinstance(effect, SendPing) and self.node.alive:
                pong = self.node.pong(effect.number, self.now + self.delay_ns // 2)
                self.on_the_way.append((self.now + self.delay_ns, effect.term, pong))
            if isinstance(effect, SendGrant):
                self.node.take(effect)

    def turn(self):
        """One turn of the loop: the socket until it is empty, then what is due."""
        self.heard += self.busy_link
        arrived = [entry for entry in self.on_the_way if entry[0] <= self.now]
        self.on_the_way = [entry for entry in self.on_the_way if entry not in arrived]
        for _, term, pong in arrived:
            self.heard += 1
            self.do(self.voucher.pong(term, pong, self.right, self.now))
        if not self.stuck:
            for report in self.voucher.reports():
                self.do(self.voucher.emptied(report.number, lambda: self.heard, self.now))
        self.do(self.voucher.tick(self.now))

    def run(self, for_ns):
        """Turns until so much time has passed."""
        until = self.now + for_ns
        while self.now < until:
            self.turn()
            self.now += self.step

    def stop(self, for_ns):
        """The process gets no CPU for so long; what comes meanwhile waits in its socket."""
        self.now += for_ns

    def effects(self, kind):
        return [effect for _, effect in self.did if isinstance(effect, kind)]

    def times(self, kind):
        return [at for at, effect in self.did if isinstance(effect, kind)]

    def report(self, number=TERM.number):
        return next(report for report in self.voucher.reports() if report.number == number)


def bound(bench=None):
    """A bench whose node is bound and gets grants."""
    bench = bench or VoucherBench()
    bench.run(4 * PING_NS)
    assert bench.report().bound
    return bench


# ---- stories that fail when a rule is broken ----


def node_dies():
    """The voucher decides only after the kernel's fence has passed, and soon after that."""
    bench = bound()
    bench.node.alive = False
    granted_ns = bench.times(SendGrant)[-1]
    bench.run(2 * D)

    (decided_ns,) = bench.times(Decided)
    assert decided_ns >= granted_ns + D, "before d was over"
    assert decided_ns >= bench.node.fence_ns + M, "within the margin"
    assert decided_ns <= granted_ns + D + 5 * MS


def d_to_the_tick():
    bench = bound()
    bench.node.alive = False
    granted_ns = bench.times(SendGrant)[-1]
    bench.run(D - PING_NS)

    bench.now = granted_ns + D - 1
    bench.turn()
    assert bench.effects(Decided) == [], "one tick before d"
    bench.now = granted_ns + D
    bench.turn()
    assert [each.term for each in bench.effects(Decided)] == [TERM.number]


def answers_are_slow():
    """The stamps are young, though the pings were sent long ago."""
    bench = VoucherBench()
    bench.delay_ns = 40 * MS
    bound(bench)
    bench.node.alive = False
    bench.on_the_way = []
    bench.run(2 * D)

    (decided_ns,) = bench.times(Decided)
    assert decided_ns >= bench.times(SendGrant)[-1] + D


def late_pong_after_the_decision():
    bench = bound()
    bench.run(PING_NS)
    late = bench.node.pong(bench.effects(SendPing)[-1].number, bench.now)
    bench.node.alive = False
    bench.on_the_way = []
    bench.run(2 * D)
    assert [each.term for each in bench.effects(Decided)] == [TERM.number]
    before = len(bench.did)

    bench.do(bench.voucher.pong(TERM.number, late, bench.right, bench.now))
    bench.run(D)
    assert not bench.voucher.adopt(TERM, bench.now)
    bench.run(D)

    assert bench.did[before:] == [], "something was sent after the decision"


def never_bound():
    """The kernel has the term, but no grant reaches it."""
    bench = VoucherBench()
    bench.node.deaf = True
    bench.run(4 * PING_NS)
    bench.node.alive = False
    bench.run(3 * D)

    assert bench.effects(Decided) == [], "the kernel may answer by the API's fence alone"


def never_granted():
    """An adoption that has granted nothing says nothing of what others were granted."""
    bench = VoucherBench()
    bench.right = OwnRight(EPOCH, 0)
    bench.node.bound = True
    bench.run(4 * PING_NS)
    bench.node.alive = False
    bench.run(3 * D)

    assert bench.effects(Decided) == []


def socket_is_not_empty():
    bench = bound()
    bench.node.alive = False
    bench.stuck = True
    bench.run(2 * D)
    assert bench.effects(Decided) == [], "there may be a pong in it"

    bench.stuck = False
    bench.run(2 * MS)
    assert len(bench.effects(Decided)) == 1


def voucher_gets_no_cpu():
    """What its own pause left unanswered says nothing about the node."""
    bench = VoucherBench()
    bench.delay_ns = 20 * MS
    bound(bench)
    bench.stop(3 * D)
    bench.run(2 * D)

    assert bench.effects(Decided) == []
    assert bench.report().gaps.longest_ns >= 3 * D


def link_is_dead():
    """Nothing at all is heard: it may be the voucher's own link. It decides with the first frame after d."""
    bench = bound()
    bench.node.alive = False
    bench.run(100 * MS)
    bench.busy_link = False
    granted_ns = bench.times(SendGrant)[-1]
    bench.run(granted_ns + 2 * D - 100 * MS - bench.now)
    assert bench.effects(Decided) == [], "nothing was heard at all, and the node has to find another voucher"

    bench.heard += 1
    bench.run(PING_NS)
    assert len(bench.effects(Decided)) == 1


def nobody_else_sends():
    """The node was the only one that was ever heard: its voucher decides after twice as long."""
    bench = bound()
    bench.busy_link = False
    bench.run(4 * PING_NS)
    bench.node.alive = False
    granted_ns = bench.times(SendGrant)[-1]
    bench.run(4 * D)

    (decided_ns,) = bench.times(Decided)
    assert granted_ns + 2 * D <= decided_ns <= granted_ns + 2 * D + 5 * MS


def pong_of_an_earlier_adoption():
    """A term that is adopted again begins anew."""
    bench = bound()
    old = bench.node.pong(bench.effects(SendPing)[-1].number, bench.now)
    bench.voucher.drop(TERM.number)
    bench.on_the_way = []
    bench.now += MS
    assert bench.voucher.adopt(TERM, bench.now)
    bench.do(bench.voucher.tick(bench.now))

    assert bench.voucher.pong(TERM.number, old, bench.right, bench.now) == []


def pong_of_a_ping_that_never_was():
    bench = bound()
    not_sent = bench.node.pong(bench.effects(SendPing)[-1].number + 1, bench.now)

    assert bench.voucher.pong(TERM.number, not_sent, bench.right, bench.now) == []


def pong_comes_twice():
    bench = bound()
    bench.run(PING_NS)
    number = bench.effects(SendPing)[-1].number
    newer, older = (bench.node.pong(number, at) for at in (bench.now, bench.now - MS))

    assert bench.voucher.pong(TERM.number, newer, bench.right, bench.now) != []
    assert bench.voucher.pong(TERM.number, newer, bench.right, bench.now) == []
    assert bench.voucher.pong(TERM.number, older, bench.right, bench.now) == []


def own_fence_passes():
    bench = bound()
    bench.right = OwnRight(EPOCH, bench.now + 2 * PING_NS)
    until = bench.right.until_ns
    bench.run(4 * D)

    assert max(bench.times(SendGrant)) < until, "granted beyond this node's right"
    assert bench.effects(Decided) == [], "it answers"

    bench.right = OwnRight(EPOCH, bench.now + S)
    bench.run(2 * PING_NS)
    assert max(bench.times(SendGrant)) > until


def own_right_is_unknown():
    bench = bound()
    grants = len(bench.effects(SendGrant))
    bench.right = None
    bench.run(D)

    assert len(bench.effects(SendGrant)) == grants


def own_epoch_is_another():
    bench = bound()
    bench.right = OwnRight(EPOCH + 1, 10**18)
    before = len(bench.effects(SendGrant))
    bench.run(D)
    assert not bench.voucher.adopt(TERM, bench.now)
    bench.right = OwnRight(EPOCH, 10**18)
    bench.run(D)

    assert len(bench.effects(SendGrant)) == before, "a term of an epoch before was taken up again"


def term_of_another_instance():
    bench = VoucherBench()
    bench.voucher = Voucher("voucher/2")

    assert not bench.voucher.adopt(TERM, bench.now)
    bench.run(D)
    assert bench.did == []


def trial():
    bench = VoucherBench(TRIAL)
    bench.run(D)
    bench.node.bound = True
    bench.run(D)
    assert bench.effects(SendGrant) == [], "nothing is bound in a trial"

    bench.node.alive = False
    bench.run(2 * D)
    assert bench.effects(Decided) == []
