"""Attached by filters of the clsact qdisc, as on kernels before 6.6; where there is TCX, because it is asked for."""

import signal
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from arpguard.addresses import MacAddress
from arpguard.dataplane import loader, syscall
from arpguard.dataplane.build import read_build
from arpguard.model import NodeControl, VipEntry
from arpguard.verdict import Hook, Kind, Mode
from support.frames.builders import a_control, an_entry
from support.netns.cable import Pair, a_pair, address
from support.netns.foreign import TC_UNSPEC, a_tc_program, lacks_tcx
from support.netns.guard import a_guard
from support.netns.waiting import START_S, until
from support.netns.wire import Wire, a_wire, stream
from support.programs.compiling import another_build

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

M = MacAddress.parse("02:00:00:00:00:01")
NODE_ADDRESS = address(1)
OWNED, FOREIGN, MARK = address(50), address(51), address(90)
CONFIG = f"""
mode: enforce
audit: {{every: off}}
interfaces: [eth0]
vips:
  - {{address: {OWNED}, owner: {{node: node-1}}}}
  - {{address: {MARK}, owner: {{node: node-1}}}}
  - {{address: {FOREIGN}, owner: {{node: node-2}}}}
"""


def answers(wire: Wire, mark: IPv4Address = MARK) -> dict[IPv4Address, list[MacAddress]]:
    """Who answers for each VIP."""
    return {vip: wire.who(vip, mark) for vip in (OWNED, FOREIGN)}


def filters(pair: Pair, direction: str) -> str:
    return pair.node.netns.run("tc", "filter", "show", "dev", "eth0", direction)


def test_clsact_filters_are_attached_replaced_and_detached():
    with a_pair("clsact") as own:
        own.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in (OWNED, FOREIGN)])
        guard = a_guard(own, Hook.TC_EGRESS, use_tcx=False)
        assert guard.attach(Hook.TC_EGRESS, Hook.TC_INGRESS) == ["clsact", "clsact"]
        guard.set({OWNED: an_entry(unfenced=True), FOREIGN: an_entry(Kind.FOREIGN)}, a_control())
        newer = loader.load(guard.pin_dir, another_build(read_build()))
        with a_wire(own.client) as wire:
            assert answers(wire, mark=NODE_ADDRESS) == {OWNED: [M], FOREIGN: []}

            def upgrade() -> None:
                for programs in (newer.programs, guard.programs, newer.programs):
                    guard.attach(Hook.TC_EGRESS, Hook.TC_INGRESS, programs=programs)

            seen = stream(own.client, OWNED, upgrade)
            assert (seen.lost, seen.doubled) == (0, 0), f"of {seen.sent}"
            assert filters(own, "ingress").count(" arpguard_") == 1
            guard.detach(Hook.TC_EGRESS, Hook.TC_INGRESS)
            assert "arpguard" not in filters(own, "ingress") + filters(own, "egress")
            assert answers(wire, mark=NODE_ADDRESS) == {OWNED: [M], FOREIGN: [M]}


def test_an_earlier_clsact_filter_of_somebody_else_stays(tmp_path):
    """It has the first priority and handle, as arpguard's would have."""
    with a_pair("crowded-clsact") as own:
        pin = own.pin_root / "foreign"
        syscall.obj_pin(a_tc_program(TC_UNSPEC), str(pin))
        own.node.netns.run("tc", "qdisc", "add", "dev", "eth0", "clsact")
        theirs = ["tc", "filter", "add", "dev", "eth0", "ingress", "prio", "1", "handle", "1"]
        own.node.netns.run(*theirs, "bpf", "direct-action", "object-pinned", str(pin))
        a_guard(own, Hook.TC_INGRESS, use_tcx=False)
        assert "foreign" in filters(own, "ingress")
        assert filters(own, "ingress").count(" arpguard_") == 1


def test_cleanup_leaves_other_peoples_clsact_filters():
    with a_pair("shared-clsact") as own:
        guard = a_guard(own, use_tcx=False)
        guard.attach(Hook.TC_EGRESS, Hook.TC_INGRESS)
        pin = own.pin_root / "foreign"
        syscall.obj_pin(a_tc_program(TC_UNSPEC), str(pin))
        theirs = ["tc", "filter", "add", "dev", "eth0", "ingress", "prio", "7"]
        own.node.netns.run(*theirs, "bpf", "direct-action", "object-pinned", str(pin))
        done = own.arpguard("cleanup", "--pin-dir", str(guard.pin_dir))
        assert (done.returncode, done.stderr) == (0, "")
        assert "arpguard" not in filters(own, "ingress") + filters(own, "egress")
        assert "pref 7 bpf" in filters(own, "ingress")
        assert not guard.pin_dir.exists()


@pytest.mark.parametrize(
    "words", [["tc", "filter", "del", "dev", "eth0", "ingress"], ["tc", "qdisc", "del", "dev", "eth0", "clsact"]]
)
def test_a_clsact_filter_that_was_deleted_is_attached_again_by_the_next_look(words):
    """As kernels before 6.6 have it; the agent looks twice a second."""
    with a_pair("clsact-repair") as pair:
        guard = a_guard(pair, Hook.TC_INGRESS, Hook.TC_EGRESS, use_tcx=False)
        entries = {OWNED: VipEntry(Kind.OWNED, unfenced=True, link_mac=M, answer_mac=M)}
        guard.set(entries, NodeControl(mode=Mode.ENFORCE, generation=1))
        with a_wire(pair.client) as wire:
            assert wire.answers(OWNED)
            pair.node.netns.run(*words)
            assert not wire.answers(OWNED)
            assert guard.attach(Hook.TC_INGRESS, Hook.TC_EGRESS) == ["clsact", "clsact"]
            assert wire.answers(OWNED)


def test_the_kernel_decides_whether_it_is_clsact():
    with a_pair("clsact-or-tcx") as own:
        assert a_guard(own).attach(Hook.TC_EGRESS) == ["clsact" if lacks_tcx() else "tcx"]


# ---- the agent, on a kernel that has nothing else -----------------------------------------------------------------


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    if not lacks_tcx():
        pytest.skip("this kernel has TCX, which the agent prefers")
    with a_pair("clsact-agent") as made:
        made.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in (OWNED, FOREIGN)])
        made.agent(CONFIG)
        yield made


@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_the_agent_attaches_a_filter_again_that_somebody_deleted(pair, direction):
    with a_wire(pair.client) as wire:
        assert answers(wire) == {OWNED: [M], FOREIGN: []}
        pair.node.netns.run("tc", "filter", "del", "dev", "eth0", direction)
        until(lambda: filters(pair, direction).count(" arpguard_") == 1, what="it is attached again")
        until(lambda: wire.answers(MARK))
        assert answers(wire) == {OWNED: [M], FOREIGN: []}


def test_the_agent_starts_anew_without_a_lost_frame_and_cleanup_leaves_the_filters_of_others(pair):
    (agent,) = pair.agents
    pin = pair.pin_root / "foreign"
    syscall.obj_pin(a_tc_program(TC_UNSPEC), str(pin))
    theirs = ["tc", "filter", "add", "dev", "eth0", "ingress", "prio", "7"]
    pair.node.netns.run(*theirs, "bpf", "direct-action", "object-pinned", str(pin))

    def again() -> None:
        agent.kill(signal.SIGTERM)
        agent.start()
        agent.wait_for(timeout_s=START_S)

    seen = stream(pair.client, OWNED, again)
    assert (seen.lost, seen.doubled) == (0, 0), f"of {seen.sent}"
    agent.kill(signal.SIGTERM)
    done = pair.arpguard("cleanup", "--pin-dir", str(agent.pin_dir))
    assert (done.returncode, done.stderr) == (0, "")
    assert "arpguard" not in filters(pair, "ingress") + filters(pair, "egress")
    assert "pref 7 bpf" in filters(pair, "ingress")
