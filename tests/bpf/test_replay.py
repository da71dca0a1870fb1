"""`arpguard replay` as a process: what it prints, its exit codes, and that it leaves nothing behind."""

import fcntl
import gzip
import io
import json
import os
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.cli.main import main
from arpguard.cli.replay.page import Story, _frame_dict, _frame_row
from arpguard.config.files import parse_config
from arpguard.core.replay import OWN_LINK, PLACEHOLDER_MAC, ReplayScene
from arpguard.core.sightings import Ledger
from arpguard.dataplane import loader
from arpguard.dataplane.build import Build, read_build
from arpguard.dataplane.loader import Loaded
from arpguard.dataplane.maps import EntryTable
from arpguard.dataplane.replay import Judged, Replay
from arpguard.verdict import Mode, Reason
from arpguard.wire.capture import read_capture
from arpguard.wire.ethernet import VlanTag
from arpguard.wire.ndp import build_solicitation
from reference import Situation, respond_egress, respond_ingress
from support.frames.builders import (
    GUARD,
    NEIGHBOUR_IP,
    OTHER_VIP,
    OWNER,
    PRIMARY_IP,
    TESTER,
    TESTER_IP,
    THIRD,
    VIP,
    a_packet,
    an_announcement,
    an_arp_reply,
    an_arp_request,
    the_answer,
)
from support.frames.captures import (
    ETHERNET,
    SLL,
    SLL2,
    Packet,
    cooked,
    cooked2,
    interface,
    packet,
    pcap,
    pcapng,
    section,
)
from support.netns.waiting import HUNG_S, until

pytestmark = pytest.mark.bpf

EXTERNAL = NEIGHBOUR_IP
CONFIG = f"""
mode: enforce
vips:
  - {{address: {VIP}, owner: {{node: me}}}}
  - {{address: {OTHER_VIP}, owner: {{node: other}}, mode: observe}}
  - {{address: {EXTERNAL}, owner: {{external: "{OWNER}"}}}}
"""
SCENE = ReplayScene("me", parse_config(CONFIG), macs={GUARD: "me"}, addresses=(PRIMARY_IP,))
VIRTUAL = MacAddress.parse("00:00:5e:00:01:07")
SENDERS = (TESTER, GUARD, OWNER, THIRD)
ADDRESSES = (VIP, OTHER_VIP, EXTERNAL, TESTER_IP)
SIX = ip_address("2001:db8::50")
MACS = BROADCAST_MAC.octets + TESTER.octets
ND_HEAD = build_solicitation(TESTER, ip_address("2001:db8::7"), SIX)
HEADS = (
    b"",
    MACS,
    MACS + b"\x08\x06",
    MACS + b"\x08\x06\x00\x01\x08\x00\x06\x04\x00\x01",
    MACS + b"\x81\x00\x00\x00\x08\x06",
    MACS + b"\x88\xa8" + b"\x00\x00\x81\x00" * 9,
    *(ND_HEAD[:length] for length in (14, 20, 54, 55, 60, 78)),
    ND_HEAD[:20] + b"\x00" + ND_HEAD[21:54] + b"\x3a\x00" + bytes(6) + ND_HEAD[54:],
    cooked(a_packet().build()),
    cooked2(a_packet().build()),
    cooked2(ND_HEAD[14:], 0x86DD, kind=2),
)
A_LINE_S = 60
NAMES = ["--node", "me", "--mac", str(GUARD), "--own-address", str(PRIMARY_IP)]


def some_frames() -> Iterator[bytes]:
    """Each sender about each address and pair of addresses, in each form; odd ones at last."""
    for mac in SENDERS:
        for spa in ADDRESSES:
            yield an_announcement(sha=mac, vip=spa)
            for tpa in ADDRESSES:
                yield an_arp_request(sha=mac, src=mac, spa=spa, tpa=tpa)
                yield an_arp_reply(sha=mac, spa=spa, tpa=tpa)
    yield an_arp_request(tags=(VlanTag(0),))
    yield an_arp_request(tags=(VlanTag(9),))
    yield an_arp_request(tags=(VlanTag(0),) * 9)
    yield an_arp_request(dst=THIRD)
    yield an_arp_request(htype=6)
    yield an_arp_request(min_len=42)
    yield an_arp_request()[:41]


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


@dataclass(frozen=True)
class Done:
    """What came of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    """The programs, loaded once: that takes longer than all else that a replay does."""
    return loader.load_unpinned(read_build(64))


@pytest.fixture
def arpguard(monkeypatch, loaded, capsys) -> Iterator[Callable[..., Done]]:
    """Runs the command line in this process, each time over empty maps."""

    def emptied(_build: Build, _names: Collection[str]) -> Loaded:
        table = EntryTable(loaded.maps["entries"], loaded.maps["counters"])
        table.delete(table.read().entries)
        return loaded

    def run(*words: str) -> Done:
        with pytest.raises(SystemExit) as left:
            main(list(words))
        out, err = capsys.readouterr()
        return Done(int(left.value.code or 0), out, err)

    monkeypatch.setattr(loader, "load_unpinned", emptied)
    monkeypatch.setenv("COLUMNS", "100")
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def replayed(arpguard, config) -> Callable[..., Done]:
    """Replays a capture with the configuration."""

    def run(capture: bytes, *words: str) -> Done:
        path = config.with_name("capture")
        path.write_bytes(capture)
        return arpguard("replay", str(path), "--config", str(config), *words)

    return run


def documents(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


# ---- decisions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("datapath", ["tc", "xdp"])
@pytest.mark.parametrize("mode", [Mode.INHERIT, Mode.OBSERVE, Mode.ENFORCE])
def test_decisions_and_fates_are_those_of_the_reference(mode, datapath):
    config = parse_config(f"{CONFIG}\ndatapath: {datapath}")
    scene = replace(SCENE, config=config, mode=mode)
    entries = scene.entries()
    situation = Situation(scene.control(entries), entries, OWN_LINK, now_ns=0)
    frames = list(some_frames())
    reasons = set()
    for found in Replay(scene).run(read_capture(io.BytesIO(pcap(frames)).read)):
        frame = frames[found.captured.number - 1]
        respond = respond_egress if found.seen.outgoing else respond_ingress
        expected = respond(frame, situation)
        assert [(about.vip, about.verdict, about.reason) for about in found.decisions] == [
            (judged.vip, judged.verdict, judged.reason) for judged in expected.judgements
        ], found
        assert (found.trial.answered, found.trial.frame) == (expected.answered, expected.frame)
        reasons |= {about.reason for about in found.decisions}
    assert {Reason.ANSWERED, Reason.CONFLICT, Reason.FOREIGN, Reason.OWNER_CLAIM, Reason.EGRESS_REWRITTEN} <= reasons
    assert {Reason.EGRESS_OWNER, Reason.EGRESS_NOT_OWNER, Reason.OTHER_VLAN, Reason.UNWALKABLE} <= reasons


@pytest.fixture(scope="module")
def replay() -> Replay:
    return Replay(replace(SCENE, owners={SIX: "me"}, macs={GUARD: "me", TESTER: "other"}))


@given(st.data())
def test_any_frame_is_judged_or_passed_over(replay, data):
    """Whatever stands behind the headers that make a frame worth a look, tags and cooked headers among them."""
    head = data.draw(st.sampled_from(HEADS))
    body = data.draw(st.one_of(st.binary(max_size=80), st.builds(bytes, st.integers(0, 3000))))
    frame, linktype = head + body, data.draw(st.sampled_from([ETHERNET, SLL, SLL2, 105]))
    shown = [
        describe_all(found) for found in replay.run(read_capture(io.BytesIO(pcap([frame], linktype=linktype)).read))
    ]

    assert len(shown) <= 1


def describe_all(found: Judged) -> str:
    """All that is printed of it."""
    story = Story("capture", SCENE, Ledger([]))
    return json.dumps(_frame_dict(story, found)) + "".join(
        str(cell) for about in found.decisions for cell in _frame_row(story, found, about)
    )


# ---- what it prints ----------------------------------------------------------------------------------------------


def test_each_frame_is_a_document_and_the_account_is_the_last(replayed):
    done = replayed(pcap([an_arp_request(), an_arp_request(tpa=TESTER_IP)]), "-o", "json", *NAMES)
    frame, last = documents(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert frame["frame"] == {
        "number": 1,
        "time": "2023-11-14T22:13:20.000007000Z",
        "link": "",
        "direction": "in",
        "frame": {"hex": an_arp_request().hex(), "text": f"who-has {VIP} tell {TESTER_IP}"},
        "decisions": [
            {
                "vip": str(VIP),
                "verdict": "VERDICT_ANSWER",
                "reason": "REASON_ANSWERED",
                "meaning": Reason.ANSWERED.meaning,
                "mode": "MODE_ENFORCE",
            }
        ],
        "fate": "FATE_ANSWERED",
        "result": {"hex": the_answer(a_packet()).hex(), "text": f"{VIP} is-at {GUARD}"},
    }
    assert last["summary"]["frames"] == {"read": 2, "arp": 2, "ndp": 0, "aboutVips": 1, "leftOut": {}}


def test_summary_alone_is_one_document_in_json_and_yaml(replayed):
    capture = pcap([an_arp_request()])
    found = json.loads(replayed(capture, "--summary", "-o", "json").stdout)

    assert yaml.safe_load(replayed(capture, "--summary", "-o", "yaml").stdout) == found
    assert [vip["requests"] for vip in found["summary"]["vips"]] == [1, 0, 0]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ([], [1, 2, 3, 5]),
        (["--all"], [1, 2, 3, 4, 5]),
        (["--vip", str(OTHER_VIP)], [2]),
        (["--verdict", "conflict"], [3]),
        (["--reason", "REASON_FOREIGN"], [2]),
    ],
    ids=str,
)
def test_frames_that_are_shown(replayed, words, numbers):
    frames = [
        an_arp_request(),
        an_arp_request(tpa=OTHER_VIP),
        an_arp_reply(),
        an_arp_request(tpa=TESTER_IP),
        an_arp_request(tags=(VlanTag(0),) * 9),
    ]
    done = replayed(pcap(frames), "-o", "json", *NAMES, *words)

    assert [found["frame"]["number"] for found in documents(done.stdout)[:-1]] == numbers


def test_table_says_who_answered_and_what_the_guard_leaves(replayed):
    frames = [an_arp_request(), an_arp_reply(sha=GUARD), an_arp_reply(sha=THIRD), an_arp_reply(sha=VIRTUAL)]
    done = replayed(pcap(frames), "--summary", *NAMES, "--mac", f"other={THIRD}")
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}

    assert done.returncode == 1
    assert "3 MACs, in turn" in rows[str(VIP)]
    assert rows[str(GUARD)].endswith("passes")
    assert rows[str(THIRD)].endswith("silenced")
    assert "VRRP router 7" in rows[str(VIRTUAL)]
    assert rows[str(VIRTUAL)].endswith("unknown")
    told = " ".join(done.stdout.split())
    assert (
        "only me answers; 1 of 3 claims in the capture would pass, 1 would be silenced, for 1 the sender's node" in told
    )
    assert done.stdout.splitlines()[-1] == f"more than one MAC answered for 1 address: {VIP}"
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize("width", [80, 120])
def test_frames_are_shown_with_their_macs_at_any_width(replayed, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = replayed(pcap([an_arp_reply(sha=THIRD)]), *NAMES).stdout.splitlines()

    assert f"{VIP} is-at {THIRD}" in lines[1]
    assert max(map(len, lines)) <= width
    assert ("TIME" in lines[0]) == (width == 120)


def test_address_that_nobody_guards_is_told_when_two_answer(replayed, config):
    frames = [an_arp_reply(sha=mac, spa=TESTER_IP, tpa=VIP) for mac in (THIRD, OWNER)] * 2
    done = replayed(pcap(frames), "--summary")

    assert done.returncode == 1
    assert f"{TESTER_IP}, not in the configuration, but worth guarding: answered by 2 MACs" in done.stdout


def test_what_was_assumed_is_said(replayed):
    done = replayed(pcap([an_arp_request()]), "--summary", "--owner", f"{VIP}=other")
    told = " ".join(done.stdout.split())

    assert done.returncode == 0
    assert "suppress 1 (foreign)" in told
    assert "replay assumes that each node named by --owner is elected, and that its fence has not expired" in told
    assert f"no MAC of this node is given (--mac MAC): {PLACEHOLDER_MAC} stands for it in answers" in told


def test_direction_and_interface_are_those_of_the_capture(replayed):
    """pcapng with two interfaces, one of them cooked; what this node sent was said there."""
    said = a_packet(spa=OTHER_VIP, tpa=TESTER_IP, sha=GUARD).build()
    capture = b"".join(
        (
            section(),
            interface("eth0"),
            interface("any", SLL),
            packet(Packet(an_arp_request(), 0)),
            packet(Packet(cooked(said, kind=4, source=GUARD.octets), 1)),
        )
    )
    found = documents(replayed(capture, "-o", "json", *NAMES).stdout)

    assert [
        (frame["frame"]["link"], frame["frame"]["direction"], frame["frame"]["decisions"][0]["reason"])
        for frame in found[:-1]
    ] == [("eth0", "in", "REASON_ANSWERED"), ("any", "out", "REASON_EGRESS_REWRITTEN")]
    assert any("several interfaces" in note for note in found[-1]["summary"]["notes"])


# ---- files -------------------------------------------------------------------------------------------------------


def test_gzipped_capture_is_read(replayed):
    done = replayed(gzip.compress(pcapng([an_arp_request()])), "--summary", "-o", "json")

    assert json.loads(done.stdout)["summary"]["frames"]["arp"] == 1


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_capture_that_breaks_off_is_told_up_to_there(replayed, config, pack):
    whole = pack(pcap([an_arp_request() + os.urandom(20_000) for _ in range(5)]))
    done = replayed(whole[:-1000], "--summary", "-o", "json")
    found = json.loads(done.stdout)["summary"]

    assert done.returncode == 0
    assert found["frames"]["arp"] == 4
    assert found["broken"].startswith("breaks off after frame 4, at byte ")
    assert (
        done.stderr
        == f"arpguard replay: {config.with_name('capture')} {found['broken']}; the frames before that are shown\n"
    )


@pytest.mark.parametrize("content", [b"", b"no capture at all", None], ids=["empty", "text", "missing"])
def test_what_is_no_capture_exits_2_and_says_what_to_name(arpguard, config, content):
    path = config.with_name("capture")
    if content is not None:
        path.write_bytes(content)
    done = arpguard("replay", str(path), "--config", str(config))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{path}: ")
    assert done.stderr.endswith("name a capture from tcpdump, dumpcap or tshark (pcap or pcapng)\n")


@pytest.mark.parametrize(
    "words",
    [
        ["--mac", "ff:ff:ff:ff:ff:ff"],
        ["--mac", "Node=02:00:00:00:00:01"],
        ["--mac", "node-1"],
        ["--owner", "192.0.2.1"],
        ["--owner", "192.0.2.1="],
        ["--own-address", "224.0.0.1"],
        ["--vlan", "0"],
        ["--vlan", "4095"],
        ["--vip", "x"],
        ["--config", "/nowhere"],
    ],
    ids=str,
)
def test_wrong_words_exit_2_without_a_traceback(replayed, words):
    done = replayed(pcap([an_arp_request()]), *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert words[1] in done.stderr
    assert "Traceback" not in done.stderr


# ---- what stays --------------------------------------------------------------------------------------------------


@contextmanager
def a_live_replay(config: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that reads standard input, as behind `tcpdump -w -`."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "arpguard", "replay", "-", "--config", str(config), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def a_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], A_LINE_S)[0], "nothing is printed"
    return process.stdout.readline().decode()


def test_frames_are_shown_as_they_come(config):
    with a_live_replay(config, *NAMES) as process:
        feed(process, pcap([an_arp_request()]))
        assert a_line(process).startswith("NO")
        assert "answered" in a_line(process)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_replay_ends_without_a_traceback(config, number):
    with a_live_replay(config, "-o", "json") as process:
        feed(process, pcap([an_arp_request()]))
        a_line(process)
        process.send_signal(number)
        process.wait(HUNG_S)

        assert process.returncode == 128 + number
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_account_of_what_was_read_is_given_when_interrupted(config):
    with a_live_replay(config, "-o", "json") as process:
        feed(process, pcap([an_arp_request()]))
        a_line(process)
        process.send_signal(signal.SIGINT)
        summary = json.loads(a_line(process))["summary"]

    assert (summary["broken"], summary["frames"]["arp"]) == ("interrupted after frame 1", 1)


def test_nothing_is_pinned(config):
    """So that no BPF file system is needed, and nothing is left behind, however it ends."""
    config.with_name("capture").write_bytes(pcap([an_arp_request()]))
    command = f"{sys.executable} -m arpguard replay {config.with_name('capture')} --config {config} --summary -o json"
    script = f"umount -R /sys/fs/bpf; mount -t tmpfs tmpfs /sys/fs/bpf && {command}; mount | grep -c 'type bpf'"
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script], capture_output=True, text=True, check=False, timeout=HUNG_S
    )

    assert '"arp": 1' in done.stdout, done.stderr
    assert done.stdout.endswith("}\n0\n"), "no BPF file system was mounted"


def test_who_is_not_root_is_told_so(config):
    path = config.with_name("capture")
    path.write_bytes(pcap([an_arp_request()]))
    for folder in (path.parent, *path.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    words = ["replay", str(path), "--config", str(config)]
    code = f"import os; os.setresuid(65534, 65534, 65534); from arpguard.cli.main import main; main({words!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=HUNG_S)

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "arpguard replay: this command needs root: run it with sudo\n"


def _has_read(process: subprocess.Popen[bytes]) -> bool:
    """Whether its standard input is empty (ioctl(2), FIONREAD)."""
    assert process.stdin is not None
    left = fcntl.ioctl(process.stdin.fileno(), termios.FIONREAD, bytes(4))
    return left == bytes(4)


def resident_kb(process: subprocess.Popen[bytes]) -> int:
    """The most memory that it ever had."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0])


def test_memory_does_not_grow_with_the_capture(config):
    """Neither with its length, nor with the addresses and MACs in it beyond what is kept."""
    file_header = len(pcap([]))
    other = pcap([bytes(12) + b"\x08\x00" + bytes(1486)] * 700)[file_header:]
    with a_live_replay(config, "--summary", "-o", "json") as process:
        feed(process, pcap([an_arp_request()]) + other)
        until(lambda: _has_read(process), 30, "all was read")
        before_kb = resident_kb(process)
        for _ in range(100):
            feed(process, other)
        until(lambda: _has_read(process), 30, "all was read")

        assert resident_kb(process) - before_kb < 4096
