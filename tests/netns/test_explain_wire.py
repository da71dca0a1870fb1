"""ExplainVip says beforehand what happens on the wire: every operation on every kind of entry, in both modes.

        client                    node                           spy
    198.51.100.100  eth0 ---- eth0 [guard | copier] kernel
                                            |
                                          spy0 ------------------ eth0

What goes on behind the guard at ingress is copied to the spy: that is what the kernel gets. Every VIP is on lo, so
that the kernel answers what it may. Every cell has a VIP of its own.
"""

import errno
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Address
from itertools import count, product
from typing import Any

import grpc
import pytest

from arpguard.api import answers
from arpguard.api.offline import read_node
from arpguard.core.stimulus import STRANGERS
from arpguard.dataplane import syscall
from arpguard.model import Tally
from arpguard.node import ThisNode
from arpguard.v1 import agent_pb2 as pb
from arpguard.v1 import agent_pb2_grpc
from arpguard.verdict import Hook, Mode, Reason
from arpguard.wire.arp import ArpOp, ArpPacket, build_announcements, build_frame
from arpguard_lab.topology import AgentProcess, Host
from support.frames.builders import EPOCH, a_control, an_entry
from support.netns.agents import said
from support.netns.cable import Pair, a_netns, a_pair, address
from support.netns.foreign import TC_UNSPEC, _load, _mov, an_xdp_program, attached
from support.netns.guard import Guard, a_guard
from support.netns.waiting import ANSWER_S, until
from support.netns.wire import Wire, a_wire, shown

pytestmark = [pytest.mark.tcx, pytest.mark.netns, pytest.mark.bpf]

MARK = address(90)
STRANGER = STRANGERS[4]
OWNERS = {
    "owned": "{node: node-1}",
    "foreign": "{node: node-2}",
    "external": "external",
    "external_known": '{external: "02:00:00:00:00:aa"}',
    "external_stranger": f'{{external: "{STRANGER.mac}"}}',
    "unclaimed": "elect",
    "delegated": "{node: node-1, delegated: true}",
    "none": "",
}
# What a running agent would mend: the entry, and what differs in the node's control value.
LEASED = {
    "leased": (an_entry(), {}),
    "fenced": (an_entry(), {"fence_ns": 0}),
    "stale": (an_entry(epoch=EPOCH - 1), {}),
    "stale_held": (an_entry(epoch=EPOCH - 1, unfenced=True), {}),
}


@dataclass(frozen=True)
class Cell:
    """An operation on an entry in a mode, with a VIP for it alone."""

    entry: str
    mode: Mode
    operation: int
    vip: IPv4Address

    def __str__(self) -> str:
        return f"{self.entry}-{self.mode.name}-{pb.Operation.Name(self.operation).removeprefix('OPERATION_')}".lower()

    @property
    def outgoing(self) -> bool:
        return pb.Operation.Name(self.operation).startswith("OPERATION_OUT_")

    @property
    def is_question(self) -> bool:
        return self.operation in (pb.OPERATION_REQUEST, pb.OPERATION_PROBE)


def cells(entries: dict[str, Any], first: str) -> list[Cell]:
    """An address without an entry has the node's mode."""
    every = product(entries, (Mode.OBSERVE, Mode.ENFORCE), pb.Operation.values()[1:])
    wanted = [cell for cell in every if cell[:2] != ("none", Mode.OBSERVE)]
    return [Cell(*cell, IPv4Address(first) + number) for cell, number in zip(wanted, count(), strict=False)]


AGENT_CELLS, LEASED_CELLS = cells(OWNERS, "10.1.0.1"), cells(LEASED, "10.1.1.1")


# ---- the site --------------------------------------------------------------------------------------------------------


def a_copier(ifindex: int) -> syscall.Fd:
    """Sends a copy of every frame out of another link, and lets the frame go on."""
    clone_redirect, exit_ = (struct.pack("=BBhi", opcode, 0, 0, imm) for opcode, imm in ((0x85, 13), (0x95, 0)))
    return _load(3, _mov(2, ifindex) + _mov(3, 0) + clone_redirect + _mov(0, TC_UNSPEC) + exit_)


@dataclass
class Site:
    """The wire as the client and the node have it, and what the node's kernel gets of it."""

    pair: Pair
    client: Wire
    node: Wire
    spy: Wire

    def send(self, cell: Cell, frame: bytes) -> tuple[list[bytes], list[bytes]]:
        """What the client hears then, and what the node's kernel gets."""
        heard = self.client.exchange([frame], MARK, self._speak if cell.outgoing else self.client.send)
        got = list(iter(partial(self.spy.hear, 0), None))
        assert got.pop()[38:42] == MARK.packed, "the probe for MARK comes last"
        return heard, got

    def _speak(self, frame: bytes) -> None:
        """The node sends a frame; that its guard drops it is told to the sender."""
        try:
            self.node.send(frame)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise


@contextmanager
def a_site(name: str, vips: list[IPv4Address], guard: Callable[[Pair], Any]) -> Iterator[tuple[Site, Any]]:
    with ExitStack() as stack:
        pair = stack.enter_context(a_pair(name))
        spy = Host("spy", stack.enter_context(a_netns(f"{name}-spy")), 9)
        pair.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in [MARK, *vips]])
        pair.node.netns.batch([f"link add spy0 type veth peer name eth0 netns {spy.netns.name}", "link set spy0 up"])
        spy.netns.batch(["link set eth0 up"])
        made = guard(pair)
        copier = a_copier(pair.ifindex("spy0"))
        stack.enter_context(attached(pair.node, copier, syscall.ATTACH_TCX_INGRESS, 0))
        yield Site(pair, *(stack.enter_context(a_wire(host)) for host in (pair.client, pair.node, spy))), made


# ---- what is said, and what is seen ----------------------------------------------------------------------------------

Counts = Counter[tuple[int, str]]


@dataclass
class Sayings:
    """Who is asked about an address: an agent, or the pinned objects. Conflicts about `defended` are answered."""

    explain: Callable[[pb.ExplainVipRequest], pb.ExplainVipResponse]
    get: Callable[[pb.GetVipRequest], pb.GetVipResponse]
    node: ThisNode
    defended: tuple[str, ...]

    def about(self, vip: IPv4Address) -> dict[int, pb.FrameExplanation]:
        (link,) = self.explain(pb.ExplainVipRequest(address=str(vip))).links
        return {frame.operation: frame for frame in link.frames}

    def counts(self, cell: Cell) -> tuple[Counts, Counts]:
        """The VIP's counters, and the node's."""
        vips = [] if cell.entry == "none" else self.get(pb.GetVipRequest(address=str(cell.vip))).vips
        own = {
            (found.reason, how): getattr(found, how)
            for vip in vips
            for found in vip.reasons
            for how in ("enforced", "observed")
        }
        return Counter(own), counted(self.node.read_totals()[0])


def counted(tally: Tally) -> Counts:
    return Counter(
        {(reason, how): number for how in ("enforced", "observed") for reason, number in getattr(tally, how).items()}
    )


def what_is_said(site: Site, cell: Cell, sayings: Sayings) -> tuple[list[bytes], list[bytes], list[int]]:
    """What the client hears and the kernel gets, if it is true, and the reasons that are counted then."""
    about = sayings.about(cell.vip)
    story, reply = about[cell.operation], about[pb.OPERATION_OUT_REPLY]
    frame, result = bytes.fromhex(story.frame.hex), bytes.fromhex(story.result.hex)
    goes_on = {pb.FATE_PASSED: [frame], pb.FATE_CHANGED: [result]}.get(story.fate, [])
    if cell.outgoing:
        return goes_on, [], [story.reason]
    if story.fate == pb.FATE_ANSWERED:
        replies = [result]
    elif goes_on and cell.is_question:
        replies = [kernels_reply(site, cell)]
    elif story.verdict == pb.VERDICT_CONFLICT and story.mode == pb.MODE_ENFORCE and cell.entry in sayings.defended:
        replies = list(build_announcements(site.pair.node.mac, cell.vip))
    else:
        replies = []
    assert reply.fate == pb.FATE_PASSED or not replies
    judged = [] if story.fate == pb.FATE_ANSWERED and story.hook == pb.HOOK_XDP else replies  # XDP's go past tc egress
    return replies, goes_on, [story.reason, *(reply.reason for _ in judged)]


def kernels_reply(site: Site, cell: Cell) -> bytes:
    asker = IPv4Address(0) if cell.operation == pb.OPERATION_PROBE else STRANGER.address
    packet = ArpPacket(ArpOp.REPLY, site.pair.node.mac, cell.vip, STRANGER.mac, asker)
    return build_frame(packet, STRANGER.mac, site.pair.node.mac, min_len=42)


def check(site: Site, cell: Cell, sayings: Sayings) -> None:
    before = sayings.counts(cell)
    hears, gets, reasons = what_is_said(site, cell, sayings)
    frame = bytes.fromhex(sayings.about(cell.vip)[cell.operation].frame.hex)
    assert sayings.counts(cell) == before, "explaining counts nothing"

    heard, got = site.send(cell, frame)
    while len(heard) < len(hears) and (late := site.client.hear(ANSWER_S)) is not None:
        heard.append(late)
    assert heard == hears, f"the client hears\n{shown(heard)}\nand not\n{shown(hears)}"
    assert got == gets, f"the kernel gets\n{shown(got)}\nand not\n{shown(gets)}"

    how = "observed" if cell.mode is Mode.OBSERVE else "enforced"
    moved = Counter((reason, how) for reason in reasons)
    own, node = (after - earlier for after, earlier in zip(sayings.counts(cell), before, strict=True))
    assert own == (Counter() if cell.entry == "none" else moved)
    assert node == moved + Counter({(Reason.NOT_GUARDED, "enforced"): 2}), "with MARK's probe and its reply"


# ---- with an agent ---------------------------------------------------------------------------------------------------


def a_config() -> str:
    vips = [
        f"  - {{address: {cell.vip}, owner: {OWNERS[cell.entry]}, mode: {cell.mode.name.lower()}}}"
        for cell in AGENT_CELLS
        if OWNERS[cell.entry]
    ]
    return "\n".join(["mode: enforce", "audit: {every: off}", "interfaces: [eth0]", "vips:", *vips, ""])


def an_agent(pair: Pair) -> AgentProcess:
    """One that has announced what it owns."""
    agent = pair.agent(a_config())
    announcing = [cell for cell in AGENT_CELLS if (cell.entry, cell.mode) == ("owned", Mode.ENFORCE)]
    until(lambda: said(agent, "announced:") == 3 * len(announcing), 10, "the last announcement")
    return agent


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Site, Sayings]]:
    with a_site("explained", [cell.vip for cell in AGENT_CELLS], an_agent) as (site, agent):
        node = site.pair.node.netns.call(lambda: read_node(agent.pin_dir))
        with grpc.insecure_channel(agent.api) as channel:
            stub = agent_pb2_grpc.AgentServiceStub(channel)
            yield site, Sayings(stub.ExplainVip, stub.GetVip, node, defended=("owned",))


@pytest.mark.parametrize("cell", AGENT_CELLS, ids=str)
def test_what_the_agent_explains_happens_on_the_wire(guarded, cell):
    site, sayings = guarded
    check(site, cell, sayings)


# ---- with a lease, which configurations cannot make ------------------------------------------------------------------


def a_leased_guard(pair: Pair, ingress: Hook) -> Guard:
    guard = a_guard(pair, ingress, Hook.TC_EGRESS)
    own = {"primary": pair.node.address, "link_mac": pair.node.mac, "answer_mac": pair.node.mac}
    guard.set({cell.vip: replace(LEASED[cell.entry][0], mode=cell.mode, **own) for cell in LEASED_CELLS}, a_control())
    return guard


@contextmanager
def an_open_end(pair: Pair) -> Iterator[None]:
    """A veth takes answers from XDP in only if native XDP runs at its end, too."""
    with attached(pair.client, an_xdp_program(), syscall.ATTACH_XDP, syscall.XDP_FLAGS_DRV_MODE):
        yield


@pytest.fixture(scope="module", params=[Hook.TC_INGRESS, Hook.XDP], ids=["tc", "xdp"])
def leased(request) -> Iterator[tuple[Site, Sayings, Guard]]:
    vips, guard = [cell.vip for cell in LEASED_CELLS], partial(a_leased_guard, ingress=request.param)
    with a_site(f"leased-{request.param.name}", vips, guard) as (site, guard), an_open_end(site.pair):
        node = site.pair.node.netns.call(lambda: read_node(guard.pin_dir))
        explain, get = partial(answers.explain_vip, node), partial(answers.get_vip, node)
        yield site, Sayings(explain, get, node, defended=()), guard


@pytest.mark.parametrize("cell", LEASED_CELLS, ids=str)
def test_what_the_pinned_objects_explain_happens_on_the_wire(leased, cell):
    site, sayings, guard = leased
    guard.control.write(a_control(**LEASED[cell.entry][1]))
    check(site, cell, sayings)
