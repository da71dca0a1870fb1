"""What a replay says of a real capture is what attached programs had decided, and what the guard then makes true."""

import json
import random
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, Address, MacAddress
from arpguard.core.sightings import Act, read_message
from arpguard.wire.arp import ArpOp, ArpPacket, build_request
from arpguard.wire.capture import BrokenCaptureError, read_capture
from arpguard.wire.ethernet import VlanTag
from arpguard.wire.ndp import (
    ALL_NODES,
    build_advertisement,
    build_dad_solicitation,
    build_solicitation,
    build_unsolicited_advertisement,
    multicast_mac,
)
from arpguard_lab.netns import Netns
from arpguard_lab.topology import Host, Lab
from support.frames.builders import a_frame, patched
from support.netns.agents import arpguard
from support.netns.cable import Pair, a_pair, a_place, address, address6, answers_for, speak_ipv6
from support.netns.waiting import HUNG_S, until
from support.netns.wire import a_wire

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

SEED, COUNT, BATCH = 5227, 600, 50
OWNED, FOREIGN, EXTERNAL, DELEGATED, OBSERVED, FREE = (address(number) for number in (50, 51, 52, 53, 54, 60))
OWNED6, FOREIGN6, FREE6 = (address6(number) for number in (50, 51, 60))
CLIENT, CLIENT6 = address(100), address6(100)
M, T, OUTSIDE = (MacAddress(bytes((2, 0, 0, 0, 0, number))) for number in (1, 100, 52))
MARK = MacAddress.parse("02:ee:ee:ee:ee:ee")
VIPS = f"""
interfaces: [eth0]
vips:
  - {{address: {OWNED}, owner: {{node: node-1}}}}
  - {{address: {FOREIGN}, owner: {{node: node-2}}}}
  - {{address: {EXTERNAL}, owner: {{external: "{OUTSIDE}"}}}}
  - {{address: {DELEGATED}, owner: {{node: node-1, delegated: true}}}}
  - {{address: {OBSERVED}, owner: {{node: node-2}}, mode: observe}}
  - {{address: {OWNED6}, owner: {{node: node-1}}}}
  - {{address: {FOREIGN6}, owner: {{node: node-2}}}}
"""
ADDRESSES = (OWNED, FOREIGN, EXTERNAL, DELEGATED, OBSERVED, FREE, CLIENT)
ADDRESSES6 = (OWNED6, FOREIGN6, FREE6, CLIENT6)


# ---- capturing ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tool:
    """How to capture, and what the tool says once it does."""

    words: tuple[str, ...]
    ready: str
    package: str


TCPDUMP = ("tcpdump", "--immediate-mode", "-U", "-Z", "root", "-s", "2048", "-B", "16384")
TOOLS = {
    "tcpdump": Tool((*TCPDUMP, "-i", "eth0"), "listening on", "tcpdump"),
    "tcpdump, any": Tool((*TCPDUMP, "-i", "any"), "listening on", "tcpdump"),
    "tcpdump, any, old": Tool((*TCPDUMP, "-i", "any", "-y", "LINUX_SLL"), "listening on", "tcpdump"),
    "tshark": Tool(("tshark", "-q", "-s", "2048", "-B", "16", "-i", "eth0"), "Capturing on", "tshark"),
}


class Capture:
    """A tool that captures in a namespace, into a file."""

    def __init__(self, netns: Netns, path: Path, tool: Tool) -> None:
        if shutil.which(tool.words[0]) is None:
            pytest.skip(f"{tool.words[0]} is not installed (Debian: {tool.package})")
        self.path = path
        self._log = path.with_suffix(".log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*netns.prefix(), *tool.words, "-w", str(path)], stdout=log, stderr=log)
        until(lambda: tool.ready in self._log.read_text(), 20, f"{tool.words[0]} captures: {self._log.read_text()}")

    def frames(self) -> list[bytes]:
        """What is in the file by now."""
        found: list[bytes] = []
        if self.path.exists() and self.path.stat().st_size >= 24:
            with self.path.open("rb") as file, suppress(BrokenCaptureError):  # the tool is writing there
                found.extend(captured.data for captured in read_capture(file.read))
        return found

    def stop(self, sender: Host) -> None:
        """Ends once a frame that is sent now is in the file, and so all that came before."""
        with a_wire(sender) as wire:
            wire.send(a_frame(ArpPacket(ArpOp.REQUEST, MARK, IPv4Address(0), ZERO_MAC, FREE), src=MARK))
        until(lambda: MARK.octets in self.path.read_bytes(), 20, "the last frame is in the file")
        self._process.send_signal(signal.SIGINT)
        self._process.wait(HUNG_S)
        assert not re.search(r"[1-9]\d* packets? dropped", self._log.read_text()), self._log.read_text()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def capturing(netns: Netns, path: Path, tool: Tool = TOOLS["tcpdump"]) -> Iterator[Capture]:
    capture = Capture(netns, path, tool)
    try:
        yield capture
    finally:
        capture.close()


def replayed(path: Path, config: Path, *words: str) -> tuple[int, dict]:
    done = arpguard("replay", str(path), "--config", str(config), "--summary", "-o", "json", *words)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)["summary"]


# ---- frames ------------------------------------------------------------------------------------------------------


def some_arp(rng: random.Random, *, own: bool) -> bytes:
    """Something about a VIP, as other hosts send it, or this node does: a source of its own is how a frame is told."""
    sha = M if own else rng.choice((T, T, OUTSIDE))
    about = rng.choice(ADDRESSES)
    spa, tpa = rng.choice(((CLIENT, about), (about, CLIENT), (about, about), (about, rng.choice(ADDRESSES))))
    packet = ArpPacket(rng.choice(tuple(ArpOp)), sha, spa, ZERO_MAC, tpa)
    return a_frame(packet, rng.choice((BROADCAST_MAC, T if own else M)), sha, min_len=rng.choice((42, 60)))


def some_nd(rng: random.Random, *, own: bool) -> bytes:
    sha = M if own else rng.choice((T, T, OUTSIDE))
    about, other = rng.choice(ADDRESSES6), rng.choice(ADDRESSES6)
    to = rng.choice((None, T if own else M))
    return rng.choice(
        (
            build_solicitation(sha, other, about, to),
            build_dad_solicitation(sha, about),
            build_advertisement(sha, about, CLIENT6, T if own else M),
            build_unsolicited_advertisement(sha, about),
        )
    )


def plain(rng: random.Random, *, own: bool) -> bytes:
    return rng.choice((some_arp, some_arp, some_nd))(rng, own=own)


def mutated(rng: random.Random, *, own: bool) -> bytes:
    """Also with odd destinations and tags, and some with a wrong byte or cut off."""
    frame = plain(rng, own=own)
    if rng.random() < 0.3:
        tags = (VlanTag(rng.choice((0, 0, 0, 11)), rng.randrange(8)) for _ in range(rng.choice((1, 1, 2, 3, 9))))
        frame = (
            frame[:12]
            + b"".join(b"\x81\x00" + (tag.pcp << 13 | tag.vid).to_bytes(2, "big") for tag in tags)
            + frame[12:]
        )
    if rng.random() < 0.2:
        frame = patched(frame, 0, rng.choice((OUTSIDE, multicast_mac(ALL_NODES))).octets)
    if rng.random() < 0.3:
        at = rng.randrange(12, len(frame))
        frame = patched(frame, at, bytes([frame[at] ^ 1 << rng.randrange(8)]))
    return frame[: rng.randrange(14, len(frame))] if rng.random() < 0.1 else frame


Maker = Callable[..., bytes]


NOT_CAPTURED = ("REASON_EGRESS_NOT_OWNER", "REASON_EGRESS_REWRITTEN", "REASON_EGRESS_NO_SOURCE")


# ---- one node, guarded -------------------------------------------------------------------------------------------


def counted(pair: Pair) -> dict[str, Counter[str]]:
    """What the programs on the node's link decided, by VIP and reason."""
    text = pair.arpguard("vips", "-o", "json", "--pin-dir", str(pair.agents[0].pin_dir)).stdout
    return {
        vip["address"]: Counter(
            {count["reason"]: int(count["enforced"]) + int(count["observed"]) for count in vip["reasons"]}
        )
        for vip in json.loads(text)["vips"]
    }


def told(summary: dict) -> dict[str, Counter[str]]:
    """What the replay decided."""
    return {
        vip["address"]: Counter({found["reason"]: found["count"] for found in vip["decisions"]})
        for vip in summary["vips"]
    }


def talk(pair: Pair, make: Maker) -> None:
    """Both sides say all sorts of things, in batches that nothing gets lost of."""
    rng = random.Random(SEED)
    with a_wire(pair.client) as wire, a_wire(pair.node) as own:
        for _ in range(COUNT // BATCH):
            wire.exchange([make(rng, own=False) for _ in range(BATCH)], pair.node.address)
            for _ in range(BATCH // 5):
                with suppress(OSError):  # ENOBUFS: dropped on its way out
                    own.send(make(rng, own=True))


@pytest.mark.parametrize(
    ("mode", "tool", "make"),
    [
        ("observe", "tcpdump", mutated),
        ("enforce", "tcpdump", mutated),
        ("enforce", "tshark", mutated),
        ("observe", "tcpdump, any", plain),
        ("observe", "tcpdump, any, old", plain),
    ],
)
def test_replay_decides_as_the_programs_on_the_link_did(mode, tool, make):
    """A capture has what comes in before the guard sees it, and what goes out only if the guard lets it."""
    with a_pair("replay") as pair, capturing(pair.node.netns, pair.folder / "capture", TOOLS[tool]) as capture:
        speak_ipv6(pair.node, pair.client)
        for vip in (OWNED, FOREIGN, DELEGATED, OWNED6):
            pair.node.bind(vip, "eth0")
        agent = pair.agent(f"mode: {mode}\n{VIPS}")
        talk(pair, make)
        agent.kill(signal.SIGKILL)  # nobody speaks any more, and the guard stays
        capture.stop(pair.client)
        found = counted(pair)
        words = ("--node", "node-1", "--mac", str(M), "--own-address", str(pair.node.address))
        code, summary = replayed(capture.path, agent.config, *words)

    if mode == "enforce":
        for vip in found.keys() - {str(OBSERVED)}:
            for reason in NOT_CAPTURED:
                del found[vip][reason]
    assert (code, summary["broken"]) == (1, "")
    assert sum(count.total() for count in found.values()) > COUNT // 2
    replay = told(summary)
    different = {
        vip: (replay[vip] - found[vip], found[vip] - replay[vip]) for vip in found if replay[vip] != found[vip]
    }
    assert different == {}, "only the replay had, and only the programs had"


# ---- several nodes -----------------------------------------------------------------------------------------------

ASKED, ASKED6 = address(50), address6(50)
OTHER = address(77)
THREE = f"""
mode: enforce
interfaces: [eth0]
vips:
  - {{address: {ASKED}, owner: {{node: node-1}}}}
  - {{address: {ASKED6}, owner: {{node: node-1}}}}
"""
REQUESTS = 5


def answers(frames: Sequence[bytes], vip: Address) -> Counter[MacAddress]:
    """Who answered for a VIP, and how often."""
    messages = filter(None, map(read_message, frames))
    return Counter(said.mac for said in messages if said.claimed == vip and said.act is Act.ANSWER)


def wait_for_answers(capture: Capture, vip: Address, least: int) -> None:
    def seen() -> Counter[MacAddress]:
        return answers(capture.frames(), vip)

    until(lambda: seen().total() >= least, 20, lambda: f"{least} answers for {vip}, only {seen()}")


def ask(lab: Lab, capture: Capture, wanted: int) -> None:
    """The client asks in both families, and each time waits for so many answers in the capture."""
    questions = {
        ASKED: build_request(lab.client.mac, lab.client.address, ASKED),
        OTHER: build_request(lab.client.mac, lab.client.address, OTHER),
        ASKED6: build_solicitation(lab.client.mac, CLIENT6, ASKED6),
    }
    with a_wire(lab.client) as wire:
        for round_ in range(1, REQUESTS + 1):
            for vip, question in questions.items():
                least = round_ * (3 if vip == OTHER else wanted)
                wire.send(question)
                wait_for_answers(capture, vip, least)


def test_what_the_replay_says_the_guard_would_leave_is_what_it_leaves():
    with a_place("replay") as (folder, pin_root), Lab(3, folder, pin_root) as lab:
        speak_ipv6(*lab.nodes, lab.client)
        for host in lab.nodes:
            for vip in (ASKED, OTHER, ASKED6):
                host.bind(vip, "eth0")
        until(lambda: all(answers_for(host, ASKED6) for host in lab.nodes), what="the kernels answer for the VIPs")
        config = folder / "three.yaml"
        config.write_text(THREE)
        with capturing(lab.client.netns, folder / "before") as before:
            ask(lab, before, wanted=3)
            before.stop(lab.client)
        macs = [word for host in lab.nodes for word in ("--mac", f"{host.name}={host.mac}")]
        code, summary = replayed(before.path, config, "--node", "node-1", *macs)

        agents = [lab.agent(host) for host in lab.nodes]
        for agent in agents:
            agent.configure(THREE)
            agent.start()
            agent.wait_for()
        with capturing(lab.client.netns, folder / "after") as after:
            ask(lab, after, wanted=1)
            after.stop(lab.client)
        code_after, summary_after = replayed(after.path, config, "--node", "node-1", *macs)
        owner = lab.nodes[0].mac

    assert (code, code_after) == (1, 1), f"{OTHER} is guarded by nobody"
    assert summary["doubled"] == [str(ASKED), str(ASKED6), str(OTHER)]
    assert summary_after["doubled"] == [str(OTHER)]
    assert [vip["answeringMacs"] for vip in summary["vips"]] == [3, 3]
    for vip, guarded in zip(summary["vips"], summary_after["vips"], strict=True):
        kept = {found["mac"]: found["kept"] for found in vip["macs"] if found["kept"]}
        assert kept == {str(owner): REQUESTS}
        assert vip["claimsSilenced"] == 2 * REQUESTS
        left = {found["mac"]: found["answers"] for found in guarded["macs"] if found["answers"]}
        assert left == kept, "what was to be left is what was left"
        assert guarded["requests"] == REQUESTS
