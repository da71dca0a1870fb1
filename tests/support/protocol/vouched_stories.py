"""Stories of the simulated cluster with vouching: each must go well, and broken rules break in them (`vouched_rules`).

The first node answers for the one VIP. Each node names the next one as its voucher where a story says so.
"""

from collections.abc import Callable

from arpguard.core.ownership.records import ClearTerm, SetTerm
from arpguard.core.ownership.sweeping import SWEPT, following
from support.protocol.simulation import (
    BOUND,
    GRANT,
    GRANT_MARGIN,
    MS,
    OTHER_TIMES,
    PARTING,
    TIMES,
    D,
    Frame,
    M,
    Node,
    R,
    Simulation,
)

FAIR = (1.0, 1.0)
UNFAIR = (0.82, 1.18)  # of the node, and of its voucher: nearly what the margins allow for
THREE = (1.0, 1.0, 1.0)
MANY = SWEPT + 3
WINDOW = GRANT - GRANT_MARGIN
LONG = 20 * D  # of this lease a node renews seldom: every 10 s


def a_vouched(rates=FAIR, naming=1, bound=BOUND) -> tuple[Simulation, list[Node]]:
    """So many nodes, of which the first ones name the next ones, and are bound to them."""
    sim = Simulation(rates, vips=1, vouching=True, seeks=False, bound=bound)
    for node in sim.nodes:
        node.wish(sim.vips)
        sim.run_quickly(2 * R)
    for place in range(naming):
        sim.nodes[place].name_voucher(sim.nodes[(place + 1) % len(rates)].name)
    sim.run_quickly(R)
    assert all(node.kernel.bound == (place < naming) for place, node in enumerate(sim.nodes))
    assert answering(sim) == ["n0"]
    return sim, sim.nodes


def answering(sim: Simulation) -> list[str]:
    return sim.answering(sim.vips[0])


def grants(frame: Frame) -> bool:
    return frame.stamp > 0


def between(one: Node, other: Node) -> Callable[[Frame], bool]:
    names = {one.name, other.name}
    return lambda frame: {frame.voucher, frame.node} == names


def held(sim: Simulation, which: Callable[[Frame], bool]) -> Frame:
    """The next frame of that kind is late, and all others after it until it comes."""
    kept: list[Frame] = []

    def loses(frame: Frame) -> bool:
        if kept or which(frame):
            kept.append(frame)
        return bool(kept)

    sim.is_lost = loses
    while not kept:
        sim.run_quickly(10)
    return kept[0]


def just_renewed(node: Node) -> None:
    """Goes on until then, so that the API's fence of the node is as far ahead as it gets."""
    before = node.kernel.fence
    while node.kernel.fence == before:
        node.sim.run_quickly(10)


# ---- what an operator sees ----


def node_dies() -> None:
    """It is replaced after d."""
    for phase in range(0, R, R // 5):
        sim, (owner, other) = a_vouched()
        sim.run_quickly(phase)
        owner.die()
        sim.run_quickly(GRANT + 100)
        assert answering(sim) == [other.name]


def node_dies_where_nobody_else_sends() -> None:
    """It is replaced after 2d: what its voucher hears is nothing."""
    sim, (owner, other) = a_vouched()
    sim.heard = lambda _node: 7
    owner.die()
    sim.run_quickly(2 * GRANT - 100)
    assert answering(sim) == []
    sim.run_quickly(200)
    assert answering(sim) == [other.name]


def voucher_loses_its_link() -> None:
    """It decides, and the node has un-bound before: it answers on."""
    sim, (owner, voucher) = a_vouched()
    voucher.unplugged = True
    for _ in range(30):
        sim.run_quickly(100)
        assert answering(sim) == [owner.name]
    assert not owner.kernel.bound


def node_dies_with_its_voucher() -> None:
    """It is replaced after 2d."""
    sim, (owner, voucher, _) = a_vouched(THREE, naming=3)
    owner.die()
    voucher.die()
    sim.run_quickly(2 * GRANT + 200)
    assert answering(sim) == ["n2"]


def voucher_dies() -> None:
    """The node has to find another one, and answers on."""
    sim, (owner, voucher, other) = a_vouched(THREE)
    voucher.die()
    for _ in range(40):
        sim.run_quickly(100)
        assert answering(sim) == [owner.name]
    assert not owner.kernel.bound
    owner.name_voucher(other.name)
    sim.run_quickly(R)
    for _ in range(10):
        sim.run_quickly(100)
        assert answering(sim) == [owner.name]
    assert owner.kernel.bound


def api_is_away() -> None:
    """For nearly as long as a node that is bound may answer: all do."""
    sim, nodes = a_vouched(THREE, naming=3)
    for phase in range(3):
        sim.run_quickly(phase * R)
        for node in nodes:
            node.cut_off = True
        for _ in range(int((BOUND * (1 - M / D) - BOUND / 6 - 200) // 100)):
            sim.run_quickly(100)
            assert answering(sim) == [nodes[0].name]
        for node in nodes:
            node.cut_off = False
        sim.run_quickly(2 * R)
        assert answering(sim) == [nodes[0].name]


def agent_is_killed() -> None:
    """Its kernel is alive, and answers on: nothing moves for as long as its lease lasts, and no longer."""
    sim, (owner, other) = a_vouched(UNFAIR)
    owner.paused = True
    for _ in range(50):
        sim.run_quickly(100)
        assert answering(sim) == [owner.name]
    sim.run_quickly(3 * BOUND / 2)
    assert answering(sim) == [other.name]


def voucher_that_cannot_revoke() -> None:
    """Its process grants on, but its agent hangs, or does not reach the API server: the node leaves it in time."""
    for trouble in ("paused", "cut_off"):
        for phase in range(0, BOUND // 6, BOUND // 18):
            sim, (owner, voucher, other) = a_vouched(THREE, naming=2)
            sim.run_quickly(phase)
            setattr(voucher, trouble, True)
            for _ in range(BOUND // 200):
                sim.run_quickly(100)
                assert answering(sim) == [owner.name]
            assert voucher.kernel.right(voucher.now()), "it would grant no more anyway"
            assert not owner.kernel.bound
            owner.die()
            sim.run_quickly(D + R)
            assert answering(sim) == [other.name]


def outage_leaves_vouchers() -> None:
    """After one in which nobody could renew for long nobody has left its voucher."""
    for phase in range(0, BOUND // 6, R // 4):
        sim, nodes = a_vouched(THREE, naming=3)
        sim.run_quickly(phase)
        for node in nodes:
            node.cut_off = True
        sim.run_quickly(BOUND // 2)
        for node in nodes:
            node.cut_off = False
        sim.run_quickly(BOUND // 2)
        assert all(node.kernel.bound and not node.core.heartbeat.naming.unbinds for node in nodes)


# ---- nodes whose renewals nobody is shown ----


def a_quiet_ring(count: int = 3) -> tuple[Simulation, list[Node]]:
    """All have been bound for long."""
    sim, nodes = a_vouched((1.0,) * count, naming=count)
    sim.run_quickly(2 * BOUND)
    return sim, nodes


def quiet_nodes() -> None:
    """They show each other nothing, count each other as alive, read some of them now and then, and write to renew."""
    sim, nodes = a_quiet_ring(MANY)
    api = sim.api
    asked, written, shown = len(api.reads), api.writes, len(api.shown)
    sim.run_quickly(4 * BOUND)
    assert len(api.shown) == shown
    assert asked < len(api.reads) <= asked + 4 * (2 * SWEPT + 5) * len(nodes)
    assert api.writes <= written + (4 * 6 + 1) * len(nodes)
    for node in nodes:
        others = [other.name for other in nodes if other is not node]
        assert all(node.core.peers.alive(other, node.now()) for other in others)
        assert node.kernel.bound
        assert not node.core.heartbeat.naming.unbinds
    assert answering(sim) == [nodes[0].name]


def quiet_node_dies() -> None:
    """It is replaced after d, though its voucher has not seen its last version."""
    for phase in range(0, BOUND // 6, BOUND // 18):
        sim, nodes = a_quiet_ring()
        sim.run_quickly(phase)
        nodes[0].die()
        sim.run_quickly(GRANT + 100)
        assert len(answering(sim)) == 1


def quiet_node_dies_with_its_voucher() -> None:
    """It is replaced after 2d."""
    for phase in range(0, BOUND // 2, BOUND // 12):
        sim, (owner, voucher, other) = a_quiet_ring()
        sim.run_quickly(phase)
        owner.die()
        voucher.die()
        sim.run_quickly(2 * GRANT + 200)
        assert answering(sim) == [other.name]


def quiet_agent_is_killed() -> None:
    """The other node reads its last version within half a lease, and replaces it a lease after that."""
    for phase in range(0, BOUND // 3, BOUND // 12):
        sim, (owner, other) = a_vouched()
        sim.run_quickly(2 * BOUND + phase)
        owner.paused = True
        sim.run_quickly(5 * BOUND / 3)
        assert answering(sim) == [other.name]


def revocation_of_a_quiet_node_on_its_way() -> None:
    """It was silent for its lease, by a read, too; the revocation comes when it has renewed again."""
    sim, (owner, *others) = a_quiet_ring()
    for other in others:
        other.revokes_late = True
    owner.paused = True
    while not any(other.revokes(request) for other in others for request in other.requests):
        sim.run_quickly(100)
    assert answering(sim) == []
    owner.paused = False
    sim.run_quickly(R)
    assert answering(sim) == [owner.name]
    for other in others:
        other.revokes_late = False
    sim.run_quickly(R)
    assert answering(sim) == [owner.name]


def quiet_heartbeat_is_deleted() -> None:
    """Its node is cut off, and the only other one that wants the VIP does not look after it: it hears all the same."""
    sim, nodes = a_quiet_ring(MANY)
    names, owner = [node.name for node in nodes], nodes[0]
    heir = next(node for node in nodes[1:] if owner.name not in following(node.name, {*names} - {node.name}))
    for node in nodes:
        node.wish(sim.vips if node in (owner, heir) else ())
    owner.cut_off = True
    sim.api.delete_heartbeat(owner.name)
    sim.run_quickly(3 * BOUND)
    assert answering(sim) == [heir.name]


# ---- nodes that renew seldom ----


def a_seldom_heard(phase: float) -> tuple[Simulation, Node, Node]:
    """The second node has the VIP, and nobody vouches for it; the first one wants the VIP, and renews seldom."""
    sim, (seldom, owner) = a_vouched(bound=LONG)
    seldom.wish(())
    sim.run_quickly(R)
    assert answering(sim) == [owner.name]
    seldom.wish(sim.vips)
    sim.run_quickly(phase)
    return sim, seldom, owner


def outage_that_few_notice() -> None:
    """The API server is away for less long than a bound node takes to renew: it holds that against nobody."""
    for phase in range(0, LONG // 6, R + R // 4):
        sim, seldom, owner = a_seldom_heard(phase)
        epoch = owner.kernel.epoch
        seldom.cut_off = owner.cut_off = True
        sim.run_quickly(D + phase / 4)
        seldom.cut_off = owner.cut_off = False
        sim.run_quickly(2 * R)
        assert owner.kernel.epoch == epoch, "revoked for the outage"
        assert answering(sim) == [owner.name]


def voucher_in_an_outage() -> None:
    """The same, of nodes that vouch for others, and have no VIP."""
    for phase in range(0, LONG // 6, 2 * R):
        sim, nodes = a_vouched(THREE, naming=1, bound=LONG)
        sim.run_quickly(phase)
        epochs = [node.kernel.epoch for node in nodes]
        for node in nodes:
            node.cut_off = True
        sim.run_quickly(2 * D)
        for node in nodes:
            node.cut_off = False
        sim.run_quickly(2 * R)
        assert [node.kernel.epoch for node in nodes] == epochs, "revoked for the outage"


def node_dies_without_a_voucher() -> None:
    """It is replaced after D, by one that renews seldom, too."""
    for phase in range(0, LONG // 6, 2 * R):
        sim, seldom, owner = a_seldom_heard(phase)
        owner.die()
        sim.run_quickly(D + R / 5)
        assert answering(sim) == [seldom.name]


# ---- a node, its voucher, and what is between them ----


def cut_off() -> None:
    """Neither the API server nor the voucher is heard of, at any moment between two pings."""
    for phase in range(0, 60, 20):
        sim, (owner, other) = a_vouched(UNFAIR)
        sim.run_quickly(phase)
        owner.unplugged = owner.cut_off = True
        sim.run_quickly(2 * GRANT)
        assert answering(sim) == [other.name]


def cut_off_and_restarts() -> None:
    sim, (owner, other) = a_vouched()
    owner.unplugged = owner.cut_off = True
    sim.run_quickly(WINDOW / 2)
    owner.boot()
    sim.run_quickly(2 * GRANT)
    assert answering(sim) == [other.name]


def revoked_and_back() -> None:
    """It finds that its epoch is over while the API's fence lies ahead."""
    sim, (owner, other) = a_vouched()
    owner.unplugged = owner.cut_off = True
    sim.run_quickly(GRANT + 100)
    owner.cut_off = False
    sim.run_quickly(2 * R)
    assert answering(sim) == [other.name]


def segment_is_dead() -> None:
    """The API server is there: the node un-binds, and its voucher has to let it be."""
    sim, (owner, _) = a_vouched()
    owner.unplugged = True
    for _ in range(20):
        sim.run_quickly(GRANT / 5)
        assert answering(sim) == [owner.name]
    assert not owner.kernel.bound


def slow_ping() -> None:
    """A ping reaches the node late; then nothing does. The stamp is from then."""
    sim, (owner, other) = a_vouched()
    ping = held(sim, lambda frame: frame.answer is None and not frame.stamp)
    owner.cut_off = True
    sim.run_quickly(GRANT - 200)
    sim.is_lost = lambda frame: frame.number != ping.number
    sim.deliver(ping)
    sim.run_quickly(2 * GRANT)
    assert answering(sim) == [other.name]


def slow_grant() -> None:
    sim, (owner, other) = a_vouched()
    grant = held(sim, grants)
    owner.cut_off = True
    sim.run_quickly(GRANT - 200)
    sim.is_lost = lambda frame: frame is not grant
    sim.deliver(grant)
    sim.run_quickly(2 * GRANT)
    assert answering(sim) == [other.name]


def decision_that_is_late() -> None:
    """The agent of the voucher hears late that it has decided; meanwhile the node is there again."""
    sim, (owner, other) = a_vouched()
    owner.unplugged = owner.cut_off = True
    other.paused = True
    sim.run_quickly(GRANT + 100)
    owner.unplugged = False
    sim.run_quickly(GRANT)
    other.paused = False
    sim.run_quickly(R)
    assert answering(sim) == [other.name]


def decision_after_it_was_un_bound() -> None:
    """The agent of the voucher hears of the decision when the heartbeat names nobody any more."""
    sim, (owner, other) = a_vouched()
    owner.unplugged = other.paused = True
    sim.run_quickly(GRANT + 200)
    other.paused = False
    sim.run_quickly(R)
    assert answering(sim) == [owner.name]


def grants_are_lost() -> None:
    """The node is named, and not bound: it answers by the API's fence, and is revoked after its lease."""
    sim, (owner, other) = a_vouched(naming=0)
    owner.name_voucher(other.name)
    sim.is_lost = grants
    sim.run_quickly(R)
    just_renewed(owner)
    owner.unplugged = owner.cut_off = True
    sim.run_quickly(D - M - 50)
    assert answering(sim) == [owner.name]
    sim.run_quickly(D)
    assert answering(sim) == [other.name]


def named_again() -> None:
    """In a second term the grants are lost. That the node was bound in the first one says nothing."""
    sim, (owner, other) = a_vouched()
    owner.name_voucher(None)
    sim.run_quickly(100)
    owner.name_voucher(other.name)
    sim.is_lost = grants
    sim.run_quickly(R)
    assert not owner.kernel.bound
    just_renewed(owner)
    owner.unplugged = owner.cut_off = True
    sim.run_quickly(D + R)
    assert answering(sim) == [other.name]


def two_terms() -> None:
    """A voucher that was left behind grants on in its own term."""
    sim, (owner, before, after) = a_vouched(THREE)
    before.paused = True
    owner.name_voucher(after.name)
    sim.run_quickly(R)
    assert owner.kernel.bound
    owner.cut_off = True
    sim.is_lost = between(owner, after)
    sim.run_quickly(2 * GRANT)
    assert answering(sim) == [after.name]


def back_to_the_first() -> None:
    """A voucher that has decided is named again, after another one, before its agent hears what it decided."""
    sim, (owner, first, second) = a_vouched(THREE)
    first.paused = True
    owner.unplugged = True
    sim.run_quickly(2 * GRANT)
    owner.unplugged = False
    for voucher in (second, first):
        owner.name_voucher(voucher.name)
        sim.run_quickly(R / 2)
    owner.paused = True
    first.paused = False
    sim.run_quickly(R / 2)


def renaming_that_is_stuck() -> None:
    sim, (owner, before, after) = a_vouched(THREE)
    owner.unplugged = owner.stalled = True
    owner.name_voucher(after.name)
    sim.run_quickly(2 * GRANT)
    assert before.name in answering(sim) or after.name in answering(sim)


def revocation_on_its_way() -> None:
    """It comes when the node has been un-bound."""
    sim, (owner, other) = a_vouched()
    owner.unplugged = owner.stalled = other.revokes_late = True
    sim.run_quickly(GRANT + 150)
    assert any(map(other.revokes, other.requests))
    owner.stalled = False
    sim.run_quickly(10)
    other.revokes_late = False
    sim.run_quickly(R)
    assert answering(sim) == [owner.name]


def voucher_restarts_after_it_decided() -> None:
    """Its revocation comes later."""
    sim, (owner, other) = a_vouched()
    owner.unplugged = owner.cut_off = other.revokes_late = True
    sim.run_quickly(GRANT + 150)
    revocation = next(filter(other.revokes, other.requests))
    other.boot()
    other.revokes_late = owner.unplugged = False
    other.requests.remove(revocation)
    sim.run_quickly(WINDOW)
    other.perform(revocation)
    sim.run_quickly(2 * GRANT)
    assert answering(sim) == [other.name]


def voucher_restarts_without_a_right() -> None:
    """It hears that the node is bound, and may not grant; the agent before it granted just now."""
    sim, (owner, other) = a_vouched()
    owner.cut_off = True
    other.boot()
    other.kernel.fence = 0
    other.paused = False
    sim.run_quickly(1)
    sim.run_quickly(WINDOW / 4)
    owner.unplugged = True
    sim.run_quickly(2 * GRANT)


def agent_that_was_replaced() -> None:
    """It was about to tell the kernel what the heartbeat names no more."""
    sim, (owner, _) = a_vouched()
    owner.name_voucher(None)
    while not any(isinstance(effect, SetTerm | ClearTerm) for effect in owner.todo):
        look_and_answer(owner)
    owner.boot()
    owner.sim.run_quickly(R)
    owner.name_voucher("n1")
    sim.run_quickly(R)
    assert owner.kernel.bound
    while owner.late:
        owner.do_term(owner.late.popleft())


def look_and_answer(node: Node) -> None:
    """All that it asks of the server is done, but what is answered is not acted on yet."""
    while node.todo and not isinstance(node.todo[0], SetTerm | ClearTerm):
        node.do_next()
    for request in list(node.requests):
        node.requests.remove(request)
        node.perform(request)
        node.answer(request, lost=False)


# ---- leases ----


def un_named() -> None:
    """From then on it has a short lease; cut off at once, or in the middle of the change."""
    for lost in (False, True):
        sim, (owner, other) = a_vouched()
        owner.name_voucher(None)
        owner.deaf = lost
        sim.run_quickly(10)
        owner.cut_off = owner.unplugged = True
        owner.deaf = False
        sim.run_quickly(D + R)
        assert answering(sim) == [other.name]


def un_naming_that_is_slow() -> None:
    """Its voucher grants on until the node knows that the API server has it."""
    sim, (owner, _) = a_vouched()
    owner.name_voucher(None)
    owner.deaf = True
    for _ in range(15):
        sim.run_quickly(100)
        assert answering(sim) == [owner.name]
    assert owner.kernel.bound
    owner.deaf = False
    sim.run_quickly(100)
    assert answering(sim) == [owner.name]
    assert not owner.kernel.bound


def voucher_that_rests() -> None:
    """It owns nothing, and has a right all the same, for longer than a list of its claims counts."""
    sim = Simulation(FAIR, vips=1, vouching=True, seeks=False)
    owner, other = sim.nodes
    other.take_part(False)
    owner.wish(sim.vips)
    sim.run_quickly(2 * R)
    assert other.core.heartbeat.lease.resting
    owner.name_voucher(other.name)
    sim.run_quickly(R)
    for _ in range(8 * D // 100):
        sim.run_quickly(100)
        assert owner.kernel.bound
        assert answering(sim) == [owner.name]


def parts() -> None:
    """Without a voucher, and after that is sure."""
    sim, (owner, other) = a_vouched()
    owner.part()
    sim.run_quickly(1)
    assert owner.core.heartbeat.parted
    assert not owner.kernel.bound
    other.voucher_stalled = True
    sim.run_quickly(2 * D, without=(owner,))
    assert answering(sim) == [owner.name]
    owner.boot()
    sim.run_quickly(D)
    assert answering(sim) == [owner.name]


def cannot_part() -> None:
    """The API server confirms nothing: the agent ends without a parting lease, and the kernel keeps its voucher."""
    sim, (owner, other) = a_vouched()
    owner.stalled = True
    owner.part()
    owner.cut_off, owner.stalled = True, False
    sim.run_quickly(100)
    assert owner.core.heartbeat.parted
    assert owner.kernel.bound
    owner.unplugged = True
    sim.run_quickly(2 * GRANT)
    assert answering(sim) == [other.name]


def _goes_after_the_longest_lease(sim: Simulation) -> None:
    """The first node is cut off and granted on, its heartbeat is deleted: a third answers when that must be over."""
    owner, voucher, other = sim.nodes
    owner.cut_off = voucher.paused = True
    sim.api.delete_heartbeat(owner.name)
    sim.run_quickly(BOUND / 4)
    assert answering(sim) == [owner.name]
    sim.run_quickly(2 * BOUND)
    assert answering(sim) == [other.name]


def heartbeat_of_a_bound_node_is_deleted() -> None:
    """It hears of nothing, and is granted on: what was in its epoch is void after the longest lease.

    Others find out when they read it: soon, or only half a lease later.
    """
    for phase in range(0, BOUND // 2, BOUND // 8):
        sim, _ = a_vouched(THREE, naming=2)
        sim.run_quickly(phase)
        _goes_after_the_longest_lease(sim)


def heartbeat_is_deleted_and_its_node_returns() -> None:
    """It has another epoch then, and does not want the VIP any more: nobody waits for the longest lease."""
    sim, (owner, voucher, _) = a_vouched(THREE, naming=2)
    owner.cut_off = True
    sim.api.delete_heartbeat(owner.name)
    sim.run_quickly(R)
    assert answering(sim) == [owner.name]
    owner.wish(())
    owner.cut_off = False
    sim.run_quickly(3 * R)
    assert answering(sim) == [voucher.name]


def claim_from_before_vouching() -> None:
    """It says nothing of the heartbeat; and its holder's agent, which was restarted, is bound in the same epoch."""
    sim = Simulation(THREE, vips=1, vouching=True, seeks=False)
    owner, voucher, other = sim.nodes
    owner.times = TIMES
    owner.boot()
    owner.wish(sim.vips)
    sim.run_quickly(2 * R)
    owner.times = sim.times
    owner.boot()
    other.wish(sim.vips)
    sim.run_quickly(R)
    owner.name_voucher(voucher.name)
    voucher.name_voucher(other.name)
    sim.run_quickly(R)
    assert owner.kernel.bound
    assert not sim.api.objects[sim.vips[0]].holder_uid

    _goes_after_the_longest_lease(sim)


def heartbeat_of_a_parted_node_is_deleted() -> None:
    """It answers for longer than a bound one, and voids nothing before that: nobody has seen a longer lease of it."""
    sim, (owner, other) = a_vouched(naming=0)
    owner.part()
    sim.run_quickly(10)
    sim.api.delete_heartbeat(owner.name)
    sim.run_quickly(PARTING / MS * (1 - M / D) - 200, without=(owner,))
    assert answering(sim) == [owner.name]
    sim.run_quickly(PARTING / MS, without=(owner,))
    assert answering(sim) == [other.name]


# ---- the chain ----


def a_chain() -> tuple[Simulation, list[Node]]:
    """The voucher's voucher hears nothing more of it, and neither does the API server; it grants until its own end."""
    sim, nodes = a_vouched(THREE, naming=2)
    owner, voucher, last = nodes
    owner.cut_off = voucher.cut_off = True
    sim.is_lost = between(voucher, last)
    return sim, nodes


def chain() -> None:
    sim, (_, _, last) = a_chain()
    sim.run_quickly(3 * GRANT)
    assert answering(sim) == [last.name]


def ring() -> None:
    """The same, and the last one has the first one for a voucher."""
    sim, (owner, voucher, last) = a_vouched(THREE, naming=3)
    owner.cut_off = voucher.cut_off = True
    sim.is_lost = between(voucher, last)
    sim.run_quickly(3 * GRANT)
    assert answering(sim) == [last.name]


def chain_from_the_side() -> None:
    """Who revokes the node has only seen that its voucher is over, and later; the node has had another one since."""
    for back in (False, True):
        sim, (owner, voucher, _, other) = a_vouched((1.0, 1.0, 1.0, 1.0), naming=2)
        owner.cut_off = True
        voucher.reboot()
        sim.run_quickly(R + GRANT - 100)
        other.revokes_late = sim.nodes[2].revokes_late = voucher.revokes_late = True
        sim.run_quickly(300)
        owner.cut_off = not back
        sim.run_quickly(R)
        other.revokes_late = sim.nodes[2].revokes_late = voucher.revokes_late = False
        sim.run_quickly(R)
        assert (answering(sim) == [owner.name]) == back


def chain_of_one_that_is_not_bound() -> None:
    """The grants were lost, and so it answers by the API's fence, whatever became of its voucher."""
    sim, (owner, voucher, _) = a_vouched(THREE, naming=0)
    owner.retime(OTHER_TIMES[1])
    owner.name_voucher(voucher.name)
    sim.is_lost = grants
    sim.run_quickly(R)
    just_renewed(owner)
    owner.paused = True
    voucher.reboot()
    sim.run_quickly(3 * R)
    assert answering(sim) == [owner.name]


def voucher_that_looked_early() -> None:
    """It looked at its right; that ends; a pong comes which it has asked for before."""
    sim, (_, voucher, last) = a_chain()
    lost = sim.is_lost
    late = held(sim, lambda frame: lost(frame) or (frame.voucher == voucher.name and frame.answer is None))
    while late.voucher != voucher.name or late.answer or late.stamp:
        late = held(sim, lambda frame: lost(frame) or frame.voucher == voucher.name)
    voucher.voucher_stalled = True
    sim.run_quickly(2 * GRANT - 500)
    sim.is_lost = lambda frame: frame.number != late.number
    sim.deliver(late)
    sim.run_quickly(1)
    voucher.voucher_stalled = False
    sim.run_quickly(2 * GRANT)
    assert answering(sim) == [last.name]


def voucher_in_another_epoch() -> None:
    """It was revoked, and is back, in the same instance: it grants no more in the terms of the epoch before."""
    sim, (owner, voucher, last) = a_vouched(THREE, naming=2)
    owner.cut_off = voucher.cut_off = True
    sim.is_lost = between(voucher, last)
    sim.run_quickly(GRANT + 100)
    voucher.cut_off = False
    sim.run_quickly(3 * GRANT)
    assert answering(sim) in (["n1"], ["n2"])


def backup_is_restored() -> None:
    """Nodes that are bound renew seldom, and no watch shows it: each notices when it renews next."""
    sim, nodes = a_quiet_ring()
    backup = dict(sim.api.objects)
    sim.api.others_write(1000)
    nodes[0].wish(())
    sim.run_quickly(R)
    nodes[0].wish(sim.vips)
    sim.run_quickly(BOUND // 6)
    assert answering(sim) not in ([], [nodes[0].name])

    with sim.outage(BOUND):
        assert answering(sim) == []
        sim.api.restore(backup)
    sim.run_quickly(BOUND)
    assert len(answering(sim)) == 1
    assert [node.incarnation for node in nodes] == [2] * len(nodes)


def backup_of_an_earlier_term_is_restored() -> None:
    """It is from before the node was bound in that term, which the node's next agent takes up where it was."""
    sim, (owner, voucher) = a_vouched(naming=0)
    sim.is_lost = grants
    owner.name_voucher(voucher.name)
    sim.run_quickly(R // 5)
    backup = dict(sim.api.objects)
    earlier = owner.kernel.term
    assert earlier
    sim.api.others_write(1000)

    sim.is_lost = lambda _frame: False
    sim.run_quickly(R)
    voucher.unplugged = True
    sim.run_quickly(R)
    voucher.unplugged = False
    owner.name_voucher(voucher.name)
    sim.run_quickly(R)
    assert owner.kernel.bound
    assert owner.kernel.term != earlier

    with sim.outage(BOUND):
        sim.api.restore(backup)
    owner.boot()
    sim.run_quickly(BOUND)
    assert answering(sim) == [owner.name]
    assert (voucher.incarnation, owner.incarnation) == (2, 2)


STORIES = [
    node_dies,
    node_dies_where_nobody_else_sends,
    voucher_loses_its_link,
    node_dies_with_its_voucher,
    voucher_dies,
    api_is_away,
    agent_is_killed,
    voucher_that_cannot_revoke,
    outage_leaves_vouchers,
    quiet_nodes,
    quiet_node_dies,
    quiet_node_dies_with_its_voucher,
    quiet_agent_is_killed,
    revocation_of_a_quiet_node_on_its_way,
    quiet_heartbeat_is_deleted,
    outage_that_few_notice,
    voucher_in_an_outage,
    node_dies_without_a_voucher,
    cut_off,
    cut_off_and_restarts,
    revoked_and_back,
    segment_is_dead,
    slow_ping,
    slow_grant,
    decision_that_is_late,
    decision_after_it_was_un_bound,
    grants_are_lost,
    named_again,
    two_terms,
    back_to_the_first,
    renaming_that_is_stuck,
    revocation_on_its_way,
    voucher_restarts_after_it_decided,
    voucher_restarts_without_a_right,
    agent_that_was_replaced,
    un_named,
    un_naming_that_is_slow,
    voucher_that_rests,
    parts,
    cannot_part,
    heartbeat_of_a_bound_node_is_deleted,
    heartbeat_is_deleted_and_its_node_returns,
    claim_from_before_vouching,
    heartbeat_of_a_parted_node_is_deleted,
    chain,
    ring,
    chain_from_the_side,
    chain_of_one_that_is_not_bound,
    voucher_that_looked_early,
    voucher_in_another_epoch,
    backup_is_restored,
    backup_of_an_earlier_term_is_restored,
]
