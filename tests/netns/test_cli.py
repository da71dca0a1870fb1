"""The command line and a real agent: what it says is what the kernel has and did."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.verdict import Hook
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame
from arpguard_lab.topology import AgentProcess
from support.cli import make_pki, tls_flags
from support.netns.agents import arpguard
from support.netns.cable import Pair, a_pair, address
from support.netns.foreign import programs_at
from support.netns.waiting import HUNG_S, until
from support.netns.wire import a_wire
from support.repeating import repeated

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

OWNED, FOREIGN, EXTERNAL, DELEGATED, OBSERVED, FREE = (address(number) for number in (50, 51, 52, 53, 54, 60))
_numbers = itertools.count(1)
STRANGER = MacAddress.parse("02:00:00:00:00:99")
END_S = 20
CONFIG = f"""
mode: enforce
interfaces: [eth0]
audit: {{every: off}}  # after a minute the audit would report that no host answers for node-2
vips:
  - {{address: {OWNED}, owner: {{node: node-1}}}}
  - {{address: {FOREIGN}, owner: {{node: node-2}}}}
  - {{address: {EXTERNAL}, owner: {{external: "02:00:00:00:00:50"}}}}
  - {{address: {DELEGATED}, owner: {{node: node-1, delegated: true}}}}
  - {{address: {OBSERVED}, owner: {{node: node-2}}, mode: observe}}
"""
PAGES = [
    "status",
    "vips",
    f"vips {OWNED}",
    "links",
    "decisions",
    "conflicts",
    f"audit {FOREIGN}",
    f"explain {OWNED}",
    f"explain {FREE}",
]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("cli") as made:
        made.agent(CONFIG)
        yield made


@pytest.fixture
def agent(pair) -> AgentProcess:
    """It runs, on CONFIG."""
    agent = pair.agents[0]
    if agent._process is None:
        agent.configure(CONFIG)
        agent.start()
        agent.wait_for()
    return agent


@pytest.fixture
def ask(pair, agent) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    return lambda *words: pair.arpguard(*words, "--address", agent.api)


@pytest.fixture
def document(ask) -> Callable[..., dict]:
    return lambda *words: json.loads(ask(*words, "-o", "json").stdout)


def claim(vip) -> bytes:
    """A stranger's announcement."""
    return build_frame(ArpPacket(ArpOp.REPLY, STRANGER, vip, STRANGER, vip), BROADCAST_MAC, STRANGER)


@contextmanager
def load(pair) -> Iterator[None]:
    """Some hundred requests a second for two VIPs, one more often than the other."""

    def ask() -> None:
        for vip in (FOREIGN, FOREIGN, FOREIGN, OWNED):
            wire.send(wire.request(vip))

    with a_wire(pair.client) as wire, repeated(ask, 0.01):
        yield


# ---- what is shown -----------------------------------------------------------------------------------------------


def test_status_names_the_programs_that_the_kernel_runs(pair, document):
    status = document("status")
    (link,) = status["links"]
    programs = {attachment["hook"]: attachment["programId"] for attachment in link["attachments"]}

    assert (status["node"], status["mode"], status["entries"], status["problems"]) == ("node-1", "MODE_ENFORCE", 5, [])
    assert programs_at(pair.node, Hook.TC_INGRESS) == [programs["HOOK_TC_INGRESS"]]
    assert programs_at(pair.node, Hook.TC_EGRESS) == [programs["HOOK_TC_EGRESS"]]


@pytest.mark.parametrize("page", PAGES)
def test_page_fits_100_columns(pair, ask, page, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with a_wire(pair.client) as wire:
        wire.exchange([wire.request(OWNED), claim(OWNED)], FREE if wire.answers(FREE) else OWNED)
    done = ask(*page.split())

    assert done.stderr == ""
    assert done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100, done.stdout


def test_wrong_configuration_is_told_until_it_is_mended(agent, ask):
    wrong = "mode: must be observe or enforce, not strict"
    agent.configure(CONFIG.replace("enforce", "strict", 1))
    until(lambda: wrong in " ".join(ask("status").stdout.split()), END_S, "the problem is told")
    assert ask("status").returncode == 1
    agent.configure(CONFIG)
    until(lambda: wrong not in " ".join(ask("status").stdout.split()), END_S, "the problem is solved")


def test_vip_in_detail_counts_each_frame_and_names_who_claimed_it(pair, ask, document):
    def conflicts() -> int:
        (vip,) = document("vips", str(OWNED))["vips"]
        return sum(int(count["enforced"]) for count in vip["reasons"] if count["reason"] == "REASON_CONFLICT")

    before = conflicts()
    with a_wire(pair.client) as wire:
        wire.exchange([claim(OWNED)] * 3, OWNED)

    assert conflicts() == before + 3
    until(lambda: f"last claim     {STRANGER} (outside), " in ask("vips", str(OWNED)).stdout, END_S)


def test_conflicts_exit_1_and_name_the_claimer(pair, ask, document):
    assert ask("conflicts", "--vip", str(DELEGATED)).returncode == 0
    with a_wire(pair.client) as wire:
        wire.exchange([claim(EXTERNAL)], OWNED)
    until(lambda: ask("conflicts", "--vip", str(EXTERNAL), "--link", "eth0").returncode == 1, END_S)
    (found,) = document("conflicts", "--vip", str(EXTERNAL))["conflicts"]

    assert (found["mac"], found["reason"], found["dropped"]) == (str(STRANGER), "REASON_CONFLICT", True)
    assert str(STRANGER) in ask("conflicts").stdout
    problem = f"a host that is not the owner claims {EXTERNAL}: `arpguard conflicts` names that host"
    until(lambda: problem in document("status")["problems"], END_S, "a recent claim is a problem")
    assert ask("status").returncode == 1
    for other in (["--vip", str(DELEGATED)], ["--vip", str(EXTERNAL), "--link", "eth7"]):
        assert ask("conflicts", *other).returncode == 0


def test_claim_of_what_is_perhaps_the_claimers_is_shown_and_exits_0(pair, ask):
    with a_wire(pair.client) as wire:
        wire.exchange([claim(DELEGATED)], OWNED)
    until(lambda: "perhaps the owner's" in ask("conflicts", "--vip", str(DELEGATED)).stdout, END_S)

    assert ask("conflicts", "--vip", str(DELEGATED)).returncode == 0


def test_decisions_are_those_that_were_asked_for(pair, document):
    with a_wire(pair.client) as wire:
        wire.exchange([wire.request(FOREIGN), wire.request(OBSERVED)], OWNED)
    for vip in (OBSERVED, OWNED):
        until(lambda vip=vip: document("decisions", "--vip", str(vip))["decisions"], END_S)
    observed = document("decisions", "--vip", str(OBSERVED), "--since", "1m", "--verdict", "suppress")["decisions"]

    assert {(found["mode"], found["reason"]) for found in observed} == {("MODE_OBSERVE", "REASON_FOREIGN")}
    assert {found["vip"] for found in document("decisions", "--reason", "answered")["decisions"]} == {str(OWNED)}
    assert len(document("decisions", "--limit", "1")["decisions"]) == 1
    assert document("decisions", "--link", "eth7")["decisions"] == []


def test_explain_takes_the_frame_that_is_described(document):
    sender = ["--sender-mac", "02:00:00:00:00:77", "--sender-address", "198.51.100.77"]
    (link,) = document("explain", str(OWNED), "--link", "eth0", "--operation", "request", *sender)["links"]
    (frame,) = link["frames"]

    assert (frame["frame"]["sha"], frame["frame"]["spa"]) == ("02:00:00:00:00:77", "198.51.100.77")
    assert (frame["result"]["ethDst"], frame["result"]["tpa"]) == ("02:00:00:00:00:77", "198.51.100.77")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["vips", str(FREE)], 1, str(FREE)),
        (["vips", "nonsense"], 2, "ADDRESS: nonsense: "),
        (["explain", "224.0.0.1"], 2, "ADDRESS: 224.0.0.1: "),
        (["explain", str(OWNED), "--link", "eth7"], 1, "--link: eth7: "),
        (["explain", str(OWNED), "--sender-mac", "x"], 2, "--sender-mac: x: "),
        (["decisions", "--vip", "x"], 2, "--vip: x: "),
        (["decisions", "--follow", "-o", "json", "--link", "way too long a name"], 2, "--link: "),
        (["conflicts", "--vip", "x"], 2, "--vip: x: "),
    ],
    ids=str,
)
def test_agents_refusal_is_the_message(ask, words, code, told):
    done = ask(*words)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert done.stderr.startswith(f"arpguard {words[0]}: ")
    assert told in done.stderr


# ---- following ---------------------------------------------------------------------------------------------------


def test_follow_shows_what_happens_until_the_agent_stops(pair, agent):
    words = ["decisions", "--follow", "-o", "json", "--vip", str(FOREIGN), "--since", "1ms", "--address", agent.api]
    with subprocess.Popen(
        [sys.executable, "-m", "arpguard", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as follower:
        with load(pair):
            found = json.loads(follower.stdout.readline())
        agent.kill(signal.SIGTERM)
        _, err = follower.communicate(timeout=HUNG_S)

    assert (found["decision"]["vip"], found["decision"]["reason"]) == (str(FOREIGN), "REASON_FOREIGN")
    assert follower.returncode == 3
    assert (
        err == f"arpguard decisions: the agent at {agent.api} stopped; the guard stays in the kernel: try again later\n"
    )


def test_follow_begins_with_the_latest_of_the_past(pair, agent, document):
    asked = {str(vip) for vip in (FOREIGN, EXTERNAL, OBSERVED, OWNED)}
    read = []

    def all_are_told() -> bool:
        """The kernel tells the same only now and then, and the agent reads it a little later."""
        with a_wire(pair.client) as wire:
            wire.exchange([wire.request(vip) for vip in (FOREIGN, EXTERNAL, OBSERVED)], OWNED)
        until(lambda: read.append(document("decisions")["decisions"]) or read[-1:] == read[-2:-1], END_S)
        return {found["vip"] for found in read[-1]} >= asked

    until(all_are_told, END_S)
    latest = document("decisions", "--limit", "3")["decisions"]
    words = ["decisions", "--follow", "-o", "json", "--limit", "3", "--address", agent.api]
    with subprocess.Popen([sys.executable, "-m", "arpguard", *words], stdout=subprocess.PIPE, text=True) as follower:
        first = [json.loads(follower.stdout.readline())["decision"] for _ in latest]
        follower.terminate()

    assert [found["vip"] for found in first] == [found["vip"] for found in reversed(latest)]


def test_killed_agent_ends_a_follower_too(agent):
    words = ["decisions", "--follow", "--address", agent.api]
    with subprocess.Popen(
        [sys.executable, "-m", "arpguard", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout.readline().startswith("TIME ")
        agent.kill(signal.SIGKILL)
        _, err = follower.communicate(timeout=HUNG_S)

    assert (follower.returncode, "stopped; the guard stays in the kernel" in err) == (3, True)


def test_pipe_that_is_closed_is_quiet(pair, agent):
    line = f"{sys.executable} -m arpguard decisions --follow --address {agent.api} | head -n 2"
    with load(pair):
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=HUNG_S)

    assert (done.stderr, len(done.stdout.splitlines())) == ("", 2)


# ---- no agent ----------------------------------------------------------------------------------------------------


def test_pins_tell_the_same_as_the_agent(pair, agent, document):
    """But for what only the agent knows."""

    def pinned(*words: str) -> dict:
        return json.loads(pair.arpguard(*words, "-o", "json", "--pin-dir", str(agent.pin_dir)).stdout)

    agents, pins = document("vips")["vips"], pinned("vips")["vips"]
    for vip in (*agents, *pins):
        for name in ("owner", "source", "lastConflict"):
            vip.pop(name, None)
    status, kept = document("status"), pinned("status")

    assert pins == agents
    assert pinned("links") == document("links")
    assert {name: kept[name] for name in ("mode", "links", "kinds", "entries")} == {
        name: status[name] for name in ("mode", "links", "kinds", "entries")
    }
    frames = document("explain", str(FOREIGN))["links"][0]["frames"]
    assert pinned("explain", str(FOREIGN))["links"][0]["frames"] == frames


def test_without_an_agent_the_pins_are_read(pair, agent):
    agent.kill(signal.SIGKILL)
    done = pair.arpguard("status", "--address", agent.api)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert f"no agent listens at {agent.api}: start the agent, name another with --address, or read" in done.stderr
    for words in ("status", "vips", f"vips {OWNED}", "links", f"explain {OWNED}"):
        done = pair.arpguard(*words.split(), "--pin-dir", str(agent.pin_dir))
        assert (done.returncode, done.stderr) == (0, ""), words
        assert "eth0" in done.stdout
    assert pair.arpguard("vips", str(FREE), "--pin-dir", str(agent.pin_dir)).returncode == 1
    assert pair.arpguard("vips", "nonsense", "--pin-dir", str(agent.pin_dir)).returncode == 2


def test_user_without_rights_is_told_so(agent):
    Path(agent.config.parent).chmod(0o755)
    done = arpguard(
        "status", "--address", agent.api, prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    )

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert f"this user has no access to {agent.api}: run as root" in done.stderr


# ---- another host ------------------------------------------------------------------------------------------------


def test_loopback_port(pair, agent):
    assert pair.arpguard("links", "--address", "127.0.0.1:50051").returncode == 0


def test_agent_of_another_host_by_mutual_tls(tmp_path):
    pki = make_pki(tmp_path)
    with a_pair("tls") as own:
        target = f"{own.node.address}:50443"
        agent = own.agent()
        agent.configure(CONFIG)
        tls = f"tls: {{cert: {pki}/server.pem, key: {pki}/server.key, client_ca: {pki}/ours.pem}}"
        text = agent.config.read_text().replace("grpc: {listen: [", f'grpc: {{{tls}, listen: ["{target}", ')
        agent.config.write_text(text)
        agent.start()
        agent.wait_for()
        client = own.client.netns.prefix()
        done = arpguard("status", "--address", target, *tls_flags(pki), prefix=client)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("node-1: mode enforce")
        for words in ([], tls_flags(pki, who="stranger"), tls_flags(pki, name="node-2.example")):
            done = arpguard("status", "--address", target, *words, prefix=client)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
            assert target in done.stderr


# ---- watch -------------------------------------------------------------------------------------------------------


class Screen:
    """`arpguard watch` in a terminal of a tmux server of its own."""

    def __init__(self, target: str, columns: int, rows: int) -> None:
        self._server = f"arpguard-test-{os.getpid()}-{next(_numbers)}"
        command = f"{sys.executable} -m arpguard watch --address {target}; echo left with $?; exec sleep {END_S * 3}"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), command)

    def _tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-L", self._server, *words], capture_output=True, text=True, check=True, timeout=HUNG_S
        ).stdout

    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def shows(self, part: str) -> None:
        try:
            until(lambda: part in self.text(), END_S)
        except AssertionError:
            pytest.fail(f"{part!r} is not on the screen:\n{self.text()}")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def screen(agent) -> Iterator[Callable[[int, int], Screen]]:
    opened = []

    def opener(columns: int, rows: int) -> Screen:
        opened.append(Screen(agent.api, columns, rows))
        return opened[-1]

    yield opener
    for each in opened:
        each.close()


def rates_of(text: str) -> dict[str, int]:
    """Frames per second by VIP, in the order in which they stand there."""
    lines = text.splitlines()
    head = next(line for line in lines if "FRAMES/S" in line)
    end = head.index("FRAMES/S") + len("FRAMES/S")
    rows = lines[lines.index(head) + 1 :]
    rows = rows[: next(number for number, line in enumerate(rows) if not line.strip())]
    return {line.split()[0]: int(line[:end].split()[-1].replace(",", "")) for line in rows}


def rates_are_exact(shown, total: Callable[[], int]) -> bool:
    """Whether the mean of what is shown for some seconds is what is counted in them: the load may change meanwhile."""
    before, began, rates = total(), time.monotonic(), []
    while len(rates) < 4:
        rates.append(rates_of(shown.text())[str(FOREIGN)])
        time.sleep(1)  # as often as the view looks
    return sum(rates) / len(rates) == pytest.approx((total() - before) / (time.monotonic() - began), rel=0.3)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
def test_watch_shows_exact_rates_busiest_first(pair, document, screen, size):
    def total() -> int:
        (vip,) = document("vips", str(FOREIGN))["vips"]
        return sum(int(count["enforced"]) for count in vip["reasons"])

    shown = screen(*size)
    with load(pair):
        until(lambda: "FRAMES/S" in shown.text() and rates_of(shown.text())[str(FOREIGN)] > 20, END_S)
        until(lambda: rates_are_exact(shown, total), 2 * END_S, "the rates shown are those counted")
        text = shown.text()
    lines, rates = text.splitlines(), rates_of(text)

    assert list(rates)[:2] == [str(FOREIGN), str(OWNED)] or rates[str(OWNED)] > rates[str(FOREIGN)]
    assert lines[0].startswith("node-1   enforce   no problems   up "), text
    assert any(line.split()[:3] == ["eth0", "up", "5"] for line in lines)
    assert any(f"  {FOREIGN} " in line and "suppress" in line for line in lines)
    assert max(map(len, lines)) <= size[0]
    shown.press("q")
    shown.shows("left with 0")


def test_watch_follows_a_restart_and_a_new_size(pair, agent, screen):
    shown = screen(80, 24)
    shown.shows(str(OWNED))
    agent.kill(signal.SIGTERM)
    shown.shows("trying again")
    shown.resize(120, 40)
    shown.shows("TOP REASON")
    agent.start()
    agent.wait_for()
    until(lambda: "trying again" not in shown.text(), END_S)
    assert str(OWNED) in shown.text()
    shown.press("C-c")
    shown.shows("left with 130")


def test_watch_waits_for_an_agent_that_is_not_there_yet(agent, screen):
    agent.kill(signal.SIGKILL)
    shown = screen(80, 24)
    shown.shows("trying again")
    agent.start()
    agent.wait_for()
    shown.shows(str(OWNED))
    shown.press("q")
    shown.shows("left with 0")


def test_tmux_is_there():
    assert shutil.which("tmux"), "`make apt-dev` installs it"
