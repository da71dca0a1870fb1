"""What may happen to a guarded link: another MAC, another device, another name or namespace, no carrier; and what other
programs may do to the guard on it.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import pytest

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane import loader
from arpguard.dataplane.maps import EntryTable, read_totals
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.model import EntryKey, VipEntry
from arpguard.verdict import Hook, Reason
from arpguard.wire.ndp import solicited_node
from arpguard_lab.netns import command
from arpguard_lab.topology import NETWORK, AgentProcess, Host
from support.netns.agents import said
from support.netns.cable import Pair, a_netns, a_pair, address, address6, groups_of, plug, speak_ipv6
from support.netns.foreign import programs_at
from support.netns.guard import attachments
from support.netns.waiting import REPAIR_S, until
from support.netns.wire import Wire, a_wire, arp_of, stream

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

M = MacAddress.parse("02:00:00:00:00:01")
NEW = MacAddress.parse("02:00:00:00:00:b7")
OWNED, FOREIGN, MARK = address(50), address(51), address(90)
CONFIG = f"""
mode: enforce
interfaces: [eth0]
vips:
  - {{address: {OWNED}, owner: {{node: node-1}}}}
  - {{address: {MARK}, owner: {{node: node-1}}}}
  - {{address: {FOREIGN}, owner: {{node: node-2}}}}
"""
INTERVAL_S = 0.01
DAD_S = 0.5  # it takes a second, and begins a little later


@pytest.fixture
def pair() -> Iterator[Pair]:
    """The VIPs are on `lo`, so that without the guard the kernel would answer for each of them."""
    with a_pair("link-life") as made:
        made.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in (OWNED, FOREIGN)])
        yield made


@pytest.fixture
def agent(pair) -> AgentProcess:
    return pair.agent(CONFIG)


def guarded(wire: Wire, mac: MacAddress = M) -> bool:
    return wire.answers(MARK) and [wire.who(vip, MARK) for vip in (OWNED, FOREIGN)] == [[mac], []]


def entry(pair: Pair, agent: AgentProcess, vip: Address = OWNED) -> VipEntry | None:
    return table(agent).read().entries.get(EntryKey(pair.ifindex(), vip))


def table(agent: AgentProcess) -> EntryTable:
    maps = loader.open_maps(agent.pin_dir)
    return EntryTable(maps["entries"], maps["counters"])


# ---- a hundred requests a second ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heard:
    """A claim of a VIP by a MAC, and when it was heard (monotonic seconds): an answer, or an announcement."""

    at_s: float
    vip: IPv4Address
    mac: MacAddress
    is_answer: bool


class Asking(threading.Thread):
    """Asks for both VIPs every 10 ms, and notes every claim of them."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire
        self._stopping = threading.Event()
        self.heard: list[Heard] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                for vip in (OWNED, FOREIGN):
                    self._wire.send(self._wire.request(vip))
            except OSError:  # its end of the cable is down
                time.sleep(INTERVAL_S)
            until_s = time.monotonic() + INTERVAL_S
            while (frame := self._wire.hear(until_s - time.monotonic())) is not None:
                self._note(frame)

    def _note(self, frame: bytes) -> None:
        packet = arp_of(frame)
        if packet is not None and packet.spa in (OWNED, FOREIGN):
            self.heard.append(Heard(time.monotonic(), packet.spa, packet.sha, packet.tpa == self._wire.address))

    def answers(self, vip: IPv4Address, mac: MacAddress | None = None) -> list[float]:
        return [each.at_s for each in self.heard if each.is_answer and each.vip == vip and mac in (None, each.mac)]

    def announcements(self, mac: MacAddress) -> list[float]:
        return [each.at_s for each in self.heard if not each.is_answer and each.mac == mac]

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@contextmanager
def asking(pair: Pair) -> Iterator[Asking]:
    with a_wire(pair.client) as wire:
        asked = Asking(wire)
        asked.start()
        try:
            until(lambda: asked.answers(OWNED), what="the first answer")
            yield asked
        finally:
            asked.stop()


# ---- another MAC -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(["link set eth0 address {mac}"], id="live"),
        pytest.param(["link set eth0 down", "link set eth0 address {mac}", "link set eth0 up"], id="down and up"),
    ],
)
def test_a_new_mac_is_answered_and_announced_with_at_once(pair, agent, steps):
    until(lambda: said(agent, "announced:") >= 6, 5, "the announcements of the start are over")
    with asking(pair) as asked:
        began_s = time.monotonic()
        pair.node.netns.batch([step.format(mac=NEW) for step in steps])
        changed_s = time.monotonic()
        until(lambda: asked.answers(OWNED, NEW), 3, "an answer with the new MAC")
        until(lambda: len(asked.announcements(NEW)) >= 2 * 3, 5, "three announcements, each in both forms")
    old = [at_s for at_s in asked.answers(OWNED, M) if at_s > changed_s]
    new_s = asked.answers(OWNED, NEW)[0]
    last, first = max(old, default=changed_s) - changed_s, new_s - began_s
    announced = asked.announcements(NEW)[0] - began_s
    print(
        f"last answer with the old MAC after {last * 1000:.0f} ms, first with the new one after {first * 1000:.0f} ms,"
    )
    print(f"first announcement after {announced * 1000:.0f} ms")
    assert [at_s for at_s in old if at_s > new_s + 10 * INTERVAL_S] == []
    assert asked.answers(FOREIGN) == []
    found = entry(pair, agent)
    assert found is not None
    assert (found.link_mac, found.answer_mac) == (NEW, NEW)


# ---- another device ----------------------------------------------------------------------------------------------


def attached_to(pair: Pair, agent: AgentProcess) -> set[int]:
    """The links, by index, that have its programs; 0: one that is gone, and still pinned."""
    return {ifindex for ifindex, _ in attachments(pair.node, agent.pin_dir)}


def test_a_device_that_is_made_anew_is_guarded_and_nothing_is_left_of_the_old_one(pair, agent):
    with a_wire(pair.client) as wire:
        until(lambda: guarded(wire))
    old = pair.ifindex()
    pair.node.netns.batch(["link del eth0"])
    plug(pair.node, pair.client)
    replaced_s = time.monotonic()
    new = pair.ifindex()
    assert new != old
    with a_wire(pair.client) as wire:
        until(lambda: guarded(wire), REPAIR_S, "the new device is guarded")
    print(f"guarded {(time.monotonic() - replaced_s) * 1000:.0f} ms after it was there")
    until(lambda: attached_to(pair, agent) == {new}, REPAIR_S, "nothing is left of the old one")
    assert {key.ifindex for key in table(agent).read().entries} == {new}
    until(lambda: said(agent, "solved: interfaces: eth0") == said(agent, "problem: interfaces: eth0"))


def test_the_counters_of_a_vip_begin_anew_with_its_device_and_those_of_the_node_go_on(pair, agent):
    with a_wire(pair.client) as wire:
        until(lambda: guarded(wire))
        for _ in range(30):  # the kernel may have answered the request before, if the entry came a moment later
            wire.who(OWNED, MARK)
    of_vip, of_node = answered(pair, agent)
    pair.node.netns.batch(["link del eth0"])
    plug(pair.node, pair.client)
    with a_wire(pair.client) as wire:

        def counted() -> int:
            wire.who(OWNED, MARK)
            return answered(pair, agent)[0]

        until(lambda: wire.answers(MARK), REPAIR_S)
        until(counted)
        anew, on = answered(pair, agent)
        until(lambda: guarded(wire), REPAIR_S)
    assert of_vip > 20
    assert anew == 1  # the first that is counted ends the wait
    assert on >= of_node + anew


def answered(pair: Pair, agent: AgentProcess) -> tuple[int, int]:
    """How often: for OWNED on eth0 as it is now, and for all by the node."""
    totals, *_ = read_totals(loader.open_maps(agent.pin_dir)["totals"])
    return table(agent).tally(EntryKey(pair.ifindex(), OWNED)).enforced[Reason.ANSWERED], totals.enforced[
        Reason.ANSWERED
    ]


def test_a_device_that_goes_to_another_namespace_takes_no_guard_along_and_is_guarded_when_it_is_back(pair, agent):
    """It may have the same index there, and when it is back: the guard must not take another device for it."""
    with a_netns("link-life-away") as away:
        with a_wire(pair.client) as wire:
            until(lambda: guarded(wire))
        index = pair.ifindex()
        pair.node.netns.batch([f"link set eth0 netns {away.name}"])
        until(lambda: attached_to(pair, agent) == set(), REPAIR_S, "nothing is left")
        assert programs_at(Host("away", away, 9), Hook.TC_INGRESS) == []
        away.batch([f"link set eth0 netns {pair.node.netns.name}"])
        pair.node.netns.batch(
            ["link set eth0 up", f"addr add {pair.node.address}/24 dev eth0", f"route add default via {NETWORK}.254"]
        )
        assert pair.ifindex() == index
        with a_wire(pair.client) as wire:
            until(lambda: guarded(wire), REPAIR_S, "it is guarded again")


def test_a_link_that_is_renamed_goes_on_answering(pair, agent):
    with a_wire(pair.client) as wire:
        until(lambda: guarded(wire))
        pair.node.netns.batch(["link set eth0 down", "link set eth0 name lan0", "link set lan0 up"])
        until(lambda: guarded(wire), REPAIR_S, "it is guarded under its new name")
        until(lambda: said(agent, "problem: interfaces: eth0: there is no such interface; name one of lan0"), REPAIR_S)
        pair.node.netns.batch(["link set lan0 down", "link set lan0 name eth0", "link set eth0 up"])
        until(lambda: said(agent, "solved: interfaces: eth0: there is no such interface"), REPAIR_S)
        until(lambda: guarded(wire), REPAIR_S)


# ---- no carrier --------------------------------------------------------------------------------------------------


def state(pair: Pair, agent: AgentProcess) -> str:
    done = pair.arpguard("links", "-o", "json", "--address", agent.api)
    return "up" if json.loads(done.stdout)["links"][0].get("up") else "down"


@pytest.mark.parametrize(
    ("lose", "find"),
    [
        pytest.param(("client", "link set eth0 down"), ("client", "link set eth0 up"), id="the cable is pulled"),
        pytest.param(("node", "link set eth0 down"), ("node", "link set eth0 up"), id="it is set down"),
    ],
)
def test_a_link_without_a_carrier_is_down_and_its_vips_are_announced_when_it_is_back(pair, agent, lose, find):
    """Switches forget where a MAC is when a port goes down, and the client's cache is older than that."""
    until(lambda: said(agent, "announced:") >= 6, 5, "the announcements of the start are over")
    do = {"client": pair.client.netns.batch, "node": pair.node.netns.batch}
    assert state(pair, agent) == "up"
    do[lose[0]]([lose[1]])
    until(lambda: state(pair, agent) == "down", 3)
    do[find[0]]([find[1]])
    until(lambda: said(agent, f"announced: vip={OWNED}") >= 6, 5, "three further announcements")
    assert state(pair, agent) == "up"
    with a_wire(pair.client) as wire:
        assert guarded(wire)


def test_a_vip_moves_to_another_link_of_its_subnet_when_its_own_is_lost(pair, agent):
    pair.node.netns.batch([f"link add eth1 type veth peer name eth1 netns {pair.client.netns.name}"])
    pair.node.netns.batch([f"link set eth1 address {NEW} up", f"addr add {address(2)}/24 dev eth1"])
    pair.client.netns.batch(["link set eth1 up"])
    agent.configure(CONFIG.replace("[eth0]", "[eth0, eth1]"))
    with a_wire(pair.client) as wire, a_wire(pair.client, "eth1") as other:
        until(lambda: guarded(wire) and not other.answers(OWNED), 3, "it is answered on eth0, and not on eth1")
        pair.client.netns.batch(["link set eth0 down"])
        # Kernels tell of lost carriers once a second (net/core/link_watch.c), and the agent then has its own.
        until(lambda: guarded(other, NEW), 1.0 + REPAIR_S, "it is answered on eth1")
        pair.client.netns.batch(["link set eth0 up"])
        until(lambda: guarded(wire) and not other.answers(OWNED), 3, "it is answered on eth0 again, and not on eth1")


def test_a_link_that_comes_and_goes_floods_nobody_with_announcements(pair, agent):
    until(lambda: said(agent, "announced:") >= 6, 5, "the announcements of the start are over")
    began_s = time.monotonic()
    while time.monotonic() - began_s < 3:
        for step in ("down", "up"):
            pair.client.netns.batch([f"link set eth0 {step}"])
            time.sleep(0.05)
    with a_wire(pair.client) as wire:
        until(lambda: guarded(wire), REPAIR_S)
    until(lambda: said(agent, f"announced: vip={OWNED}") >= 6, 5, "it is announced when all is over")
    spent_s = time.monotonic() - began_s
    assert said(agent, f"announced: vip={OWNED}") <= 3 + 3 + spent_s / 1.1


def test_a_link_that_was_away_for_a_moment_has_its_vips_announced(pair, agent):
    """It is up again before the agent looks; the switch has forgotten all the same."""
    until(lambda: said(agent, "announced:") >= 6, 5, "the announcements of the start are over")
    pair.client.netns.batch(["link set eth0 down", "link set eth0 up"])
    until(lambda: said(agent, f"announced: vip={OWNED}") >= 6, 5, "three further announcements")


def test_devices_that_come_and_go_beside_it_cost_no_answer(pair, agent):
    """As the pods of a busy node do, each with its route."""
    until(lambda: said(agent, "announced:") >= 6, 5, "the announcements of the start are over")

    def churn() -> None:
        for turn in range(3):
            names = [f"pod{turn}-{number}" for number in range(30)]
            made = [(f"link add {name} type veth peer name {name}p", f"link set {name} up") for name in names]
            routes = [f"route add 10.{turn}.0.{number}/32 dev {name}" for number, name in enumerate(names)]
            pair.node.netns.batch([*(line for lines in made for line in lines), *routes])
            pair.node.netns.batch([f"link del {name}" for name in names])

    seen = stream(pair.client, OWNED, churn)
    assert (seen.lost, seen.doubled, seen.macs) == (0, 0, {M})
    assert not said(agent, "Traceback|cannot update the kernel")


# ---- what others do to the guard ---------------------------------------------------------------------------------


def detach_by_bpftool(pair: Pair, agent: AgentProcess, hook: str) -> None:
    pin = agent.pin_dir / "links" / f"{pair.ifindex()}-{hook}"
    command("bpftool", "link", "detach", "pinned", str(pin))


@pytest.mark.tcx
@pytest.mark.parametrize("hook", ["tc_ingress", "tc_egress"])
def test_bpftool_detaches_the_guard_and_it_is_back_within_a_second(pair, agent, hook):
    with a_wire(pair.client) as wire:
        until(lambda: guarded(wire))
        repairs = said(agent, "drift: another program detached the guard's programs")
        detach_by_bpftool(pair, agent, hook)
        took_s = until(lambda: said(agent, "drift: another program detached the guard's programs") > repairs, REPAIR_S)
        print(f"attached again {took_s * 1000:.0f} ms after it was detached")
        assert guarded(wire)


# ---- IPv6 --------------------------------------------------------------------------------------------------------

OWNED6, FOREIGN6, NODE6 = address6(0x50), address6(0x51), address6(1)
CONFIG6 = f"""
mode: enforce
interfaces: [eth0]
vips:
  - {{address: '{OWNED6}', owner: {{node: node-1}}}}
  - {{address: '{FOREIGN6}', owner: {{node: node-2}}}}
"""


@pytest.fixture
def pair6() -> Iterator[Pair]:
    """The VIPs are on eth0, so that without the guard the kernel would answer for both."""
    with a_pair("link-life6") as made:
        speak_ipv6(made.node, made.client)
        bind6(made)
        yield made


def bind6(pair: Pair) -> None:
    pair.node.netns.batch([f"addr add {vip}/128 dev eth0 nodad" for vip in (OWNED6, FOREIGN6)])


@pytest.fixture
def agent6(pair6) -> AgentProcess:
    return pair6.agent(CONFIG6)


def answering6(pair: Pair) -> dict[IPv6Address, set[MacAddress]]:
    """Who answers for each VIP."""
    client = pair.client
    with closing(client.netns.call(lambda: NeighbourSocket("eth0"))) as asker:
        heard = {vip: asker.ask(vip, client.address6, count=1, wait_s=0.1) for vip in (OWNED6, FOREIGN6)}
    return {vip: {each.packet.sha for each in replies} for vip, replies in heard.items()}


def guarded6(pair: Pair, mac: MacAddress = M) -> bool:
    return answering6(pair) == {OWNED6: {mac}, FOREIGN6: set()}


def test_a_new_mac_is_advertised_and_answered_with(pair6, agent6):
    until(lambda: guarded6(pair6))
    until(lambda: said(agent6, f"announced: vip={OWNED6}") >= 3, 5, "the announcements of the start are over")
    pair6.node.netns.batch([f"link set eth0 address {NEW}"])
    until(lambda: guarded6(pair6, NEW), REPAIR_S, "it is answered with the new MAC")
    until(lambda: said(agent6, f"announced: vip={OWNED6} .* mac={NEW}") == 3, 5)


def test_a_device_that_is_made_anew_listens_to_the_groups_of_its_vips(pair6, agent6):
    until(lambda: guarded6(pair6))
    pair6.node.netns.batch(["link del eth0"])
    plug(pair6.node, pair6.client)
    speak_ipv6(pair6.node, pair6.client)
    until(lambda: solicited_node(OWNED6) in groups_of(pair6.node.netns), REPAIR_S, "the new device listens")
    bind6(pair6)
    until(lambda: guarded6(pair6), REPAIR_S)


def test_the_primary_address_follows_what_becomes_of_addresses(pair6, agent6):
    """What the node asks with instead of a VIP: global, no VIP, and preferred."""

    def primary() -> Address | None:
        found = entry(pair6, agent6, FOREIGN6)
        return found.primary if found else None

    second = address6(2)
    until(lambda: primary() == NODE6)
    pair6.node.netns.batch([f"addr add {second}/64 dev eth0 nodad preferred_lft 0"])
    pair6.node.netns.batch([f"addr change {NODE6}/64 dev eth0 preferred_lft 0", f"addr change {second}/64 dev eth0"])
    until(lambda: primary() == second, REPAIR_S, "a deprecated address gives way")
    pair6.node.netns.batch([f"addr del {second}/64 dev eth0"])
    until(lambda: primary() == NODE6, REPAIR_S, "a deprecated address is better than none")
    pair6.node.netns.batch([f"addr del {NODE6}/64 dev eth0"])
    until(lambda: primary() is None, REPAIR_S, "there is none but fe80::")


def test_an_address_is_no_primary_before_duplicate_detection_is_over(pair6, agent6):
    pair6.node.netns.batch([f"addr del {NODE6}/64 dev eth0"])
    until(lambda: entry(pair6, agent6, FOREIGN6).primary is None, REPAIR_S)
    pair6.node.netns.run("sysctl", "-qw", "net.ipv6.conf.eth0.accept_dad=1", "net.ipv6.conf.eth0.dad_transmits=1")
    began_s = time.monotonic()
    pair6.node.netns.batch([f"addr add {NODE6}/64 dev eth0"])
    until(lambda: entry(pair6, agent6, FOREIGN6).primary == NODE6, 5)
    assert time.monotonic() - began_s > DAD_S
