"""Starting the agent: which links it chooses, what it refuses and how it says so; and the commands that read."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane import bpffs
from arpguard.verdict import Reason
from arpguard_lab.neighbours import with_room
from arpguard_lab.topology import AgentProcess, Host, Lab
from support.netns.agents import arpguard, said
from support.netns.cable import Pair, a_pair, a_place, address
from support.netns.waiting import HUNG_S, until
from support.netns.wire import a_wire, claims
from support.warming import cold

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

M = MacAddress.parse("02:00:00:00:00:01")
OWNED, FOREIGN, FAR = address(50), address(51), IPv4Address("203.0.113.50")
END_S = 20


def a_config(interfaces: str = "[eth0]", more: str = "") -> str:
    return f"""
mode: enforce
interfaces: {interfaces}
vips:
  - {{address: {OWNED}, owner: {{node: node-1}}}}
  - {{address: {FOREIGN}, owner: {{node: node-2}}}}
{more}"""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """The node has a second cable, to 203.0.113.0/24, and a bridge with one port. Everything is started warm."""
    with a_pair("start") as made:
        made.node.netns.batch(
            [
                f"link add eth1 type veth peer name eth1 netns {made.client.netns.name}",
                "link set eth1 up",
                "addr add 203.0.113.1/24 dev eth1",
                "link add br0 type bridge forward_delay 0 mcast_snooping 0",
                "link set br0 up",
                "link add port0 type veth peer name cable0 netns " + made.client.netns.name,
                "link set port0 master br0 up",
                *(f"addr add {vip}/32 dev lo" for vip in (OWNED, FOREIGN, FAR)),
            ]
        )
        made.client.netns.batch(["link set eth1 up", "link set cable0 up"])
        made.agent(a_config()).kill(signal.SIGTERM)
        yield made


@pytest.fixture
def agent(pair) -> Iterator[AgentProcess]:
    """An agent that is not started yet, on the pin directory of this file."""
    made = pair.agent()
    yield made
    made.kill(signal.SIGKILL)


def ends(agent: AgentProcess, config: str | None = None) -> tuple[int, str]:
    """Starts an agent that is to end by itself: its exit code, and what it said."""
    if config is not None:
        agent.configure(config)
    agent.start()
    assert agent._process is not None
    code = agent._process.wait(timeout=HUNG_S)
    return code, agent.log.read_text()


def said_in_one_line(text: str) -> str:
    """The error, which is one line for a person; what the log said before it does not matter."""
    errors = [line for line in text.splitlines() if line.startswith("arpguard agent: ")]
    assert len(errors) == 1, text
    assert text.splitlines()[-1] == errors[0], text
    assert "Traceback" not in text
    return errors[0]


# ---- interfaces: -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interfaces", "links"),
    [
        pytest.param("[auto]", "eth0", id="auto: the link with the VIPs' subnet"),
        pytest.param("[eth1]", "eth1", id="a name"),
        pytest.param('["eth*"]', "eth0,eth1", id="a glob"),
        pytest.param('["cidr:203.0.113.0/24"]', "eth1", id="a network"),
        pytest.param('["can_reach:203.0.113.9"]', "eth1", id="an address"),
        pytest.param(f'["can_reach:{OWNED}"]', "eth0", id="an address that is bound on lo as a VIP"),
        pytest.param(f'["can_reach:{FAR}"]', "eth1", id="an address bound on lo, of the other network"),
        pytest.param('["can_reach:192.0.2.1"]', "eth0", id="an address behind the default route"),
        pytest.param("[br0]", "br0", id="a bridge"),
        pytest.param('["port*", eth0]', "eth0", id="a glob leaves ports of a bridge out"),
        pytest.param('["*"]', "eth0,eth1,br0", id="everything but lo and ports"),
    ],
)
def test_interfaces_are_chosen(pair, agent, interfaces, links):
    agent.configure(a_config(interfaces))
    agent.start()
    agent.wait_for()
    indexes = {int(path.name.partition("-")[0]) for path in (agent.pin_dir / "links").iterdir()}
    names = {pair.node.netns.call(lambda index=index: socket.if_indextoname(index)) for index in indexes}
    assert names == set(links.split(","))


def test_auto_takes_the_default_routes_link_for_vips_of_no_subnet(agent):
    agent.configure("interfaces: [auto]\nvips: [{address: 10.9.9.9, owner: external}]\n")
    agent.start()
    agent.wait_for()
    assert said(agent, "ready: .* links=eth0 ")


@pytest.mark.parametrize(
    ("interfaces", "words"),
    [
        pytest.param("[eth7]", ["eth7: there is no such interface", "eth0", "eth1"], id="unknown"),
        pytest.param("[port0]", ["port0 is a port of br0", "name br0 instead"], id="port of a bridge"),
        pytest.param('["can_reach:127.0.0.5"]', ["can_reach:127.0.0.5", "lo"], id="resolves to lo"),
        pytest.param('["cidr:192.0.2.0/24"]', ["cidr:192.0.2.0/24"], id="a network that is not there"),
    ],
)
def test_an_interface_that_cannot_be_guarded_ends_the_start_with_one_line(pair, agent, interfaces, words):
    if "127.0.0.5" in interfaces:
        pair.node.netns.run("ip", "route", "add", "127.0.0.0/9", "dev", "lo")
    try:
        code, text = ends(agent, a_config(interfaces))
    finally:
        if "127.0.0.5" in interfaces:
            pair.node.netns.run("ip", "route", "del", "127.0.0.0/9", "dev", "lo")
    assert code == 3
    line = said_in_one_line(text)
    assert [word for word in words if word not in line] == []


def test_lo_is_refused(agent):
    code, text = ends(agent, a_config("[lo]"))
    assert code == 2
    assert "interfaces[0]: must be an interface that faces the network, not lo" in text


# ---- what it needs -----------------------------------------------------------------------------------------------


def test_a_wrong_configuration_exits_2_with_every_problem(agent):
    """Each with its line, its setting, what that must be and what it is."""
    code, text = ends(agent, "mode: strict\ndatapath: fast\nvips: [{address: 224.0.0.1, owner: external}]\nvip: []\n")
    assert code == 2
    lines = [line.removeprefix(f"{agent.config}: ") for line in text.splitlines()]
    assert len(lines) == 4
    for start, allowed in {
        "mode: ": "must be observe or enforce, not strict",
        "datapath: ": "must be auto, tc or xdp, not fast",
        "vips[0].address: ": "224.0.0.1 is a multicast address",
        "vip: unknown key; ": "did you mean 'vips'?",
    }.items():
        assert any(f": {start}" in line and allowed in line for line in lines), start


def test_a_configuration_that_is_not_there_exits_2(agent):
    agent.config = agent.config.with_name("nowhere.yaml")
    code, text = ends(agent)
    assert (code, "nowhere.yaml" in text, text.count("\n")) == (2, True, 1)


def test_a_second_agent_on_the_same_pin_directory_exits_3(pair, agent):
    agent.configure(a_config())
    agent.start()
    agent.wait_for()
    second = AgentProcess(pair.node, pair.folder / "second", agent.pin_dir)
    (pair.folder / "second").mkdir()
    code, text = ends(second, a_config())
    assert code == 3
    assert "another arpguard agent is using" in said_in_one_line(text)
    with a_wire(pair.client) as wire:
        assert claims(wire.exchange([wire.request(FOREIGN)], OWNED), FOREIGN) == []


def test_an_agent_waits_a_moment_for_the_voucher_of_the_one_before(agent):
    with bpffs.lock(agent.pin_dir):
        agent.configure(a_config())
        agent.start()
        agent.wait_for("another agent or its voucher process uses")
    agent.wait_for()


def test_an_agent_that_is_told_to_end_while_it_waits_for_the_one_before_ends_in_good_order(agent):
    with bpffs.lock(agent.pin_dir):
        agent.configure(a_config())
        agent.start()
        agent.wait_for("another agent or its voucher process uses")
        agent.send(signal.SIGTERM)
        assert agent._process.wait(HUNG_S) == 0
    assert "stopped before the other agent did" in agent.said()


def as_nobody(*words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs the command line without any privilege."""
    return subprocess.run(
        ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", sys.executable, "-m", "arpguard", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=HUNG_S,
        cwd=folder,
    )


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that everybody may read, with a configuration in it."""
    folder = Path("/tmp") / f"arpguard-test-nobody-{os.getpid()}"
    folder.mkdir(mode=0o755)
    (folder / "config.yaml").write_text(a_config(more="bpf: {pin_dir: /sys/fs/bpf/arpguard-test-nobody}\n"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "words",
    [
        ("agent", "--config", "config.yaml"),
        ("lab",),
        ("status", "--pin-dir", "/sys/fs/bpf/arpguard-test-nobody"),
        ("vips", "--pin-dir", "/sys/fs/bpf/arpguard-test-nobody"),
        ("links", "--pin-dir", "/sys/fs/bpf/arpguard-test-nobody"),
        ("explain", "192.0.2.1", "--pin-dir", "/sys/fs/bpf/arpguard-test-nobody"),
        ("whohas", "192.0.2.1"),
        ("cleanup", "--config", "config.yaml"),
    ],
    ids=lambda words: words[0],
)
def test_without_root_every_command_exits_3_with_one_line(readable, words):
    done = as_nobody(*words, folder=readable)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"arpguard {words[0]}: ")
    assert done.stderr.count("\n") == 1
    assert "root" in done.stderr


# ---- commands that read ------------------------------------------------------------------------------------------


@pytest.fixture
def running(pair, agent) -> AgentProcess:
    agent.configure(a_config())
    agent.start()
    agent.wait_for()
    return agent


def test_status_tells_mode_links_and_decisions(pair, running):
    with a_wire(pair.client) as wire:
        wire.exchange([wire.request(FOREIGN)], OWNED)
    done = pair.arpguard("status", "-o", "json", "--pin-dir", str(running.pin_dir))
    assert (done.returncode, done.stderr) == (0, "")
    status = json.loads(done.stdout)
    assert (status["mode"], status["entries"]) == ("MODE_ENFORCE", 2)
    (link,) = status["links"]
    assert link["name"] == "eth0"
    assert {attachment["hook"] for attachment in link["attachments"]} == {"HOOK_TC_INGRESS", "HOOK_TC_EGRESS"}
    assert {count["reason"]: int(count["enforced"]) for count in status["reasons"]}["REASON_FOREIGN"] >= 1
    text = pair.arpguard("status", "--pin-dir", str(running.pin_dir)).stdout
    assert "mode enforce" in text
    assert Reason.FOREIGN.name.lower() in text


def test_vips_tells_kind_and_decisions_of_each(pair, running):
    def rows() -> dict[str, dict]:
        done = pair.arpguard("vips", "-o", "json", "--pin-dir", str(running.pin_dir))
        assert (done.returncode, done.stderr) == (0, "")
        return {row["address"]: row for row in json.loads(done.stdout)["vips"]}

    def foreign(row: dict) -> int:
        return sum(int(count["enforced"]) for count in row["reasons"] if count["reason"] == "REASON_FOREIGN")

    before = rows()
    assert {vip: row["kind"] for vip, row in before.items()} == {str(OWNED): "KIND_OWNED", str(FOREIGN): "KIND_FOREIGN"}
    assert before[str(OWNED)]["answerMac"] == str(M)
    with a_wire(pair.client) as wire:
        wire.exchange([wire.request(FOREIGN)] * 3, OWNED)
    assert foreign(rows()[str(FOREIGN)]) == foreign(before[str(FOREIGN)]) + 3
    table = pair.arpguard("vips", "--pin-dir", str(running.pin_dir)).stdout
    assert any(line.split()[:4] == [str(FOREIGN), "eth0", "foreign", "enforce"] for line in table.splitlines())


@pytest.mark.parametrize("command", ["status", "vips"])
def test_reading_where_nothing_is_pinned_exits_3(pair, command):
    done = pair.arpguard(command, "--pin-dir", str(pair.pin_root / "nothing"))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "start `arpguard agent`" in done.stderr


def whohas(lab: Lab, vip: Address, hosts: Sequence[Host], *words: str) -> "subprocess.CompletedProcess[str]":
    """Asked by the client for what these hosts answer, and others do not."""
    ask = partial(arpguard, "whohas", str(vip), *words, prefix=lab.client.netns.prefix())
    return with_room(ask, lambda done: all(str(host.mac) in done.stdout for host in hosts))


def test_whohas_exits_0_only_if_exactly_one_host_answers():
    """Nobody, one node, both."""
    nobody, one, both = (address(number) for number in (60, 61, 62))
    with a_place("whohas") as (folder, pin_root), Lab(2, folder, pin_root) as lab:
        first, second = lab.nodes
        first.bind(one, "lo")
        for node in lab.nodes:
            node.bind(both, "lo")
        for vip, code, nodes in (nobody, 1, []), (one, 0, [first]), (both, 1, [first, second]):
            done = whohas(lab, vip, nodes, "--json", "--count", "2")
            assert (done.returncode, done.stderr) == (code, "")
            found = json.loads(done.stdout)
            assert (found["address"], found["interface"]) == (str(vip), "eth0")
            assert {answer["mac"] for answer in found["answers"]} == {str(node.mac) for node in nodes}
            assert all(answer["replies"] in (1, 2) for answer in found["answers"]), "as many as come in time"

        done = whohas(lab, both, [first, second])
        assert done.stdout.endswith(f"\n2 hosts answer for {both} on eth0: a client may reach any of them\n")
        done = whohas(lab, one, [first])
        assert done.stdout.endswith(f"\nexactly one host answers for {one} on eth0\n")
        lab.client.netns.run("ip", "neigh", "replace", "192.0.2.77", "lladdr", str(first.mac), "dev", "eth0")
        assert "also has 192.0.2.77" in whohas(lab, one, [first]).stdout

        done = arpguard("whohas", str(nobody), "--count", "1", "--wait", "0.1", prefix=lab.client.netns.prefix())
        assert done.stdout.startswith(f"no host answers for {nobody} on eth0")
        done = arpguard("whohas", str(one), "--interface", "eth9", prefix=lab.client.netns.prefix())
        assert (done.returncode, done.stderr.count("\n")) == (3, 1)
        assert arpguard("whohas", "224.0.0.1").returncode == 2


@pytest.mark.parametrize(
    ("capabilities", "remedy"),
    [("-bpf,-sys_admin", "without CAP_BPF (to load"), ("-net_raw", "without CAP_NET_RAW (to announce")],
    ids=["no BPF", "no raw sockets"],
)
def test_missing_capability_exits_3_with_one_line(pair, tmp_path, capabilities, remedy):
    config = tmp_path / "config.yaml"
    with a_place("capability") as (_, pins):
        config.write_text(a_config(more=f"bpf: {{pin_dir: {pins}}}\n"))
        prefix = [*pair.node.netns.prefix(), "setpriv", f"--bounding-set={capabilities}"]
        done = arpguard("agent", "--config", str(config), prefix=prefix)
    assert done.returncode == 3
    assert remedy in said_in_one_line(done.stderr)


@pytest.mark.skipif(not Path("/proc/self/ns/time").exists(), reason="no time namespaces (CONFIG_TIME_NS)")
@pytest.mark.parametrize("offset_s", [-60, -1, 1, 3600])  # before the boot there is no time
def test_f23_agent_whose_boot_clock_is_not_the_kernels_is_refused(pair, tmp_path, offset_s):
    """Fences are compared by the kernel, with its own clock."""
    config = tmp_path / "config.yaml"
    with a_place("clock") as (_, pins):
        config.write_text(a_config(more=f"bpf: {{pin_dir: {pins}}}\n"))
        prefix = [*pair.node.netns.prefix(), "unshare", "--time", f"--boottime={offset_s}"]
        done = arpguard("agent", "--config", str(config), prefix=prefix)
        assert not list(pins.iterdir())
    assert done.returncode == 3
    told = re.search(r"is ([\d.]+) s (ahead of|behind) the kernel's", said_in_one_line(done.stderr))
    assert told is not None
    # The two clocks are read one after the other, on a machine that others use.
    assert float(told[1]) == pytest.approx(abs(offset_s), abs=0.5)
    assert told[2] == ("ahead of" if offset_s > 0 else "behind")


# ---- from here on, Python is started, not forked -----------------------------------------------------------------


@cold
def test_agent_that_is_told_to_end_while_it_loads_ends_in_good_order(pair, tmp_path):
    """As process 1 of a container, too, which hears of no signal that it has no handler for."""
    agent = AgentProcess(pair.node, tmp_path, tmp_path / "pins")
    agent.configure(a_config())
    agent.start()
    try:
        until(lambda: list(agent.pin_dir.glob("maps-*")), END_S, "programs are being loaded")
        agent.send(signal.SIGTERM)

        assert agent._process.wait(HUNG_S) == 0
        assert "stopped:" in agent.said()
    finally:
        agent.kill(signal.SIGKILL)
        pair.arpguard("cleanup", "--pin-dir", str(agent.pin_dir))


def test_pin_directory_outside_a_bpffs_becomes_one_and_goes_at_cleanup(pair, tmp_path):
    agent = AgentProcess(pair.node, tmp_path, tmp_path / "pins")
    agent.configure(a_config())
    agent.start()
    try:
        agent.wait_for()
        assert os.path.ismount(agent.pin_dir)
    finally:
        agent.kill(signal.SIGTERM)
    assert pair.arpguard("cleanup", "--pin-dir", str(agent.pin_dir)).returncode == 0
    assert not agent.pin_dir.exists()


# ---- standby -----------------------------------------------------------------------------------------------------


class Following(AgentProcess):
    """An agent that waits for the one that runs."""

    def words(self) -> list[str]:
        return [*super().words(), "--standby"]


@pytest.fixture
def following(pair, agent) -> Iterator[Following]:
    """In standby beside an agent that runs."""
    agent.configure(a_config())
    agent.start()
    agent.wait_for()
    folder = pair.folder / "following"
    folder.mkdir(exist_ok=True)
    made = Following(pair.node, folder, agent.pin_dir)
    made.configure(a_config())
    made.start()
    made.wait_for("standby:")
    yield made
    made.kill(signal.SIGKILL)


def asks(agent: AgentProcess, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {"ARPGUARD_ADDRESS": agent.api, "PYTHONPATH": ":".join(sys.path)}
    return subprocess.run([sys.executable, "-m", *words], env=environment, capture_output=True, text=True, check=False)


def test_an_agent_in_standby_is_well_changes_nothing_and_takes_over(pair, agent, following):
    links = {path.name: path.stat().st_ino for path in (agent.pin_dir / "links").iterdir()}
    assert asks(following, "arpguard.probe").returncode == 0
    done = asks(following, "arpguard", "status", "--address", following.api)
    assert done.returncode == 3
    assert "on standby until this node's current agent stops" in done.stderr
    assert asks(agent, "arpguard", "status", "--address", agent.api).returncode in (0, 1)
    assert {path.name: path.stat().st_ino for path in (agent.pin_dir / "links").iterdir()} == links

    agent.kill(signal.SIGTERM)
    following.wait_for()
    until(lambda: asks(following, "arpguard.probe").returncode == 0)
    assert "ready:" in following.said()
    assert said(following, "programs=reopened")
    with a_wire(pair.client) as wire:
        assert claims(wire.exchange([wire.request(FOREIGN)], OWNED), FOREIGN) == []


def test_an_agent_in_standby_that_is_told_to_end_leaves_the_other_alone(pair, agent, following):
    assert following._process is not None
    following.send(signal.SIGTERM)
    assert following._process.wait(HUNG_S) == 0
    assert "stopped on standby" in following.said()
    assert agent.pid is not None
    with a_wire(pair.client) as wire:
        assert claims(wire.exchange([wire.request(FOREIGN)], OWNED), FOREIGN) == []


def test_an_agent_that_cannot_start_says_so_while_the_other_still_runs(pair, agent, following):
    following.kill(signal.SIGTERM)
    code, text = ends(following, "mode: strict\n")
    assert code == 2
    assert "mode: must be observe or enforce, not strict" in text
    assert agent.pid is not None
