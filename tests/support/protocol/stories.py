"""Stories of the simulated cluster: each must go well, and some broken rules break in them (`broken_rules`)."""

from itertools import product

from arpguard.core.ownership.records import ClearEntry, WriteClaim, WriteHeartbeat
from support.protocol.simulation import MS, OTHER_TIMES, OUTSIDE, PARTING, TIMES, Backup, D, M, Node, R, S, Simulation


def a_pair(rates=(1.0, 1.0)) -> tuple[Simulation, Node, Node]:
    """The first node answers for the one VIP; the second wants it as well."""
    sim = Simulation(rates, vips=1)
    for node in sim.nodes:
        node.wish(sim.vips)
        sim.run_quickly(5 * R)
    assert sim.answering(sim.vips[0]) == ["n0"]
    return sim, *sim.nodes


def partition() -> None:
    """The owner's clock is as slow, and the other's as fast, as the margin just allows."""
    for phase in range(0, R, R // 5):
        sim, owner, _ = a_pair((0.81, 1.19))
        sim.run_quickly(phase)
        owner.cut_off = True
        sim.run_quickly(2 * D)
        assert sim.answering(sim.vips[0]) == ["n1"]


def slow_answers() -> None:
    """The owner's renewals are answered late; then no more."""
    sim, owner, _ = a_pair()
    tick_when_due(owner)
    owner.do_next()
    owner.perform(owner.requests[0])
    sim.run_quickly(D - M, without=(owner,))
    owner.answer(owner.requests[0], lost=False)
    owner.do_next()
    sim.run_quickly(2 * D, without=(owner,))


def tick_when_due(node: Node) -> None:
    due = node.core.next_ns(node.now())
    assert due is not None
    node.sim.pass_time((due - node.now()) / MS / node.rate + 1)
    node.tick()


def hand_over() -> None:
    sim, owner, other = a_pair()
    owner.wish(())
    before = sim.time
    sim.run_quickly(1)
    assert sim.answering(sim.vips[0]) == [other.name]
    assert sim.time - before <= 1


def parting() -> None:
    """Through a restart it answers without a gap; cut off then, for an ordinary lease and no longer."""
    sim, owner, _ = a_pair()
    owner.part()
    sim.run_quickly(1)
    assert owner.core.heartbeat.parted
    for _ in range(10):
        sim.run_quickly(D / 2, without=(owner,))
        assert sim.answering(sim.vips[0]) == ["n0"]
    owner.boot()
    for _ in range(100):
        sim.run_quickly(10)
        assert sim.answering(sim.vips[0]) == ["n0"]
    owner.cut_off = True
    sim.run_quickly(2 * D)
    assert sim.answering(sim.vips[0]) == ["n1"]


def shrinking() -> None:
    """A long lease, and then a short one; cut off at once, or in the middle of the change."""
    for lost in (False, True):
        sim, owner, _ = a_pair()
        owner.retime(OTHER_TIMES[2])
        sim.run_quickly(S - 2 * R)
        owner.retime(TIMES)
        while not isinstance(owner.requests[-1:] and owner.requests[-1].effect, WriteHeartbeat):
            tick_when_due(owner)
            while owner.todo:
                owner.do_next()
        owner.perform(owner.requests[-1])
        if not lost:
            owner.answer(owner.requests.pop(), lost=False)
        owner.take(owner.core.own_claims_listed([sim.api.objects[sim.vips[0]]], owner.now() - MS, owner.now()))
        while owner.todo:
            owner.do_next()
        sim.run_quickly(2 * D, without=(owner,))
        assert sim.answering(sim.vips[0]) == ["n1"]


def release_on_its_way() -> None:
    """The agent restarts between sending a release and its arrival."""
    sim, owner, _ = a_pair()
    owner.wish(())
    while not (owner.requests and isinstance(owner.requests[-1].effect, WriteClaim)):
        while owner.todo:
            owner.do_next()
        for request in list(owner.requests):
            if isinstance(request.effect, ClearEntry):
                owner.requests.remove(request)
                owner.perform(request)
                owner.answer(request, lost=False)
    release = owner.requests.pop()
    owner.wanted = frozenset(sim.vips)
    owner.boot()
    sim.run_quickly(10, without=(sim.nodes[1],))
    owner.perform(release)
    sim.run_quickly(D)
    assert len(sim.answering(sim.vips[0])) == 1


def stale_watch() -> None:
    """The owner comes back in a new epoch; the other reads its claim, and knows of its old heartbeat."""
    sim, owner, other = a_pair()
    other.wish(())
    sim.run_quickly(10)
    other.core.claims._vips.clear()
    owner.reboot()
    owner.wish(sim.vips)
    sim.run_quickly(D / 2, without=(other,))
    assert sim.answering(sim.vips[0]) == ["n0"]
    other.watch.clear()
    other.wish(sim.vips)
    sim.run_quickly(D)
    assert sim.answering(sim.vips[0]) == ["n0"]


def no_heartbeat() -> None:
    """Somebody deletes the owner's heartbeat."""
    sim, owner, _ = a_pair()
    sim.api.delete_heartbeat("n0")
    sim.run_quickly(D / 3, without=(owner,))
    sim.run_quickly(2 * D)
    assert len(sim.answering(sim.vips[0])) == 1


def no_heartbeat_of_a_long_lease() -> None:
    """Somebody deletes the heartbeat of an owner that has parted; the other saw it, or never did."""
    for restarts in (False, True):
        sim, owner, other = a_pair()
        owner.part()
        sim.run_quickly(10)
        sim.api.delete_heartbeat("n0")
        if restarts:
            other.boot()
        sim.run_quickly(2 * PARTING / MS, without=(owner,), longest=200)
        assert sim.answering(sim.vips[0]) == ["n1"]


def look_and_ask(node: Node) -> None:
    """A moment passes, and a node sees and does all that it can; what it asks of the server waits."""
    node.sim.pass_time(20)
    node.tick()
    while node.watch:
        node.see()
    while node.todo:
        node.do_next()


def revoked() -> None:
    """The owner is away for long, and back before its claim is taken."""
    sim, owner, other = a_pair()
    while not any(isinstance(request.effect, WriteClaim) for request in other.requests):
        look_and_ask(other)
        for request in [request for request in other.requests if not isinstance(request.effect, WriteClaim)]:
            other.requests.remove(request)
            other.perform(request)
            other.answer(request, lost=False)
    sim.run_quickly(R, without=(other,))
    sim.run_quickly(R, without=(owner,))
    sim.run_quickly(2 * D)
    assert len(sim.answering(sim.vips[0])) == 1


def frozen_watch() -> None:
    """The other sees nothing of the owner's renewals."""
    sim, _, other = a_pair()
    other.blind = True
    sim.run_quickly(3 * D)
    assert sim.answering(sim.vips[0]) == ["n0"]


def outage() -> None:
    """Nobody reaches the API server for long; the owner does so a little later than the other, and keeps the VIP."""
    sim, owner, other = a_pair()
    owner.cut_off = other.cut_off = True
    sim.run_quickly(10 * D)
    assert sim.answering(sim.vips[0]) == []
    other.cut_off = False
    sim.run_quickly(1.5 * R)
    owner.cut_off = False
    sim.run_quickly(R)
    assert sim.answering(sim.vips[0]) == ["n0"]


def stuck_create() -> None:
    """A create of the owner's heartbeat, from when it was missing, is late: it comes when the heartbeat is deleted.

    It names no version, and so it ends an epoch of which nobody has seen that its node was silent.
    """
    sim, owner, other = a_pair()
    sim.api.delete_heartbeat("n0")
    create = None
    while create is None:
        look_and_ask(other)
        for request in list(other.requests):
            other.requests.remove(request)
            if isinstance(request.effect, WriteHeartbeat) and request.effect.node == "n0":
                create = request
                break
            other.perform(request)
            other.answer(request, lost=False)
    other.take(other.failed(create.effect, other.now()))
    sim.run_quickly(3 * D)
    assert sim.answering(sim.vips[0]) == ["n0"]
    sim.api.delete_heartbeat("n0")
    other.perform(create)
    sim.run_quickly(D, without=(owner,))
    sim.run_quickly(2 * D)
    assert len(sim.answering(sim.vips[0])) == 1


def renewal_under_way() -> None:
    """The other takes over while a renewal is under way, which does not confirm what it began before."""
    sim, owner, other = a_pair()
    tick_when_due(other)
    other.do_next()
    renewal = other.requests.pop()
    assert isinstance(renewal.effect, WriteHeartbeat)
    owner.wish(())
    sim.run_quickly(1, without=(other,))
    while other.watch:
        other.see()
    other.do_next()
    claim = other.requests.pop()
    for request in (claim, renewal):
        other.perform(request)
        other.answer(request, lost=False)
    sim.run_quickly(1)
    assert sim.answering(sim.vips[0]) == ["n1"]


def two_hosts_outside() -> None:
    """Two nodes were told of two hosts that have the VIP: each says it once, and there is an end to it."""
    sim, owner, _ = a_pair()
    sim.api.delete_claim(sim.vips[0])
    sim.api.outside[sim.vips[0]] = OUTSIDE[0]
    sim.run_quickly(1)
    sim.api.outside[sim.vips[0]] = OUTSIDE[1]
    owner.boot()
    before = sim.api.writes
    sim.run_quickly(D)
    assert sim.api.writes - before <= 2 * (D // R) + 6
    assert sim.answering(sim.vips[0]) == []
    sim.settle()


def host_outside_came_while_all_were_away() -> None:
    """The owner is back first, in another epoch, and lets go of the VIP; the node that is to have it finds the host."""
    sim, owner, other = a_pair()
    for node in sim.nodes:
        node.die()
    sim.api.outside[sim.vips[0]] = OUTSIDE[0]
    sim.run_quickly(2 * D)

    owner.recover()
    owner.boot()
    owner.wish(())
    sim.run_quickly(D)
    assert sim.api.objects[sim.vips[0]].holder == ""
    other.recover()
    other.boot()
    sim.run_quickly(D)

    assert sim.answering(sim.vips[0]) == []
    assert sim.api.objects[sim.vips[0]].external == str(OUTSIDE[0])
    sim.settle()


def backup_is_restored() -> None:
    """It names the previous owner, and much was written since. Without the server all nodes fell silent."""
    for restarts, catches_up in product((True, False), repeat=2):
        sim, first, second = a_pair()
        backup = dict(sim.api.objects)
        hands_over_and_wants_again(first)
        sim.api.others_write(1000)
        restore_after_an_outage(sim, backup)
        if catches_up:  # then watches show what is new, but this one comes late
            sim.api.others_write(2000)
            second.blind = True
        if restarts:
            first.boot()  # its kernel still has the epoch that the backup has
        sim.run_quickly(4 * D)
        assert len(sim.answering(sim.vips[0])) == 1
        assert [node.name for node in sim.nodes if node.incarnation == 1] == []


def backup_that_knows_all_heartbeats_is_restored() -> None:
    """Only the claim has changed since then, so only who reads that can tell."""
    sim, first, _ = a_pair()
    backup = dict(sim.api.objects)
    hands_over_and_wants_again(first)
    heartbeats = {node.name: sim.api.objects[node.name] for node in sim.nodes}
    restore_after_an_outage(sim, backup | heartbeats)
    sim.run_quickly(S + 4 * D)
    assert len(sim.answering(sim.vips[0])) == 1


def backup_of_just_before_is_restored() -> None:
    """No Lease was written since; but watches had shown more, and will show nothing new for long."""
    sim, *nodes = a_pair()
    backup = dict(sim.api.objects)
    sim.api.others_write(1000)
    for node in nodes:
        node.bookmark()
    restore_after_an_outage(sim, backup)
    sim.run_quickly(4 * D)
    assert len(sim.answering(sim.vips[0])) == 1
    assert [node.incarnation for node in nodes] == [2, 2]


def backup_without_a_node_is_restored() -> None:
    """It joined later, and took the VIP."""
    sim, first, second = a_pair()
    backup = dict(sim.api.objects)
    del backup[second.name]
    hands_over_and_wants_again(first)
    restore_after_an_outage(sim, backup)
    sim.run_quickly(S + 4 * D)
    assert len(sim.answering(sim.vips[0])) == 1


def hands_over_and_wants_again(owner: Node) -> None:
    sim = owner.sim
    owner.wish(())
    sim.run_quickly(2 * R)
    owner.wish(sim.vips)
    sim.run_quickly(R)
    assert owner.name not in sim.answering(sim.vips[0]) != []


def restore_after_an_outage(sim: Simulation, backup: Backup) -> None:
    """No node reaches the server for a lease."""
    with sim.outage(D):
        assert sim.answering(sim.vips[0]) == []
        sim.api.restore(backup)


SCENARIOS = [
    partition,
    slow_answers,
    hand_over,
    parting,
    shrinking,
    release_on_its_way,
    stale_watch,
    frozen_watch,
    outage,
    renewal_under_way,
    stuck_create,
    no_heartbeat,
    no_heartbeat_of_a_long_lease,
    revoked,
    two_hosts_outside,
    host_outside_came_while_all_were_away,
    backup_is_restored,
    backup_that_knows_all_heartbeats_is_restored,
    backup_of_just_before_is_restored,
    backup_without_a_node_is_restored,
]
