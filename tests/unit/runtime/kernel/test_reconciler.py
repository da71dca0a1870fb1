"""The order in which the kernel is told things; what it then does is tested on the wire."""

import asyncio
import random
from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from arpguard.addresses import MacAddress
from arpguard.config.files import parse_config
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.basis import Asked
from arpguard.core.closing import NOTHING, Closing
from arpguard.errors import MapFullError
from arpguard.model import (
    Datapath,
    EntryKey,
    InterfaceAddress,
    Link,
    Owner,
    OwnerKind,
    RangeKey,
    Route,
    Standing,
    Surroundings,
    Vip,
)
from arpguard.runtime.kernel.reconciler import Reconciler, SmallPass
from arpguard.verdict import Hook, Kind, Mode
from support.programs.recorder import Control, Entries, Ranges, Recorder, Vouching

VIP = ip_address("192.0.2.50")
VIP6 = ip_address("2001:db8::50")
PEER = MacAddress.parse("02:00:00:00:00:02")
_OWN = ip_interface("192.0.2.1/24")
_ADDRESSES = (InterfaceAddress(_OWN.ip, _OWN.network),)
ETH0 = Link(2, "eth0", MacAddress.parse("02:00:00:00:00:01"), up=True, addresses=_ADDRESSES)
HERE = Surroundings(links=(ETH0,))


@pytest.fixture
def kernel() -> Recorder:
    return Recorder()


@pytest.fixture
def schedule():
    return AnnouncementSchedule()


@pytest.fixture
def reconciler(kernel, schedule):
    return Reconciler("me", Entries(kernel), Ranges(kernel), Control(kernel), kernel, schedule, Vouching(kernel))


@pytest.fixture
def apply(kernel, reconciler):
    generation = iter(range(1, 100))

    def run(text: str, *, complete: bool = True) -> list[str]:
        kernel.told.clear()
        config = parse_config(text)
        asked = Asked(config, next(generation), {vip.address: vip for vip in config.vips}, complete=complete)
        asyncio.run(reconciler.apply(asked, HERE, 0))
        return list(kernel.told)

    return run


def a_config(mode: str, override: str = "", owner: str = "{node: other}") -> str:
    more = f", mode: {override}" if override else ""
    return f"{{mode: {mode}, interfaces: [eth0], vips: [{{address: {VIP}, owner: {owner}{more}}}]}}"


def test_entries_of_both_families_may_be_missing_at_once(kernel, reconciler, apply):
    vips = ", ".join(f"{{address: '{vip}', owner: external}}" for vip in (VIP, VIP6))
    both = f"{{mode: enforce, interfaces: [eth0], vips: [{vips}]}}"
    apply(both)
    kernel.entries.clear()

    apply(both)

    assert reconciler.state.drift.entries == 2
    assert {key.vip for key in kernel.entries} == {VIP, VIP6}


def test_entries_come_before_the_first_control_value(apply):
    """Until then the programs decide nothing."""
    assert apply(a_config("enforce")) == ["entry FOREIGN INHERIT", "control ENFORCE"]


def test_node_enforces_before_entries_lose_their_own_mode(apply):
    apply(a_config("observe", "enforce"))

    told = apply(a_config("enforce"))

    assert told.index("control ENFORCE") < told.index("entry FOREIGN INHERIT")


def test_node_stops_enforcing_after_entries_got_their_own_mode(apply):
    apply(a_config("enforce"))

    told = apply(a_config("observe", "enforce"))

    assert told.index("entry FOREIGN ENFORCE") < told.index("control OBSERVE")


def test_what_is_given_up_is_written_before_what_is_taken(apply, kernel):
    other = VIP + 1
    both = (
        "{{mode: enforce, interfaces: [eth0], vips: "
        "[{{address: {}, owner: {{node: me}}}}, {{address: {}, owner: {{node: other}}}}]}}"
    )
    apply(both.format(VIP, other))

    assert apply(both.format(other, VIP))[:2] == ["entry FOREIGN INHERIT", "entry OWNED INHERIT"]
    assert kernel.entries[EntryKey(2, other)].kind is Kind.OWNED


def test_program_that_cannot_be_attached_again_is_not_taken_off(apply, kernel):
    apply(a_config("enforce"))
    kernel.refuses = True

    assert not [step for step in apply(a_config("enforce")) if step.startswith("detach")]


def test_program_on_a_link_that_is_not_wanted_any_more_is_taken_off(apply):
    apply(a_config("enforce"))

    told = apply("{mode: enforce, interfaces: ['eth9*']}")

    assert {step for step in told if step.startswith("detach")} == {"detach TC_EGRESS", "detach TC_INGRESS"}
    assert told.index(f"delete {VIP}") < told.index("detach TC_INGRESS")


def test_filters_on_other_links_go_once_all_that_is_to_be_guarded_is_known_and_has_programs(apply, kernel):
    """Of an agent before this one, or of `arpguard early`: what is under a bridge."""
    own, strays = [(2, Hook.TC_INGRESS), (2, Hook.TC_EGRESS)], [(7, Hook.TC_INGRESS), (7, Hook.TC_EGRESS)]
    kernel.filters_at = own + strays
    apply(a_config("enforce"), complete=False)
    assert kernel.filters_at == own + strays
    kernel.refuses = True
    apply(a_config("enforce"))
    assert kernel.filters_at == own + strays
    kernel.refuses = False
    apply(a_config("enforce"))
    assert kernel.filters_at == own


def test_they_are_looked_for_once(apply, kernel):
    apply(a_config("enforce"))
    kernel.filters_at = [(7, Hook.TC_INGRESS)]  # another agent's
    apply(a_config("enforce"))
    assert kernel.filters_at == [(7, Hook.TC_INGRESS)]


def test_pass_without_a_change_writes_no_entry_and_what_others_took_away_comes_back(apply, kernel):
    apply(a_config("enforce"))
    unchanged = apply(a_config("enforce"))
    kernel.entries.clear()
    mended = apply(a_config("enforce"))

    assert not [step for step in unchanged if step.startswith("entry")]
    assert "entry FOREIGN INHERIT" in mended


def test_entries_that_did_not_fit_are_tried_again_in_the_next_pass(apply, kernel):
    kernel.room = 0
    refused = apply(a_config("enforce"))
    kernel.room = 1

    assert not [step for step in refused if step.startswith("entry")]
    assert "entry FOREIGN INHERIT" in apply(a_config("enforce"))


def a_config6(mode: str, override: str = "") -> str:
    return a_config(mode, override).replace(str(VIP), f"'{VIP6}'")


def test_kernel_is_told_of_the_first_ipv6_entry_before_and_of_the_last_afterwards(apply, kernel):
    apply(a_config("enforce"))

    added = apply(a_config6("enforce"))
    removed = apply(a_config("enforce"))

    assert added.index("control ENFORCE, IPv6 ENFORCE") < added.index("entry FOREIGN INHERIT")
    assert removed.index(f"delete {VIP6}") < removed.index("control ENFORCE")
    assert kernel.value.strictest6 is Mode.INHERIT


def test_ipv6_entries_are_enforced_before_they_lose_their_own_mode(apply, kernel):
    apply(a_config6("observe"))
    assert kernel.value.strictest6 is Mode.OBSERVE

    told = apply(a_config6("enforce"))

    assert told[0] == "control ENFORCE, IPv6 ENFORCE"


def test_ipv6_entry_with_a_mode_of_its_own_is_told_of_before(apply):
    apply(a_config6("observe"))

    told = apply(a_config6("observe", "enforce"))

    assert told.index("control OBSERVE, IPv6 ENFORCE") < told.index("entry FOREIGN ENFORCE")


def test_small_pass_tells_of_the_first_ipv6_entry_before_and_leaves_the_range_alone(apply, kernel, reconciler):
    apply("{mode: enforce, interfaces: [eth0], vips: []}")
    config, vips4 = reconciler._basis.asked.config, kernel.value.vips4

    assert reconciler.update(Asked(config, 1, {VIP6: Vip(VIP6, Owner(OwnerKind.EXTERNAL))}), HERE, 0) is SmallPass.DONE
    assert kernel.told[-2:] == ["control ENFORCE, IPv6 ENFORCE", "entry EXTERNAL INHERIT"]
    assert kernel.value.vips4 == vips4
    assert reconciler.state.drift.control == 0


# ---- elected VIPs ----

ELECTED = a_config("enforce", owner="elect")
MINE = Standing(Kind.OWNED, epoch=7)
KEY = EntryKey(2, VIP)


def test_elected_vip_is_nobodys_before_anything_is_known(apply, kernel):
    apply(ELECTED)

    assert kernel.entries[KEY].kind is Kind.UNCLAIMED


@pytest.mark.parametrize("standing", [MINE, Standing(Kind.FOREIGN, mac=PEER), Standing(Kind.EXTERNAL, mac=PEER)])
def test_outcome_of_an_election_is_told_at_once_and_stays(apply, kernel, reconciler, standing):
    apply(ELECTED)
    kernel.told.clear()

    reconciler.take_standings({VIP: standing}, 0)
    told = list(kernel.told)
    apply(ELECTED)

    entry = kernel.entries[KEY]
    assert told == [f"entry {standing.kind.name} INHERIT"]
    assert (entry.kind, entry.epoch, entry.owner_mac, entry.unfenced) == (
        standing.kind,
        standing.epoch,
        standing.mac,
        False,
    )
    assert reconciler.state.drift.entries == 0


def test_election_of_a_vip_with_another_owner_changes_nothing(apply, kernel, reconciler):
    apply(a_config("enforce"))
    kernel.told.clear()

    reconciler.take_standings({VIP: MINE}, 0)

    assert kernel.told == []


def test_taking_over_is_announced_and_giving_up_is_not(apply, reconciler, schedule):
    apply(ELECTED)

    reconciler.take_standings({VIP: MINE}, 5)
    first = schedule.take_due(5)
    reconciler.take_standings({VIP: Standing(Kind.UNCLAIMED)}, 6)

    assert first == [KEY]
    assert schedule.next_ns(6) is None
    assert reconciler.speaking.announceable(KEY) is None
    assert reconciler.state.ownership_changes == 2


def test_taking_over_on_a_link_that_is_being_added_is_announced_once_it_is_guarded(reconciler, schedule):
    there = ip_interface("203.0.113.1/24")
    eth1 = replace(ETH0, ifindex=3, name="eth1", addresses=(InterfaceAddress(there.ip, there.network),))
    key, attach = EntryKey(eth1.ifindex, ip_address("203.0.113.50")), reconciler.attaching.ensure
    config = parse_config(f"{{mode: enforce, interfaces: [eth0, eth1], vips: [{{address: {key.vip}, owner: elect}}]}}")
    asked = Asked(config, 1, {vip.address: vip for vip in config.vips})
    asyncio.run(reconciler.apply(asked, HERE, 0))

    async def elect_meanwhile(*what):
        reconciler.take_standings({key.vip: MINE}, 5)
        assert schedule.take_due(5) == [key]
        assert reconciler.speaking.announceable(key) is None, "it is not guarded yet"
        return await attach(*what)

    reconciler.attaching.ensure = elect_meanwhile
    asyncio.run(reconciler.apply(asked, Surroundings(links=(ETH0, eth1)), 6))

    assert schedule.take_due(6) == [key]
    assert reconciler.speaking.announceable(key) is not None


def test_since_when_a_vip_is_this_nodes_follows_elections_and_passes(apply, reconciler):
    apply(ELECTED)
    unowned = reconciler.tenures.since_ns(VIP)
    reconciler.take_standings({VIP: MINE}, 5)
    apply(ELECTED)
    owned = reconciler.tenures.since_ns(VIP)
    reconciler.take_standings({VIP: Standing(Kind.UNCLAIMED)}, 6)
    given_up = reconciler.tenures.since_ns(VIP)
    reconciler.take_standings({VIP: MINE}, 7)
    assert (unowned, owned, given_up, reconciler.tenures.since_ns(VIP)) == (None, 5, None, 7)


def test_only_the_holder_in_observe_mode_announces_nothing(apply, reconciler, schedule):
    apply(a_config("observe", owner="elect"))

    reconciler.take_standings({VIP: MINE}, 5)

    assert schedule.take_due(5) == []


def test_held_vip_needs_no_fence_but_the_epoch(apply, kernel, reconciler):
    apply(f"{{mode: enforce, interfaces: [eth0], vips: [{{address: {VIP}, owner: elect, hold: true}}]}}")

    reconciler.take_standings({VIP: MINE}, 0)

    assert (kernel.entries[KEY].unfenced, kernel.entries[KEY].epoch) == (True, 7)


def test_fence_is_one_value_with_the_mode_and_survives_a_pass(apply, kernel, reconciler):
    reconciler.fence(7, 100, 50)
    apply(ELECTED)
    reconciler.fence(7, 200, 50)
    apply(a_config("observe", owner="elect"))

    assert (kernel.value.epoch, kernel.value.fence_ns, kernel.value.lease_ns) == (7, 200, 50)
    assert kernel.value.mode is Mode.OBSERVE
    assert reconciler.state.drift.control == 0


def test_vip_is_given_up_at_once_also_where_other_entries_do_not_fit(apply, kernel, reconciler):
    kernel.room = 1
    apply(ELECTED)
    reconciler.take_standings({VIP: MINE}, 0)
    apply(ELECTED.replace("}]}", f"}}, {{address: {VIP + 1}, owner: elect}}]}}"))

    result = reconciler.take_standings({VIP: Standing(Kind.UNCLAIMED)}, 0)

    assert (result, kernel.entries[KEY].kind) == (SmallPass.DONE, Kind.UNCLAIMED)
    assert reconciler.tenures.since_ns(VIP) is None
    assert reconciler.state.entries == kernel.entries


# ---- what an agent before this one left ----


@pytest.fixture
def left(apply, kernel, reconciler, schedule):
    """A new agent's reconciler over the entries of one before, which owned the VIP in epoch 7."""
    apply(ELECTED)
    reconciler.fence(7, 100, 50)
    reconciler.take_standings({VIP: MINE}, 0)
    return Reconciler("me", Entries(kernel), Ranges(kernel), Control(kernel), kernel, schedule, Vouching(kernel))


def run_pass(reconciler, text: str, *, complete: bool) -> None:
    config = parse_config(text)
    vips = {vip.address: vip for vip in config.vips}
    asyncio.run(reconciler.apply(Asked(config, 1, vips, complete=complete), HERE, 0))


def test_new_agent_finds_what_was_left_and_keeps_it(left, kernel):
    control, standings = left.adopt()
    run_pass(left, ELECTED, complete=True)

    assert (control.epoch, control.fence_ns, standings) == (7, 100, {VIP: MINE})
    assert (kernel.entries[KEY].kind, kernel.entries[KEY].epoch) == (Kind.OWNED, 7)
    assert (kernel.value.epoch, kernel.value.fence_ns) == (7, 100)


def test_nothing_is_taken_away_before_all_was_read(left, kernel):
    left.adopt()

    run_pass(left, "{mode: enforce, interfaces: [eth0], vips: []}", complete=False)
    before = dict(kernel.entries)
    run_pass(left, "{mode: enforce, interfaces: [eth0], vips: []}", complete=True)

    assert before[KEY].kind is Kind.OWNED
    assert kernel.entries == {}


def test_small_pass_takes_nothing_away_before_all_was_read(left, kernel):
    left.adopt()
    run_pass(left, ELECTED, complete=False)
    config = left._basis.asked.config

    result = left.update(Asked(config, 1, {}, complete=False), HERE, 0)

    assert (result, kernel.entries[KEY].kind) == (SmallPass.DONE, Kind.OWNED)


def test_what_was_left_can_be_given_up_before_the_first_pass(left, kernel):
    left.adopt()

    left.take_standings({VIP: Standing(Kind.UNCLAIMED)}, 0)

    assert (kernel.entries[KEY].kind, kernel.entries[KEY].epoch) == (Kind.UNCLAIMED, 0)


def test_what_was_left_is_not_announced_again(left, schedule):
    schedule.take_due(0)
    schedule.give_up(KEY)
    left.adopt()

    run_pass(left, ELECTED, complete=True)

    assert schedule.next_ns(0) is None


def test_what_was_left_can_be_given_up_before_anybody_asks_for_it(left, kernel):
    """All Services may not have been read yet."""
    left.adopt()
    run_pass(left, "{mode: enforce, interfaces: [eth0], vips: []}", complete=False)

    left.take_standings({VIP: Standing(Kind.UNCLAIMED)}, 0)

    assert (kernel.entries[KEY].kind, kernel.entries[KEY].epoch) == (Kind.UNCLAIMED, 0)
    assert left.state.entries == kernel.entries


def test_what_was_left_and_given_up_is_neither_announced_nor_defended(left, kernel):
    """Before anybody asks for it, too: no pass may follow soon."""
    left.adopt()
    run_pass(left, "{mode: enforce, interfaces: [eth0], vips: []}", complete=False)
    before, since_ns = left.speaking.announceable(KEY), left.tenures.since_ns(VIP)

    left.take_standings({VIP: Standing(Kind.UNCLAIMED)}, 0)

    assert (before, left.speaking.announceable(KEY)) == ((ETH0, ETH0.mac), None)
    assert (since_ns, left.tenures.since_ns(VIP)) == (0, None)


def test_small_pass_that_the_kernel_had_no_memory_for_leaves_no_drift(apply, kernel, reconciler, monkeypatch):
    """It has deleted something, and that is not the work of others."""
    apply(many(3, 5))
    asked = reconciler._basis.asked
    fewer = replace(asked, vips={VIP + 3: Vip(VIP + 3, OWNERS[2])})

    def no_memory(_entries):
        raise MapFullError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(reconciler._entries._table, "write", no_memory)
        assert reconciler.update(fewer, HERE, 0) is SmallPass.NEEDS_WHOLE
    assert fitted(kernel) == [3]
    asyncio.run(reconciler.apply(fewer, HERE, 0))

    assert kernel.entries[EntryKey(2, VIP + 3)].kind is Kind.FOREIGN
    assert reconciler.state.drift.entries == 0


def test_what_cannot_be_given_up_is_a_fault(left, kernel):
    """The kernel would answer on for what another node may take."""
    left.adopt()
    run_pass(left, "{mode: enforce, interfaces: [eth0], vips: []}", complete=False)
    kernel.room = 0

    with pytest.raises(MapFullError):
        left.take_standings({VIP: Standing(Kind.UNCLAIMED)}, 0)


def test_what_was_left_on_a_link_that_is_not_guarded_now_is_given_up_too(left, kernel):
    elsewhere = KEY._replace(ifindex=9)
    kernel.entries[elsewhere] = kernel.entries[KEY]
    left.adopt()
    run_pass(left, ELECTED, complete=False)

    left.take_standings({VIP: Standing(Kind.UNCLAIMED)}, 0)

    assert (kernel.entries[elsewhere].kind, kernel.entries[elsewhere].epoch) == (Kind.UNCLAIMED, 0)
    assert left.state.entries == kernel.entries


def test_programs_that_were_left_stay_before_the_first_pass(left, kernel):
    kernel.pinned = [2]
    left.adopt()
    left.wait(["not known yet"])
    left.fence(7, 200, 50)

    asyncio.run(left.keep_attached(Datapath.AUTO, HERE))

    assert not [step for step in kernel.told if step.startswith("detach")]


# ---- small passes ----

OWNERS = (
    Owner(OwnerKind.ELECT),
    Owner(OwnerKind.NODE, node="me"),
    Owner(OwnerKind.NODE, node="other"),
    Owner(OwnerKind.EXTERNAL),
)
STANDINGS = (MINE, Standing(Kind.FOREIGN, mac=PEER), Standing(Kind.UNCLAIMED))


def a_reconciler(kernel) -> Reconciler:
    return Reconciler(
        "me", Entries(kernel), Ranges(kernel), Control(kernel), kernel, AnnouncementSchedule(), Vouching(kernel)
    )


@pytest.mark.parametrize("seed", range(20))
def test_small_passes_come_to_the_same_as_a_whole_one(seed):
    """Whatever changed, and in which order elections and passes came."""
    rng = random.Random(seed)
    config = parse_config("{mode: enforce, interfaces: [eth0], vips: []}")
    kernel, fresh_kernel = Recorder(), Recorder()
    kernel.room = fresh_kernel.room = 99
    small, fresh = a_reconciler(kernel), a_reconciler(fresh_kernel)
    addresses = [first + number for number in range(3) for first in (VIP, VIP6)]
    vips = {addresses[0]: Vip(addresses[0], OWNERS[0])}
    asyncio.run(small.apply(Asked(config, 1, vips), HERE, 0))
    standings = {}
    small_ones = 0
    for _ in range(12):
        address = rng.choice(addresses)
        if rng.random() < 0.4:
            standings[address] = rng.choice(STANDINGS)
            small.take_standings({address: standings[address]}, 0)
            continue
        vips = {at: vip for at, vip in vips.items() if at != address}
        if rng.random() < 0.7:
            vips[address] = Vip(address, rng.choice(OWNERS), rng.choice([Mode.INHERIT, Mode.OBSERVE]))
        small_ones += small.update(Asked(config, 1, vips), HERE, 0) is SmallPass.DONE
    fresh.take_standings(standings, 0)
    asyncio.run(fresh.apply(Asked(config, 1, vips), HERE, 0))

    assert small_ones > 2
    assert kernel.entries == small.state.entries == fresh_kernel.entries
    assert small.state.drift.entries == 0
    assert {key for key in kernel.entries if small.speaking.announceable(key)} == {
        key for key in fresh_kernel.entries if fresh.speaking.announceable(key)
    }


def test_small_pass_leaves_other_changes_to_a_whole_one(apply, reconciler):
    apply(ELECTED)
    other = parse_config(a_config("observe", owner="elect"))
    moved = Surroundings(links=(replace(ETH0, mac=PEER),))
    config = reconciler.state.control

    assert reconciler.update(Asked(other, 2, {VIP: other.vips[0]}), HERE, 0) is SmallPass.NEEDS_WHOLE
    assert reconciler.update(Asked(other, 1, {VIP: other.vips[0]}), moved, 0) is SmallPass.NEEDS_WHOLE
    assert reconciler.state.control == config


def test_links_and_routes_of_pods_need_no_whole_pass(apply, reconciler):
    apply(ELECTED)
    config = reconciler._basis.asked.config
    vips = reconciler._basis.asked.vips
    pod = Link(9, "veth9", MacAddress.parse("02:00:00:00:00:99"), up=True)
    busy = Surroundings(links=(ETH0, pod), routes=(Route(ip_network("10.9.9.9/32"), 9),))
    home = replace(busy, routes=(*busy.routes, Route(ip_network("192.0.2.0/24"), 2)))

    assert reconciler.update(Asked(config, 1, vips), busy, 0) is SmallPass.DONE
    assert reconciler.update(Asked(config, 1, vips), home, 0) is SmallPass.NEEDS_WHOLE


def test_small_pass_that_needs_more_room_than_there_is_is_a_whole_one(apply, kernel, reconciler):
    config = parse_config("{mode: enforce, interfaces: [eth0], vips: []}")
    asyncio.run(reconciler.apply(Asked(config, 1, {}), HERE, 0))
    kernel.room = 0

    assert reconciler.update(Asked(config, 1, {VIP: Vip(VIP, OWNERS[0])}), HERE, 0) is SmallPass.NEEDS_WHOLE


def test_vips_that_nobody_has_are_not_remembered(apply, reconciler):
    """Each that ever was would be for good."""
    apply(ELECTED)
    for number in range(100):
        other = ip_address("203.0.113.0") + number
        reconciler.take_standings({other: Standing(Kind.FOREIGN)}, 0)
        reconciler.take_standings({other: Standing(Kind.UNCLAIMED)}, 0)

    assert reconciler._standings == {}


def test_problem_of_a_program_stays_until_it_is_solved_whatever_passes_come(apply, kernel, reconciler):
    kernel.refuses = True
    apply(ELECTED)
    asked = reconciler._basis.asked
    assert reconciler.state.problems == ("eth0: no",)

    reconciler.wait(["not known yet"])
    assert reconciler.state.problems == ("not known yet", "eth0: no")
    assert reconciler.update(replace(asked, problems=["else"]), HERE, 0) is SmallPass.DONE
    assert reconciler.state.problems == ("else", "eth0: no")


def test_problem_of_a_program_is_told_and_solved_without_a_pass(apply, kernel, reconciler):
    apply(ELECTED)
    for refuses, problems in ((True, ("eth0: no",)), (False, ())):
        kernel.refuses = refuses
        asyncio.run(reconciler.keep_attached(Datapath.AUTO, HERE))
        assert reconciler.state.problems == problems


def test_many_problems_are_logged_once_each(apply, reconciler, caplog):
    caplog.set_level("INFO")
    for problems in (["a", "b"], ["a", "b"], ["b", "c"], []):
        reconciler.wait(problems)
        reconciler.log_problems()

    told = [record.getMessage() for record in caplog.records if record.getMessage()[-1] in "abc"]
    assert told == ["problem: a", "problem: b", "problem: c", "solved: a", "solved: b", "solved: c"]


# ---- more VIPs than the map takes ----


def many(*numbers: int) -> str:
    vips = ", ".join(f"{{address: {VIP + number}, owner: {{node: me}}}}" for number in numbers)
    return f"{{mode: enforce, interfaces: [eth0], vips: [{vips}]}}"


def fitted(kernel: Recorder) -> list[int]:
    return sorted(int(key.vip) - int(VIP) for key in kernel.entries)


def test_vips_that_fit_are_guarded_and_the_others_are_named(apply, kernel, reconciler):
    kernel.room = 2
    apply(many(7, 3, 5))

    assert fitted(kernel) == [3, 5]
    (problem,) = reconciler.state.problems
    assert "it has room for 2 of 3 VIP entries" in problem
    assert f"not guarded: {VIP + 7};" in problem
    assert "raise bpf.max_entries to 3" in problem
    assert reconciler.state.left_out == {EntryKey(2, VIP + 7)}


def test_problem_stays_as_it_is_while_nothing_changes(apply, kernel, reconciler):
    kernel.room = 2
    apply(many(7, 3, 5))
    told = reconciler.state.problems
    scene = reconciler._basis.asked

    for _ in range(2):
        asyncio.run(reconciler.apply(scene, HERE, 0))
        assert reconciler.state.problems == told
    assert reconciler.state.drift.entries == 0


def test_later_vips_do_not_throw_out_what_is_guarded(apply, kernel):
    kernel.room = 2
    apply(many(5, 7))
    apply(many(1, 5, 7, 9))

    assert fitted(kernel) == [5, 7]


def test_room_is_given_to_who_waits_for_it_and_then_all_is_well(apply, kernel, reconciler):
    kernel.room = 2
    apply(many(3, 5, 7))
    apply(many(5, 7))

    assert fitted(kernel) == [5, 7]
    assert (reconciler.state.problems, reconciler.state.left_out) == ((), frozenset())


def test_small_pass_that_makes_room_is_a_whole_one(apply, kernel, reconciler):
    kernel.room = 2
    apply(many(3, 5, 7))
    asked = reconciler._basis.asked
    fewer = {address: vip for address, vip in asked.vips.items() if address != VIP + 3}

    assert reconciler.update(replace(asked, vips=fewer), HERE, 0) is SmallPass.NEEDS_WHOLE


def test_small_pass_changes_what_is_guarded_also_while_others_find_no_room(apply, kernel, reconciler):
    kernel.room = 2
    apply(many(3, 5, 7))
    asked = reconciler._basis.asked
    moved = {**asked.vips, VIP + 3: Vip(VIP + 3, Owner(OwnerKind.NODE, node="other"))}

    assert reconciler.update(replace(asked, vips=moved), HERE, 0) is SmallPass.DONE
    assert kernel.entries[EntryKey(2, VIP + 3)].kind is Kind.FOREIGN
    assert len(reconciler.state.problems) == 1


def test_vip_that_waits_for_room_and_is_asked_for_no_more_is_not_told_of(apply, kernel, reconciler):
    kernel.room = 2
    apply(many(3, 5, 7))
    asked = reconciler._basis.asked
    fewer = replace(asked, vips={address: vip for address, vip in asked.vips.items() if address != VIP + 7})

    assert reconciler.update(fewer, HERE, 0) is SmallPass.NEEDS_WHOLE
    asyncio.run(reconciler.apply(fewer, HERE, 0))
    assert (reconciler.state.problems, reconciler.state.left_out) == ((), frozenset())


def test_elections_come_to_the_kernel_also_while_others_find_no_room(apply, kernel, reconciler):
    kernel.room = 1
    apply(many(3, 5).replace("{node: me}", "elect"))

    assert reconciler.take_standings({VIP + 3: MINE, VIP + 5: MINE}, 0) is SmallPass.DONE
    assert {key.vip: entry.kind for key, entry in kernel.entries.items()} == {VIP + 3: Kind.OWNED}


def test_election_that_the_kernel_had_no_memory_for_is_told_in_the_next_pass(apply, kernel, reconciler):
    apply(ELECTED)
    asked, room = reconciler._basis.asked, kernel.room
    kernel.room = 0

    assert reconciler.take_standings({VIP: Standing(Kind.FOREIGN, mac=PEER)}, 0) is SmallPass.NEEDS_WHOLE
    kernel.room = room
    asyncio.run(reconciler.apply(asked, HERE, 0))
    assert kernel.entries[KEY].kind is Kind.FOREIGN


# ---- closed ranges -----------------------------------------------------------------------------------------------

POOL, POOL6 = ip_network("192.0.2.0/24"), ip_network("2001:db8::/64")
OWN = ip_network("192.0.2.1/32")
CLOSED = Closing((POOL, POOL6), (OWN,))


def close(reconciler, closing: Closing, *, complete: bool = True, mode: str = "enforce") -> None:
    config = parse_config(f"{{mode: {mode}, interfaces: [eth0], vips: []}}")
    asyncio.run(reconciler.apply(Asked(config, 1, {}, complete=complete, closing=closing), HERE, 0))


def test_exceptions_are_made_before_ranges_are_closed_and_go_after_them(kernel, reconciler):
    close(reconciler, NOTHING)
    kernel.told.clear()
    close(reconciler, CLOSED)
    ranges = [told for told in kernel.told if "range" in told]
    assert ranges == [f"range OPEN {OWN}", f"range CLOSED {POOL}", f"range CLOSED {POOL6}"]
    assert (kernel.value.closed, kernel.value.strictest6) == (True, Mode.ENFORCE)
    assert [str(address) for address in kernel.value.vips4] == ["192.0.2.0", "192.0.2.255"]

    kernel.told.clear()
    close(reconciler, NOTHING)
    assert [told for told in kernel.told if "range" in told][-1] == f"delete range {OWN}"
    assert (kernel.value.closed, kernel.value.strictest6, kernel.ranges) == (False, Mode.INHERIT, {})


def test_closed_range_speaks_as_the_links_address(kernel, reconciler):
    close(reconciler, CLOSED)
    entry = kernel.ranges[RangeKey(2, POOL)]
    assert (entry.kind, entry.link_mac, entry.primary) == (Kind.CLOSED, ETH0.mac, _OWN.ip)


def test_closed_address_does_not_stand_in_for_another(kernel, reconciler):
    close(reconciler, Closing((POOL,)))
    assert kernel.ranges[RangeKey(2, POOL)].primary is None


def test_nothing_more_is_closed_and_nothing_opened_before_all_was_read(kernel, reconciler):
    close(reconciler, Closing((POOL,), (OWN,)))
    close(reconciler, Closing((POOL6,)), complete=False)
    assert kernel.ranges.keys() == {RangeKey(2, POOL), RangeKey(2, OWN)}


def test_new_agent_keeps_what_was_closed(kernel, reconciler):
    close(reconciler, CLOSED)
    later = Reconciler(
        "me", Entries(kernel), Ranges(kernel), Control(kernel), kernel, AnnouncementSchedule(), Vouching(kernel)
    )
    kernel.told.clear()
    close(later, NOTHING, complete=False)
    assert not [told for told in kernel.told if "range" in told]
    assert kernel.value.closed
    assert later.state.drift.entries == 0


def test_range_that_somebody_opened_is_closed_again(kernel, reconciler):
    close(reconciler, CLOSED)
    del kernel.ranges[RangeKey(2, POOL)]
    close(reconciler, CLOSED)
    assert RangeKey(2, POOL) in kernel.ranges
    assert reconciler.state.drift.entries == 1


def test_small_pass_leaves_other_ranges_to_a_whole_one(kernel, reconciler):
    close(reconciler, CLOSED)
    config = reconciler._basis.asked.config
    assert reconciler.update(Asked(config, 1, {}, closing=CLOSED), HERE, 0) is SmallPass.DONE
    assert reconciler.update(Asked(config, 1, {}, closing=Closing((POOL,))), HERE, 0) is SmallPass.NEEDS_WHOLE


def test_ranges_that_find_no_room_are_named(kernel, reconciler):
    kernel.room = 1
    close(reconciler, CLOSED)
    assert any("not all are closed" in problem for problem in reconciler.state.problems)


def test_refused_range_is_a_problem(reconciler):
    close(reconciler, Closing(problems=("ranges: no",)))
    assert "ranges: no" in reconciler.state.problems


def test_a_bond_is_guarded_at_tc_where_xdp_is_asked_for(kernel, reconciler):
    """There the program would see the ports, and no entry is theirs."""
    bond = replace(ETH0, kind="bond")
    config = parse_config(a_config("enforce").replace("{mode", "{datapath: xdp, mode", 1))
    asked = Asked(config, 1, {vip.address: vip for vip in config.vips}, complete=True)
    asyncio.run(reconciler.apply(asked, Surroundings(links=(bond,)), 0))
    assert {each.hook for each in reconciler.state.attachments} == {Hook.TC_INGRESS, Hook.TC_EGRESS}
    (problem,) = reconciler.state.problems
    assert problem == "eth0: XDP sees frames on the bond's ports, not on the bond; using tc"
