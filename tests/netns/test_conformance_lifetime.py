"""The cases of docs/conformance.md about what a node says by itself, and about what happens to the guard meanwhile.

Section 5: E4, E5, E8, E11, E14; of section 4 D10, for bridges and macvlans. Bonds: test_devices.py.
"""

import errno
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address

import pytest

from arpguard.addresses import MacAddress
from arpguard.dataplane import syscall
from arpguard.errors import DataPlaneError
from arpguard.verdict import Hook
from arpguard.wire.arp import ArpOp
from arpguard_lab.topology import NETWORK, AgentProcess, Lab
from support.frames.builders import a_frame, a_packet
from support.netns.agents import hung, said
from support.netns.cable import Pair, a_pair, a_place, address, plug
from support.netns.foreign import TC_UNSPEC, a_tc_program, an_xdp_program, attached, programs_at
from support.netns.guard import attachments
from support.netns.waiting import REPAIR_S, until
from support.netns.wire import Wire, a_wire, arp_of, claims, shown

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

NODE_ADDRESS = address(1)
M = MacAddress.parse("02:00:00:00:00:01")
OWNED, FOREIGN, FREE, MARK = address(50), address(51), address(55), address(90)
CONFIG = f"""
mode: enforce
audit: {{every: off}}
interfaces: [eth0]
vips:
  - {{address: {OWNED}, owner: {{node: node-1}}}}
  - {{address: {MARK}, owner: {{node: node-1}}}}
  - {{address: {FOREIGN}, owner: {{node: node-2}}}}
"""
INGRESS, EGRESS = syscall.ATTACH_TCX_INGRESS, syscall.ATTACH_TCX_EGRESS


def bind(pair: Pair, device: str = "lo") -> None:
    pair.node.netns.batch([f"addr add {vip}/32 dev {device}" for vip in (OWNED, FOREIGN, FREE)])


def announced(agent: AgentProcess) -> None:
    """Waits until the agent is done with announcing the two VIPs it owns."""
    until(lambda: said(agent, "announced:") >= 6, 5, "the last announcement")


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("lifetime") as made:
        bind(made)
        yield made


@pytest.fixture(scope="module")
def agent(pair) -> AgentProcess:
    started = pair.agent(CONFIG)
    announced(started)
    return started


@pytest.fixture
def wire(pair) -> Iterator[Wire]:
    with a_wire(pair.client) as opened:
        yield opened


def guarded(wire: Wire) -> bool:
    """Whether owner, non-owner and unguarded address behave as they should, each with exactly one answer or none."""
    return [wire.who(vip, MARK) for vip in (OWNED, FOREIGN, FREE)] == [[M], [], [M]]


def guarded_again(wire: Wire, mark: IPv4Address = MARK) -> bool:
    return wire.answers(mark) and guarded(wire)


# ---- E4, E5: what the node says by itself ------------------------------------------------------------------------


@pytest.fixture
def arp_announce(pair, request) -> Iterator[int]:
    pair.sysctl(arp_announce=request.param)
    yield request.param
    pair.sysctl(arp_announce=0)


def talk(pair: Pair, source: IPv4Address, target: IPv4Address) -> None:
    """Sends a datagram, for which the kernel has to ask who has the target."""

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.bind((str(source), 0))
            made.sendto(b".", (str(target), 9))

    pair.node.netns.call(send)


def asked_for(wire: Wire, target: IPv4Address) -> bytes:
    while True:
        frame = wire.hear(2)
        assert frame is not None, f"nobody asked for {target}"
        packet = arp_of(frame)
        if packet is not None and packet.op is ArpOp.REQUEST and packet.tpa == target:
            return frame


@pytest.mark.parametrize("arp_announce", [0, 1, 2], indirect=True)
def test_e4_no_request_leaves_with_a_foreign_vip_as_its_sender(pair, agent, wire, arp_announce):
    """The request goes out all the same, with the address that the link has itself."""
    targets = [address(120 + 10 * arp_announce + number) for number in range(3)]
    for source, target in zip((FOREIGN, OWNED, FREE), targets, strict=True):
        talk(pair, source, target)
    senders = [arp_of(asked_for(wire, target)).spa for target in targets]
    assert senders[0] == NODE_ADDRESS
    assert senders[1:] == ([NODE_ADDRESS, NODE_ADDRESS] if arp_announce == 2 else [OWNED, FREE])


def test_e4_frames_of_a_program_that_claim_a_foreign_vip_do_not_leave(pair, agent, wire):
    """MetalLB, kube-vip and keepalived answer from user space; the sender is told by ENOBUFS."""
    reply = a_frame(a_packet(op=ArpOp.REPLY, sha=M, spa=FOREIGN, tha=wire.mac, tpa=wire.address), wire.mac, M)
    announcement = a_frame(a_packet(sha=M, spa=FOREIGN, tpa=FOREIGN), src=M)
    with a_wire(pair.node) as speaker:
        for frame in (reply, announcement):
            with pytest.raises(OSError, match=os.strerror(errno.ENOBUFS)):
                speaker.send(frame)
    assert claims(wire.exchange([], MARK), FOREIGN) == []


def until_announced(wire: Wire, vip: IPv4Address) -> list[bytes]:
    """What is heard until somebody announces the VIP."""
    heard: list[bytes] = []
    while not any((packet := arp_of(frame)) and packet.spa == packet.tpa == vip for frame in heard):
        frame = wire.hear(3)
        assert frame is not None, f"nobody announced {vip}; heard\n{shown(heard)}"
        heard.append(frame)
    return heard


@pytest.fixture
def notifying(pair, agent) -> Iterator[None]:
    """With arp_notify the kernel announces every address of a device that comes up or changes its MAC."""
    pair.node.netns.batch([f"addr add {vip}/32 dev eth0" for vip in (FOREIGN, FREE)])
    pair.sysctl(arp_notify=1)
    yield
    pair.sysctl(arp_notify=0)
    pair.node.netns.batch([f"addr del {vip}/32 dev eth0" for vip in (FOREIGN, FREE)])


def test_e5_a_link_that_comes_up_does_not_announce_a_foreign_vip(pair, agent, wire, notifying):
    pair.node.netns.batch(["link set eth0 down", "link set eth0 up", "route add default via 198.51.100.254"])
    heard = until_announced(wire, FREE)
    until(lambda: wire.answers(MARK))
    assert claims(heard + wire.exchange([], MARK), FOREIGN) == []


def test_e5_a_new_mac_is_not_announced_for_a_foreign_vip(pair, agent, wire, notifying):
    for mac in ("02:00:00:00:00:b1", str(M)):
        before = said(agent, f"announced: .* mac={mac}")
        pair.node.netns.batch([f"link set eth0 address {mac}"])
        heard = until_announced(wire, FREE)
        until(lambda mac=mac: wire.who(OWNED, MARK) == [MacAddress.parse(mac)], REPAIR_S)
        assert claims(heard + wire.exchange([], MARK), FOREIGN) == []
    until(lambda: said(agent, f"announced: .* mac={M}") >= before + 6, 5, "the last announcement of the last MAC")


# ---- E8: the guard is taken off behind the agent's back ----------------------------------------------------------


def unpin(path) -> None:
    path.unlink()


def detach(path) -> None:
    with syscall.obj_get(str(path)) as link:
        syscall.link_detach(link)


def link_id(pin) -> int | None:
    try:
        return syscall.link_info(syscall.obj_get(str(pin))).id
    except FileNotFoundError:
        return None


@pytest.mark.tcx
@pytest.mark.parametrize("take_off", [unpin, detach])
@pytest.mark.parametrize(("hook", "at"), [("tc_ingress", Hook.TC_INGRESS), ("tc_egress", Hook.TC_EGRESS)])
def test_e8_a_program_that_was_taken_off_is_put_back_within_a_second(pair, agent, wire, take_off: Callable, hook, at):
    assert guarded(wire)
    programs, repairs = programs_at(pair.node, at), said(agent, "drift: another program detached the guard's programs")
    pin = agent.pin_dir / "links" / f"{pair.ifindex()}-{hook}"
    old = link_id(pin)
    take_off(pin)
    until(lambda: link_id(pin) not in (None, old), REPAIR_S, "another link is pinned")
    assert programs_at(pair.node, at) == programs
    assert guarded(wire)
    until(
        lambda: said(agent, "drift: another program detached the guard's programs") == repairs + 1,
        what="the log says so",
    )


@pytest.mark.tcx
def test_e8_a_program_that_the_kernel_lets_go_of_late_is_put_back_then_and_counts(pair, agent, wire):
    """As long as anything holds the link, its program runs, and the kernel attaches it to nothing else there."""
    repairs = said(agent, "drift: another program detached the guard's programs")
    pin = agent.pin_dir / "links" / f"{pair.ifindex()}-tc_ingress"
    with syscall.obj_get(str(pin)):
        pin.unlink()
        until(lambda: said(agent, r"problem: eth0: cannot attach .*\(File exists\)"))
        assert guarded(wire)
    until(pin.exists, REPAIR_S)
    assert guarded(wire)
    until(
        lambda: said(agent, "drift: another program detached the guard's programs") == repairs + 1,
        what="the log says so",
    )


def test_e8_an_interface_that_is_made_anew_is_guarded_within_a_second(pair, agent):
    pair.node.netns.batch(["link del eth0"])
    until(lambda: said(agent, "problem: interfaces: eth0: there is no such interface"), REPAIR_S)
    plug(pair.node, pair.client)
    with a_wire(pair.client) as wire:
        until(lambda: guarded_again(wire), REPAIR_S)
    found = attachments(pair.node, agent.pin_dir)
    assert sorted(found) == sorted((pair.ifindex(), hook) for hook in (Hook.TC_INGRESS, Hook.TC_EGRESS))


@pytest.mark.tcx
@pytest.mark.parametrize(
    ("hook", "at", "attach_type"),
    [("tc_ingress", Hook.TC_INGRESS, INGRESS), ("tc_egress", Hook.TC_EGRESS, EGRESS)],
)
def test_e8_a_foreign_tcx_program_in_front_is_reported_and_left_alone(pair, agent, wire, hook, at, attach_type):
    until(lambda: guarded_again(wire))
    foreign = a_tc_program(TC_UNSPEC)
    problem = f"problem: eth0: another program runs before arpguard at {hook}"
    with attached(pair.node, foreign, attach_type, syscall.F_BEFORE):
        until(lambda: said(agent, problem), REPAIR_S, problem)
        running = programs_at(pair.node, at)
        assert running[0] == syscall.program_info(foreign).id
        assert len(running) == 2
        assert guarded(wire)
    until(lambda: said(agent, f"solved: eth0: another program runs before arpguard at {hook}"), REPAIR_S)


def xdp_program(pair: Pair) -> str:
    return pair.node.netns.run("ip", "-details", "link", "show", "eth0")


def test_e8_a_foreign_xdp_program_is_reported_and_left_alone():
    """`datapath: xdp` falls back to tc, which answers beside any XDP program that lets the request through."""
    with a_pair("foreign-xdp") as pair:
        bind(pair)
        pair.node.netns.run("ethtool", "-K", "eth0", "rxvlan", "off")
        foreign = an_xdp_program()
        with attached(pair.node, foreign, syscall.ATTACH_XDP, syscall.XDP_FLAGS_DRV_MODE):
            agent = pair.agent(f"datapath: xdp\n{CONFIG}")
            assert said(agent, "problem: eth0: another XDP program is on interface")
            announced(agent)
            with a_wire(pair.client) as wire:
                assert guarded(wire)
            assert f"prog/xdp id {syscall.program_info(foreign).id}" in xdp_program(pair)


# ---- E11, E14 ----------------------------------------------------------------------------------------------------


def test_e11_the_old_owner_does_not_answer_probes_after_ownership_moved():
    """A client that has the old MAC asks it by unicast (RFC 4861's NUD, for ARP): it must not be kept there."""
    moving = "mode: enforce\ninterfaces: [eth0]\nvips:\n  - {{address: {vip}, owner: {{node: {owner}}}}}\n"
    with a_place("moved") as (folder, pin_root), Lab(2, folder, pin_root) as lab:
        agents = [lab.agent(host) for host in lab.nodes]
        for agent in agents:
            agent.host.bind(OWNED, "lo")
            agent.configure(moving.format(vip=OWNED, owner="node-1"))
            agent.start()
        for agent in agents:
            agent.wait_for()
        with a_wire(lab.client) as wire:
            probe = a_frame(a_packet(sha=wire.mac, spa=wire.address, tpa=OWNED), M, wire.mac)
            assert len([f for f in wire.exchange([probe], NODE_ADDRESS) if arp_of(f).tha == wire.mac]) == 1
            for agent in agents:
                agent.configure(moving.format(vip=OWNED, owner="node-2"))
            new = lab.nodes[1].mac
            until(lambda: wire.who(OWNED, lab.nodes[1].address) == [new], 3 * REPAIR_S, "the new owner answers, alone")
            unicast = [f for f in wire.exchange([probe], NODE_ADDRESS) if arp_of(f).sha == M]
            assert unicast == [], shown(unicast)


def test_e14_vips_that_fit_are_served_when_the_map_is_too_small_for_all():
    vips = [address(number) for number in range(60, 64)]
    config = "mode: enforce\ninterfaces: [eth0]\nvips:\n"
    config += "".join(f"  - {{address: {vip}, owner: {{node: node-1}}}}\n" for vip in vips)
    with a_pair("full") as pair:
        agent = pair.agent()
        agent.configure(config)
        text = agent.config.read_text().replace("bpf: {pin_dir:", "bpf: {max_entries: 3, pin_dir:")
        agent.config.write_text(text)
        agent.start()
        agent.wait_for()
        assert said(agent, "problem: the entries map is full: it has room for 3 of 4 VIP entries; not guarded: .*63;")
        with a_wire(pair.client) as wire:
            answering = [vip for vip in vips if wire.answers(vip)]
            assert answering == vips[:3]
            agent.configure(config.replace(f"  - {{address: {vips[0]}, owner: {{node: node-1}}}}\n", ""))
            until(lambda: [wire.answers(vip, 0.02) for vip in vips] == [False, True, True, True], REPAIR_S)
        agent.wait_for("solved: the entries map is full")


# ---- D10: devices upon devices -----------------------------------------------------------------------------------


def over_a_bridge(pair: Pair) -> None:
    """eth0 becomes a port of br0, which carries the address."""
    pair.node.netns.batch(
        [
            "addr flush dev eth0",
            "link add br0 type bridge forward_delay 0 mcast_snooping 0",
            "link set br0 address 02:00:00:00:00:b0",
            "link set eth0 master br0",
            "link set br0 up",
            f"addr add {NODE_ADDRESS}/24 dev br0",
        ]
    )


def over_a_macvlan(pair: Pair) -> None:
    """The macvlan carries the address, its parent has none."""
    pair.node.netns.batch(
        [
            "addr flush dev eth0",
            "link add link eth0 name mv0 address 02:00:00:00:00:b1 type macvlan mode bridge",
            "link set mv0 up",
            f"addr add {NODE_ADDRESS}/24 dev mv0",
        ]
    )


@pytest.mark.parametrize(
    ("build", "device", "mac"),
    [
        pytest.param(over_a_bridge, "br0", "02:00:00:00:00:b0", id="the bridge over its port"),
        pytest.param(over_a_macvlan, "eth0", str(M), id="the parent under its macvlan"),
    ],
)
def test_d10_answered_exactly_once_in_total(build, device, mac):
    """The VIPs are on lo, so that every unguarded way to the kernel would answer, too."""
    with a_pair("stacked") as pair:
        build(pair)
        bind(pair)
        agent = pair.agent(CONFIG.replace("eth0", device))
        assert said(agent, rf"ready: .* links={device} ")
        announced(agent)
        with a_wire(pair.client) as wire:
            assert wire.who(OWNED, MARK) == [MacAddress.parse(mac)]
            assert wire.who(FOREIGN, MARK) == []
            assert wire.who(FREE, MARK)


def test_d10_a_macvlan_is_refused_in_favour_of_its_parent():
    """The parent's kernel hears every broadcast, too: guarding the macvlan alone would leave that one to answer."""
    with a_pair("macvlan") as pair:
        over_a_macvlan(pair)
        with pytest.raises(DataPlaneError, match=r"mv0 shares its segment with eth0, .* name eth0 instead"):
            pair.agent(CONFIG.replace("eth0", "mv0"))


@pytest.mark.parametrize("interfaces", ["[auto]", "[mv0, eth0]"])
def test_d10_a_macvlan_and_its_parent_answer_exactly_once_for_a_vip_on_lo(interfaces):
    """The parent sees every broadcast, too, and Linux answers on any interface for an address of lo."""
    with a_pair("macvlan-lo") as pair:
        over_a_macvlan(pair)
        bind(pair)
        pair.agent(CONFIG.replace("[eth0]", interfaces))
        with a_wire(pair.client) as wire:
            until(lambda: wire.answers(FREE))
            heard = wire.exchange([wire.request(OWNED), wire.request(FOREIGN)], FREE)
            heard += wire.listen(0.2)  # a macvlan gets its broadcasts from a work queue
        replies = [packet for frame in heard if (packet := arp_of(frame)) and packet.tha == wire.mac != packet.sha]
        assert [packet.spa for packet in replies] == [OWNED]


@pytest.mark.parametrize("interfaces", ["[auto]", f"['cidr:{NETWORK}.0/24']", f"['can_reach:{address(200)}']"])
def test_an_address_that_is_away_for_a_moment_does_not_open_the_guard(interfaces):
    """As while DHCP renews it: without subnet and routes the kernel still answers for what is on lo."""
    with a_pair("flush") as pair:
        bind(pair)
        agent = pair.agent(CONFIG.replace("[eth0]", interfaces))
        with a_wire(pair.client) as wire:
            assert wire.who(FOREIGN, FREE) == []
            pair.node.netns.batch(["addr flush dev eth0"])
            agent.wait_for("problem: interfaces")
            until(lambda: wire.answers(FREE), what="the kernel answers without an address on eth0")
            assert wire.who(FOREIGN, FREE) == []
            assert wire.who(OWNED, FREE) == [M]


@pytest.mark.tcx
def test_e8_pins_that_somebody_removed_are_made_again(pair, agent, wire):
    """Without its folder no link can be pinned, and a link that is not pinned goes."""
    until(lambda: guarded_again(wire))
    with hung(agent):  # else it might pin while they are removed
        shutil.rmtree(agent.pin_dir / "links")
    until(lambda: len(list((agent.pin_dir / "links").glob("*"))) == 2, REPAIR_S, "both links are pinned again")
    assert guarded(wire)


def test_a_stray_name_among_the_pins_is_left_alone(pair, agent, wire):
    stray = agent.pin_dir / "links" / "my-backup"
    stray.mkdir()
    done = pair.arpguard("status", "--pin-dir", str(agent.pin_dir))
    assert (done.returncode, done.stderr) == (0, "")
    assert guarded(wire)
    stray.rmdir()
