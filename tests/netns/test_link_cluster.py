"""What a cluster makes of a link that is lost: its VIPs go to another node at once and stay there, and the API server
hardly notices a link that comes and goes.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from arpguard.addresses import MacAddress
from arpguard.dataplane import loader
from arpguard.dataplane.maps import EntryTable
from arpguard.units import NS_PER_MS
from arpguard_lab.cluster.bench import KubeBench, Watch, now_ns, vip
from arpguard_lab.cluster.scene import a_bench
from arpguard_lab.cluster.topology import KubeLab
from arpguard_lab.topology import Host
from support.netns.cable import a_place
from support.netns.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

VIP = vip(50)
VIPS = [vip(50 + number) for number in range(5)]
NEW = MacAddress.parse("02:00:00:00:00:b7")
FLAPPING_S = 10.0
SETTLED_S = 4.0
PATIENCE_S = 60.0
LOSSES = 3
IN_NEED = "flaps or receives nothing; using it anyway"


@pytest.fixture(scope="module")
def lab() -> Iterator[KubeLab]:
    with a_place("link-cluster") as (folder, pin_root), KubeLab(2, folder, pin_root) as made:
        yield made


@pytest.fixture
def bench(lab) -> Iterator[KubeBench]:
    """Two nodes; the VIPs are on both, so that without the guard each kernel would answer."""
    with a_bench(lab, "links") as made:
        made.publish("web", VIPS)
        made.settle_evenly(VIPS)
        made.bind_everywhere(*VIPS)
        yield made


def pull(bench: KubeBench, host: Host) -> None:
    """The switch's end of the cable."""
    bench.lab.switch.batch([f"link set port{bench.lab.number(host)} down"])


def plug_in(bench: KubeBench, host: Host) -> None:
    bench.lab.switch.batch([f"link set port{bench.lab.number(host)} up"])


def set_down(_bench: KubeBench, host: Host) -> None:
    host.netns.batch(["link set eth0 down"])


def set_up(_bench: KubeBench, host: Host) -> None:
    host.netns.batch(["link set eth0 up"])


def one_by_one(watch: Watch) -> bool:
    facts = watch.facts()
    return bool(facts["never_two_at_once"] and facts["nothing_missed"])


@pytest.mark.parametrize(
    ("lose", "find"),
    [pytest.param(pull, plug_in, id="the cable is pulled"), pytest.param(set_down, set_up, id="it is set down")],
)
def test_a_lost_link_hands_its_vips_over_and_does_not_take_them_back(bench, lose: Callable, find: Callable):
    owner = bench.owner(VIP)
    (other,) = bench.others(owner)
    with bench.watch([VIP]) as watch:
        began_ns = now_ns()
        lose(bench, owner)
        watch.wait(lambda: watch.first(VIP, began_ns, owner), 10.0, "the other node answers")
        first = watch.first(VIP, began_ns, owner)
        silence_ms = (first.time_ns - began_ns) / NS_PER_MS
        print(f"silence: {silence_ms:.0f} ms from the loss of the link to the first answer of the other node")
        bench.settle(VIPS, among=[other])
        writes = bench.server.claim_writes()
        find(bench, owner)
        watch.wait(lambda: now_ns() - began_ns > SETTLED_S * 1e9, 10.0, "the link has been up for some time")
        assert bench.server.claim_writes() == writes
        assert {bench.host_of(macs[0]) for macs in bench.who(*VIPS).values()} == {other}
    bench.check_against_journal(watch)
    assert one_by_one(watch), watch.facts()
    assert f'given up: vip={VIP} why="its link with' in bench.agent(owner).said(), "its lease did not have to run out"


def test_a_link_that_comes_and_goes_ten_times_a_second_costs_the_api_server_nothing(bench):
    """One release and one claim for each VIP that it had; the heartbeat tells of it a few times more than usual."""
    owner = bench.owner(VIP)
    had = len(bench.owned(VIPS, owner))
    claims, writes, began_s = bench.server.claim_writes(), bench.server.writes(), time.monotonic()
    while time.monotonic() - began_s < FLAPPING_S:
        for step in (pull, plug_in):
            step(bench, owner)
            time.sleep(0.05)
    spent_s = time.monotonic() - began_s
    claimed = bench.server.claim_writes() - claims
    written = {name: count - writes[name] for name, count in bench.server.writes().items()}
    print(f"{had} VIPs, {spent_s:.0f} s: {claimed} writes of claims, {written} in all")
    assert claimed <= 2 * had
    assert all(count <= 1.5 * spent_s + 2 * had + 5 for count in written.values())
    bench.settle(VIPS, among=bench.others(owner))


def test_the_only_link_of_a_vip_is_used_again_a_second_after_it_is_back(bench):
    """Nobody else may have it: so it is silent for as long as the link is away, and a little longer."""
    for host in bench.nodes[1:]:
        set_down(bench, host)
    keeper = bench.nodes[0]
    bench.settle(VIPS, among=[keeper])
    pull(bench, keeper)
    until(lambda: "given up: vip=" in bench.agent(keeper).said(), 5)
    began_s = time.monotonic()
    plug_in(bench, keeper)
    bench.settle(VIPS, among=[keeper])
    took_s = time.monotonic() - began_s
    print(f"answered again {took_s:.1f} s after the link was back")
    assert took_s > 0.9
    for host in bench.nodes[1:]:
        set_up(bench, host)


def test_a_switch_that_takes_all_links_away_several_times_keeps_nobody_waiting(bench):
    """By its losses each link would have to be up for 4 s in the end, for as long as VIPs would have no owner."""
    for _ in range(LOSSES):
        for host in bench.nodes:
            pull(bench, host)
        until(lambda: all(links_told(bench, host) == "none" for host in bench.nodes), PATIENCE_S)
        for host in bench.nodes:
            plug_in(bench, host)
        until(lambda: any(links_told(bench, host) != "none" for host in bench.nodes), PATIENCE_S)
    bench.settle(VIPS, limit_s=PATIENCE_S)
    assert any(f"link eth0 {IN_NEED}" in bench.agent(host).said() for host in bench.nodes)


def links_told(bench: KubeBench, host: Host) -> str:
    """Which links a node last told the others of, by its log."""
    return bench.agent(host).said().rpartition("links on which this node may own VIPs: ")[2].partition("\n")[0]


def owner_mac(bench: KubeBench, host: Host) -> MacAddress | None:
    """What the kernel of a node takes for the owner's MAC."""
    maps = loader.open_maps(bench.agent(host).pin_dir)
    found = EntryTable(maps["entries"], maps["counters"]).read().entries
    return next((entry.owner_mac for key, entry in found.items() if key.vip == VIP), None)


def test_the_others_hear_of_a_new_mac_at_once(bench):
    """Before they do, what the owner says with it is a stranger's claim to them."""
    owner = bench.owner(VIP)
    (other,) = bench.others(owner)
    until(lambda: owner_mac(bench, other) == owner.mac, 5)
    owner.netns.batch([f"link set eth0 address {NEW}"])
    try:
        took_s = until(lambda: owner_mac(bench, other) == NEW, 1.0, "the other node's kernel knows the new MAC")
        print(f"the other node's kernel knew the new MAC after {took_s * 1000:.0f} ms")
    finally:
        owner.netns.batch([f"link set eth0 address {owner.mac}"])
