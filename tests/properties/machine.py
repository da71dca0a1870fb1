"""Hypothesis drives the simulated cluster: it draws every choice, and what fails shrinks to a story that one can read.

`goes_on` is coarse: for a while all is quick, but for the troubles that some nodes have. `moves` is fine: one message
or one effect, so that every order of them can come up. What does not apply (no request waits, say) does nothing, and is
the first to go when a failure shrinks. What is printed then are calls of these rules: `stories` has some.
"""

import sys
from ipaddress import IPv4Address

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from support.protocol.simulation import OTHER_TIMES, OUTSIDE, TROUBLES, Node, Request, Simulation

RATES = [(1.0, 1.0, 1.0), (0.81, 1.19), (1.19, 0.81), (1.0, 1.18, 0.82)]  # nearly what the margin allows for
OF_REQUESTS = ["perform", "answer", "time out"]
MOVES = ["tick", "do", "see", *OF_REQUESTS]

WHO = st.integers(0, 2)
VIP = st.integers(0, 1)
A_WHILE = st.sampled_from([1, 500, 1000, 1900, 2500, 6000])
A_MOMENT = st.sampled_from([10, 300, 1000])
HAVING_TROUBLE = st.lists(st.tuples(WHO, st.sampled_from(TROUBLES)), max_size=2)


class Cluster(RuleBasedStateMachine):
    """Numbers name nodes, VIPs, and the requests of a node that wait; those that are too high count anew from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.sim = Simulation()

    @initialize(rates=st.sampled_from(RATES), vips=st.integers(1, 2))
    def begins(self, rates=(1.0, 1.0), vips=1):
        """The first node answers for all; the others want the same."""
        self.sim = Simulation(rates, vips)
        for node in self.sim.nodes:
            node.wish(self.sim.vips)
            self.sim.run_quickly(3000)

    def node(self, who: int) -> Node:
        return self.sim.nodes[who % len(self.sim.nodes)]

    def vip(self, vip: int) -> IPv4Address:
        return self.sim.vips[vip % len(self.sim.vips)]

    @rule(ms=A_WHILE, troubles=HAVING_TROUBLE)
    def goes_on(self, ms, troubles=()):
        """All is done that can be; some nodes are in trouble for as long."""
        for who, trouble in troubles:
            setattr(self.node(who), trouble, True)
        self.sim.run_quickly(ms)
        for node in self.sim.nodes:
            node.recover()

    @rule(ms=A_MOMENT)
    def nothing_is_done_for(self, ms):
        self.sim.pass_time(ms)

    @rule(who=WHO, move=st.sampled_from(MOVES), which=st.integers(0, 2))
    def moves(self, who, move, which=0):
        """One step of one node, or one request of it."""
        node = self.node(who)
        if move in OF_REQUESTS:
            self.moves_request(node, move, which)
        elif move == "do" and node.todo:
            node.do_next()
        elif move == "tick" and not node.todo:
            node.tick()
        elif move == "see" and node.sees():
            node.see()

    def moves_request(self, node: Node, move: str, which: int) -> None:
        """One that times out may have been performed, or may yet be."""
        waiting = [request for request in node.requests if _can(move, request)]
        if not waiting:
            return
        request = waiting[which % len(waiting)]
        if move == "perform":
            node.perform(request)
        elif not node.todo:
            node.answer(request, lost=move == "time out")

    @rule(who=WHO, loses_all=st.booleans())
    def restarts(self, who, loses_all=False):
        """The agent, or the whole node."""
        if loses_all:
            self.node(who).reboot()
        else:
            self.node(who).boot()

    @rule(vip=VIP)
    def claim_is_deleted(self, vip):
        self.sim.api.delete_claim(self.vip(vip))

    @rule(who=WHO)
    def heartbeat_is_deleted(self, who):
        self.sim.api.delete_heartbeat(self.node(who).name)

    @rule(vip=VIP, mac=st.sampled_from(OUTSIDE))
    def host_outside_has(self, vip, mac):
        self.sim.api.outside[self.vip(vip)] = mac

    # An agent is told these, but not while it still has effects to do.

    @rule(who=WHO, vips=st.sets(VIP))
    def wants(self, who, vips=()):
        if not self.node(who).todo:
            self.node(who).wish({self.vip(vip) for vip in vips})

    @rule(who=WHO, vip=VIP)
    def forgets(self, who, vip):
        if not self.node(who).todo:
            self.node(who).forget(self.vip(vip))

    @rule(who=WHO)
    def parts(self, who):
        if not self.node(who).todo:
            self.node(who).part()

    @rule(who=WHO, times=st.integers(0, len(OTHER_TIMES) - 1))
    def has_other_times(self, who, times):
        if not self.node(who).todo:
            self.node(who).retime(OTHER_TIMES[times])

    @rule(who=WHO, yes=st.booleans())
    def takes_part(self, who, yes):
        if not self.node(who).todo:
            self.node(who).take_part(yes)

    def teardown(self):
        """When all is well again exactly one answers. Hypothesis calls this after failures, too."""
        if sys.exception() is None:
            self.sim.settle()


def _can(move: str, request: Request) -> bool:
    if move == "perform":
        return not request.performed
    return not request.answered and (request.performed if move == "answer" else not request.is_local)


def bounded(runs: int, steps: int = 25) -> settings:
    """So many examples of so many steps, the same ones every time."""
    return settings(
        max_examples=runs,
        stateful_step_count=steps,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
