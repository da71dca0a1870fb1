"""The running agent and IPv6 VIPs: what it answers, silences, announces, explains and follows, as for IPv4.

Every VIP is on the node's eth0, so that the kernel would answer for it.
"""

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from ipaddress import IPv6Address

import pytest

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane import loader
from arpguard.dataplane.maps import ControlValue
from arpguard.dataplane.neighboursocket import HeardFrame, NeighbourSocket
from arpguard.verdict import Mode
from arpguard.wire.facts import facts_of
from arpguard.wire.ndp import (
    NdType,
    build_dad_solicitation,
    build_solicitation,
    build_unsolicited_advertisement,
    solicited_node,
)
from arpguard_lab.topology import AgentProcess
from support.netns.agents import arpguard, said
from support.netns.cable import Pair, a_pair, address, address6, groups_of, speak_ipv6
from support.netns.waiting import ANSWER_S, HUNG_S, REPAIR_S, until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

M, CLIENT_MAC = MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:64")
STRANGER = MacAddress.parse("02:00:00:00:00:99")
NODE, CLIENT, ALL_NODES = address6(1), address6(100), IPv6Address("ff02::1")
OWNED, FOREIGN, MOVING, MARK = (address6(number) for number in (0x50, 0x51, 0x52, 0x90))
ANNOUNCED = (OWNED, MOVING, MARK)  # to all nodes, at times
OWNED4 = address(50)
PORT = 9471
VIPS: dict[Address, str] = {OWNED: "node-1", MARK: "node-1", FOREIGN: "node-2", MOVING: "node-2"}
SPACING_S = 1.0  # RFC 4861 10: RETRANS_TIMER


def a_config(vips: dict[Address, str] | None = None, mode: str = "enforce") -> str:
    lines = [f"mode: {mode}", "interfaces: [eth0]", f"metrics: {{listen: '127.0.0.1:{PORT}'}}", "vips:"]
    items = (VIPS if vips is None else vips).items()
    return "\n".join([*lines, *(f"  - {{address: '{vip}', owner: {{node: {owner}}}}}" for vip, owner in items)])


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("agent6") as made:
        speak_ipv6(made.node, made.client)
        for vip in (OWNED, FOREIGN, MOVING):
            made.node.netns.batch([f"addr add {vip}/128 dev eth0 nodad"])
        yield made


@pytest.fixture(scope="module")
def the_agent(pair) -> AgentProcess:
    agent = pair.agent(a_config())
    until(lambda: said(agent, "announced:") >= 3 * len((OWNED, MARK)), what="the last announcements of the start")
    return agent


class Asker:
    """Asks from the client, and tells who answers without waiting for those who do not."""

    def __init__(self, pair: Pair) -> None:
        self.socket = pair.client.netns.call(lambda: NeighbourSocket("eth0"))

    def heard_until_mark(self, frames: Sequence[bytes], mark: IPv6Address) -> list[HeardFrame] | None:
        """What is heard before the answer about `mark`, which is asked for last; None when none comes."""
        while self.socket.hear(0) is not None:
            pass
        for frame in frames:
            self.socket.send(frame)
        self.socket.send(build_solicitation(CLIENT_MAC, CLIENT, mark))
        found: list[HeardFrame] = []
        deadline = time.monotonic() + ANSWER_S
        while (heard := self.socket.hear(deadline - time.monotonic())) is not None:
            if (heard.packet.spa, heard.packet.tpa) == (mark, CLIENT):
                return found
            found.append(heard)
        return None

    def who(self, *vips: IPv6Address, mark: IPv6Address = NODE) -> dict[IPv6Address, list[MacAddress]]:
        """The MACs that answer for each VIP, one for each answer."""
        heard = self.heard_until_mark([build_solicitation(CLIENT_MAC, CLIENT, vip) for vip in vips], mark)
        assert heard is not None, f"{mark} was not answered"
        packets = [each.packet for each in heard if each.packet.op is NdType.ADVERTISEMENT]
        answers = [packet for packet in packets if not (packet.tpa == ALL_NODES and packet.spa in ANNOUNCED)]
        return {vip: [packet.sha for packet in answers if packet.spa == vip] for vip in vips}

    def listen(self, wait_s: float, count: int = 1) -> list[HeardFrame]:
        """The next advertisements to all nodes; fewer than `count` if so many do not come in time."""
        found: list[HeardFrame] = []
        deadline = time.monotonic() + wait_s
        while len(found) < count and (heard := self.socket.hear(deadline - time.monotonic())) is not None:
            if heard.packet.op is NdType.ADVERTISEMENT and heard.packet.tpa == ALL_NODES:
                found.append(heard)
        return found


def about(heard: Sequence[HeardFrame], vip: IPv6Address) -> list[HeardFrame]:
    return [each for each in heard if each.packet.spa == vip]


@pytest.fixture
def asker(pair) -> Iterator[Asker]:
    asker = Asker(pair)
    with closing(asker.socket):
        yield asker


@pytest.fixture
def agent(pair, the_agent, asker) -> AgentProcess:
    """The one agent of this file, running on `a_config()`, whatever the tests before did to it."""
    the_agent.configure(a_config())
    if the_agent.pid is None:
        the_agent.start()
        the_agent.wait_for()
    settled = {OWNED: [M], FOREIGN: [], MOVING: []}
    until(lambda: asker.who(*settled) == settled, 3, "the agent is up to date")
    return the_agent


@pytest.fixture
def ask(pair, agent) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    return lambda *words: pair.arpguard(*words, "--address", agent.api)


@pytest.fixture
def document(ask) -> Callable[..., dict]:
    return lambda *words: json.loads(ask(*words, "-o", "json").stdout)


def follows(agent: AgentProcess, config: str, condition: Callable[[], object]) -> None:
    """A changed configuration has its effect within a second."""
    agent.configure(config)
    until(condition, REPAIR_S, "the change on the wire")


# ---- on the wire -------------------------------------------------------------------------------------------------


def test_owned_vip_is_answered_once_and_others_are_silent(agent, asker):
    assert asker.who(OWNED, FOREIGN, MOVING) == {OWNED: [M], FOREIGN: [], MOVING: []}


def test_vip_that_is_bound_nowhere_is_answered(agent, asker):
    assert asker.who(MARK) == {MARK: [M]}


def test_probe_for_an_owned_vip_is_told_to_all_that_it_is_taken(agent, asker):
    heard = asker.heard_until_mark([build_dad_solicitation(CLIENT_MAC, vip) for vip in (OWNED, FOREIGN)], NODE)

    assert [(each.packet.spa, each.packet.tpa, each.packet.sha) for each in heard] == [(OWNED, ALL_NODES, M)]


def test_without_the_guard_the_kernel_answers_for_all(pair, agent, asker):
    """What the others are measured against: the kernel does have these addresses."""
    follows(agent, a_config(mode="observe"), lambda: asker.who(FOREIGN) == {FOREIGN: [M]})


@pytest.fixture
def younger_address(pair) -> Iterator[None]:
    """The kernel lists it before the one that the node had first."""
    pair.node.netns.batch([f"addr add {address6(2)}/64 dev eth0 nodad"])
    yield
    pair.node.netns.batch([f"addr del {address6(2)}/64 dev eth0"])


def test_node_asks_neighbours_in_its_own_name(pair, younger_address, agent, asker, document):
    """Though what it sends comes from a VIP that is another node's (arp_announce=2 does as much for IPv4)."""
    neighbour = address6(0x77)
    until(lambda: f"{address6(2)}/64" in document("links")["links"][0]["addresses"])
    ping = ["ping", "-6", "-c", "1", "-W", "1", "-I", str(FOREIGN), str(neighbour)]
    running = subprocess.Popen([*pair.node.netns.prefix(), *ping], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        heard = iter(partial(asker.socket.hear, ANSWER_S), None)
        packet = next(each.packet for each in heard if each.packet.tpa == neighbour)
    finally:
        running.wait()

    assert (packet.spa, packet.sha) == (NODE, M)


def test_takeover_is_announced_three_times(agent, asker):
    agent.configure(a_config({**VIPS, MOVING: "node-1"}))

    heard: list[HeardFrame] = []
    until(lambda: heard.extend(asker.listen(0.1)) or len(about(heard, MOVING)) >= 3, what="three advertisements")
    heard = about(heard + asker.listen(1.5 * SPACING_S, count=99), MOVING)

    assert [each.packet.sha for each in heard] == [M] * 3


def metrics(pair: Pair) -> list[str]:
    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=HUNG_S) as response:
            return response.read().decode()

    return pair.node.netns.call(scrape).splitlines()


def test_claim_of_a_stranger_is_defended_against_once_and_reported(pair, agent, asker, document):
    claim = build_unsolicited_advertisement(STRANGER, OWNED)
    while asker.listen(1.5 * SPACING_S):
        pass  # those of the start
    asker.socket.send(claim)
    (defence,) = asker.listen(ANSWER_S)
    asker.socket.send(claim)

    assert (defence.packet.spa, defence.packet.sha) == (OWNED, M)
    assert asker.listen(0.5) == []
    until(lambda: document("conflicts", "--vip", str(OWNED))["conflicts"], ANSWER_S)
    (found,) = document("conflicts", "--vip", str(OWNED))["conflicts"]
    assert (found["mac"], found["link"], found["dropped"]) == (str(STRANGER), "eth0", True)
    labels = f'{{claimant="outside",link="eth0",reason="conflict",vip="{OWNED}"}}'
    rows = [row for row in metrics(pair) if row.startswith("arpguard_conflicting_claims{")]
    assert [row.rpartition(" ")[0] for row in rows] == [f"arpguard_conflicting_claims{labels}"]


# ---- groups ------------------------------------------------------------------------------------------------------


def listens(pair: Pair, vip: IPv6Address) -> bool:
    """Whether the agent listens to a VIP's group: the kernel does so once, for the address."""
    bound = vip in (OWNED, FOREIGN, MOVING)
    return groups_of(pair.node.netns).get(solicited_node(vip), 0) == bound + 1


def test_groups_of_owned_vips_are_listened_to_and_no_others(pair, agent):
    until(lambda: listens(pair, OWNED) and listens(pair, MARK) and not listens(pair, MOVING))
    agent.configure(a_config({**VIPS, MOVING: "node-1"}))
    until(lambda: listens(pair, MOVING))
    agent.configure(a_config())
    until(lambda: not listens(pair, MOVING))
    assert listens(pair, OWNED)


def test_groups_are_listened_to_again_after_a_crash_and_answers_go_on(pair, agent, asker):
    agent.kill(signal.SIGKILL)
    assert not listens(pair, MARK)
    assert asker.who(OWNED, FOREIGN, MARK) == {OWNED: [M], FOREIGN: [], MARK: [M]}

    agent.start()

    until(lambda: listens(pair, MARK) and listens(pair, OWNED), 10)
    agent.wait_for()


# ---- live changes ------------------------------------------------------------------------------------------------


def strictest6(agent: AgentProcess) -> Mode:
    control = ControlValue(loader.open_maps(agent.pin_dir)["control"]).read()
    return control.strictest6


def test_owner_and_mode_are_followed_within_a_second(agent, asker):
    follows(agent, a_config({**VIPS, FOREIGN: "node-1"}), lambda: asker.who(FOREIGN) == {FOREIGN: [M]})
    follows(agent, a_config({**VIPS, OWNED: "node-2"}), lambda: asker.who(OWNED, FOREIGN) == {OWNED: [], FOREIGN: []})
    follows(agent, a_config(mode="observe"), lambda: asker.who(OWNED, FOREIGN) == {OWNED: [M], FOREIGN: [M]})


def test_kernel_is_told_whether_there_are_ipv6_vips(agent, asker):
    assert strictest6(agent) is Mode.ENFORCE
    follows(agent, a_config({OWNED4: "node-1"}), lambda: strictest6(agent) is Mode.INHERIT)
    assert asker.who(FOREIGN) == {FOREIGN: [M]}, "guarded no more"
    follows(agent, a_config({OWNED4: "node-1", FOREIGN: "node-2"}), lambda: asker.who(FOREIGN) == {FOREIGN: []})
    assert strictest6(agent) is Mode.ENFORCE
    follows(agent, a_config(mode="observe"), lambda: strictest6(agent) is Mode.OBSERVE)


# ---- what is told ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vip", "verdicts"),
    [
        (OWNED, ["ANSWER", "ANSWER", "CONFLICT", "CONFLICT", "PASS", "PASS", "PASS"]),
        (FOREIGN, ["SUPPRESS", "SUPPRESS", "REPORT", "REPORT", "REWRITE", "SUPPRESS", "SUPPRESS"]),
        (address6(0x60), ["PASS"] * 7),
    ],
)
def test_explanation_is_that_of_the_programs(agent, document, vip, verdicts):
    (link,) = document("explain", str(vip))["links"]

    assert [frame["verdict"] for frame in link["frames"]] == [f"VERDICT_{verdict}" for verdict in verdicts]


def test_explanation_shows_frames_of_neighbour_discovery(agent, document, ask):
    (link,) = document("explain", str(OWNED), "--operation", "request", "--operation", "out-request")["links"]
    request, out = link["frames"]
    answer = request["result"]

    assert request["frame"]["text"] == f"neighbor solicitation, who has {OWNED} tell 100::1"
    assert (answer["op"], answer["spa"], answer["sha"], answer["tpa"]) == (
        "advertisement",
        str(OWNED),
        str(M),
        "100::1",
    )
    assert out["frame"]["text"] == f"neighbor solicitation, who has 100::1 tell {OWNED}"
    page = ask("explain", str(OWNED)).stdout
    assert f"reply: is-at {M}" in page
    assert max(map(len, page.splitlines())) <= 100, page


@pytest.mark.parametrize("operation", ["request", "probe"])
@pytest.mark.parametrize("vip", [OWNED, FOREIGN], ids=["owned", "foreign"])
def test_explained_answer_is_the_one_on_the_wire(agent, asker, document, operation, vip):
    sender = ("--sender-mac", str(CLIENT_MAC), "--sender-address", str(CLIENT))
    (link,) = document("explain", str(vip), "--operation", operation, *sender)["links"]
    (frame,) = link["frames"]
    expected = [bytes.fromhex(frame["result"]["hex"])] if frame["fate"] == "FATE_ANSWERED" else []

    heard = asker.heard_until_mark([bytes.fromhex(frame["frame"]["hex"])], NODE)

    assert [each.packet for each in heard] == list(map(facts_of, expected))
    assert frame["fate"] == ("FATE_ANSWERED" if vip == OWNED else "FATE_DROPPED")


def test_explanation_takes_a_sender_of_the_same_family(agent, document, ask):
    words = ("explain", str(OWNED), "--operation", "request", "--sender-address", str(CLIENT))
    ((frame,),) = (link["frames"] for link in document(*words)["links"])
    refused = ask(*words[:-1], "192.0.2.7")

    assert frame["result"]["tpa"] == str(CLIENT)
    assert (refused.returncode, f"an IPv6 address, like {OWNED}" in refused.stderr) == (2, True)


def test_decisions_name_what_was_asked(agent, asker, document, ask):
    def newest() -> tuple[str, ...]:
        asker.who(FOREIGN)  # each time: no more than one event in about a second, and a test before had one
        found = document("decisions", "--vip", str(FOREIGN), "--verdict", "suppress")["decisions"]
        return next(((each["spa"], each["tpa"], each["sha"]) for each in found if each["op"] == "solicitation"), ())

    until(lambda: newest() == (str(CLIENT), str(FOREIGN), str(CLIENT_MAC)))
    assert "solicitation" in ask("decisions", "--vip", str(FOREIGN)).stdout


def test_vip_is_counted(agent, asker, document):
    def counted() -> int:
        (vip,) = document("vips", str(FOREIGN))["vips"]
        return sum(int(reason["enforced"]) for reason in vip["reasons"] if reason["reason"] == "REASON_FOREIGN")

    before = counted()
    asker.who(FOREIGN)

    assert counted() == before + 1


# ---- asking the wire ---------------------------------------------------------------------------------------------


def whohas(pair: Pair, vip: Address, *words: str) -> tuple[int, dict]:
    """From the client."""
    done = arpguard("whohas", str(vip), "--json", *words, prefix=pair.client.netns.prefix())
    return done.returncode, json.loads(done.stdout)


def heard(found: dict) -> set[str]:
    """The MAC addresses; how many replies come in time is the machine's, and whose they are its neighbour table's."""
    assert all(1 <= answer["replies"] <= found["requests"] for answer in found["answers"])
    return {answer["mac"] for answer in found["answers"]}


def test_whohas_asks_by_solicitation_and_names_the_one_that_answers(pair, agent):
    code, found = whohas(pair, OWNED, "--count", "2")

    assert (code, found["interface"], found["address"]) == (0, "eth0", str(OWNED))
    assert (heard(found), found["requests"]) == ({str(M)}, 2)


def test_whohas_finds_nobody_where_all_are_silent(pair, agent):
    assert whohas(pair, FOREIGN)[0] == 1


def test_whohas_without_an_address_of_its_own_asks_from_nobody(pair, agent):
    pair.client.netns.batch([f"addr del {CLIENT}/64 dev eth0"])
    try:
        code, found = whohas(pair, OWNED, "--interface", "eth0")
    finally:
        pair.client.netns.batch([f"addr add {CLIENT}/64 dev eth0 nodad"])

    assert (code, heard(found)) == (0, {str(M)})
