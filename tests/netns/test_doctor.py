"""`arpguard doctor` on real nodes: every trap is found, mended by what it says, and gone.

And what it says of the kernel is what the kernel does."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arpguard.core.checkup.findings import Grade
from arpguard.core.checkup.snapshot import Unread
from arpguard.core.checkup.table import CHECKS
from arpguard.dataplane import syscall
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.errors import DataPlaneError
from arpguard.runtime.checkup import Wanted, look, read_setting
from arpguard_lab.cluster import objects
from arpguard_lab.topology import Lab
from arpguard_lab.traps import FIRST_WARD, TRAPS
from arpguard_lab.ward import SHOP, Ward, treat
from support.netns.cable import Pair, a_pair, a_place, address
from support.netns.foreign import TC_OK, a_tc_program, an_xdp_program, attached
from support.netns.waiting import HUNG_S, until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

VIP = address(50)
XDP_GENERIC = 2  # XDP_FLAGS_SKB_MODE
# Checks that no namespace can make bad: tests/unit/core/test_checkup.py has them.
_OF_THE_MACHINE = {"kernel", "tcx", "clock"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_place("doctor") as (folder, pin_root), Lab(1, folder, pin_root) as made:
        yield made


@pytest.fixture
def pair() -> Iterator[Pair]:
    with a_pair("doctor") as made:
        yield made


def _doctor(pair: Pair, *words: str) -> "subprocess.CompletedProcess[str]":
    """Away from the machine's own agent, if there is one."""
    own = ("--address", f"unix://{pair.folder}/none.sock", "--pin-dir", str(pair.pin_root / "none"))
    return pair.arpguard("doctor", *own, *words)


def _checks(done: "subprocess.CompletedProcess[str]") -> dict[str, dict]:
    assert done.stderr == "", done.stderr
    return {check["check"]: check for check in json.loads(done.stdout)["checks"]}


@pytest.mark.parametrize(
    ("number", "trap"),
    [
        pytest.param(number, trap, id=f"{trap.check}: {trap.what}", marks=[pytest.mark.tcx] if trap.needs_tcx else [])
        for number, trap in enumerate(TRAPS, FIRST_WARD)
    ],
)
def test_trap_is_found_and_mended_by_what_the_doctor_says(lab, number, trap):
    before, after, seen = treat(lab, number, trap)

    assert before == trap.grade, seen
    assert after == trap.cured, seen


def test_every_check_that_namespaces_can_show_has_a_trap():
    # Below; and in tests/unit/core/test_checkup.py: an administrator may read every announcer's objects, and what keeps
    # nodes from vouching for each other is what agents of a cluster say.
    elsewhere = {"bpffs", "announcers", "vouching"}
    assert {check.name for check in CHECKS} - {trap.check for trap in TRAPS} == _OF_THE_MACHINE | elsewhere


# ---- what it says of the kernel ----------------------------------------------------------------------------------

_PLACES = {
    "lo": ["ip addr add {vip}/32 dev lo"],
    "lo, scope host": ["ip addr add {vip}/32 dev lo scope host"],
    "kube-ipvs0 down": ["ip link add d0 type bridge", "ip link set d0 arp off", "ip addr add {vip}/32 dev d0"],
    "kube-ipvs0 up": ["ip link add d0 type bridge", "ip link set d0 arp off up", "ip addr add {vip}/32 dev d0"],
    "eth0": ["ip addr add {vip}/32 dev eth0"],
    "eth0, in its subnet": ["ip addr add {vip}/24 dev eth0"],
    "nowhere": ["true"],
    "routed elsewhere, proxy_arp": [
        "ip link add d0 type bridge",
        "ip link set d0 up",
        "ip route add {vip}/32 dev d0",
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.eth0.proxy_arp=1 net.ipv4.neigh.eth0.proxy_delay=0",
    ],
}


@pytest.mark.parametrize("place", _PLACES)
def test_who_would_answer_is_what_the_kernel_does(pair, place):
    lines = "\n".join(_PLACES[place]).replace("{vip}", str(VIP))
    pair.node.netns.run("sh", "-ec", lines)
    wanted = Wanted("node-1", ask=False)
    setting = asyncio.run(read_setting(wanted))
    asker = pair.client.listen()

    for level in ("all", "eth0"):
        for value in (0, 1, 2, 3, 4, 8):
            pair.node.netns.run("sysctl", "-qw", f"net.ipv4.conf.{level}.arp_ignore={value}")
            picture = pair.node.netns.call(lambda: asyncio.run(look(wanted, setting, Unread("not asked"))))
            link = next(link for link in picture.fit if link.name == "eth0")
            _expect(asker, pair, picture.kernel_answers(VIP, link), f"{level}.arp_ignore={value}")
        pair.node.netns.run("sysctl", "-qw", f"net.ipv4.conf.{level}.arp_ignore=0")
    asker.close()


def _expect(asker: NeighbourSocket, pair: Pair, answered: bool, what: str) -> None:
    """The kernel answers, though perhaps late, or does not."""

    def is_answered() -> bool:
        return bool(asker.ask(VIP, pair.client.address, count=1, wait_s=0.15))

    if answered:
        until(is_answered, what=f"an answer with {what}")
    else:
        assert not is_answered(), what


def _sent(pair: Pair) -> int:
    rows = pair.node.netns.run("cat", "/proc/net/dev").splitlines()
    return next(int(row.split()[10]) for row in rows if row.strip().startswith("eth0:"))


def _sent_for_one_datagram(pair: Pair) -> int:
    """How many packets go out when this node sends one to the VIP, and all that follow have settled."""
    code = f"import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.sendto(b'.', ('{VIP}', 9))"
    before = _sent(pair)
    pair.node.netns.run(sys.executable, "-c", code)
    last = -1

    def settled() -> bool:
        nonlocal last
        last, now = _sent(pair), last
        return last == now

    until(settled)
    return _sent(pair) - before


def test_accept_local_sends_packets_round_until_their_ttl_is_0_and_the_fix_ends_it(pair):
    """The director is a router that sends whatever is for the VIP back to the real server, as LVS-DR does."""
    director = pair.client.netns
    quiet = "net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0 net.ipv4.ip_forward=1"
    for netns in (director, pair.node.netns):
        netns.run("sh", "-c", f"sysctl -qw {quiet} net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0")
    director.run("ip", "route", "add", f"{VIP}/32", "via", str(pair.node.address), "dev", "eth0")
    pair.node.netns.run("ip", "neigh", "add", str(VIP), "lladdr", str(pair.client.mac), "dev", "eth0")
    director.run("ip", "neigh", "add", str(pair.node.address), "lladdr", str(pair.node.mac), "dev", "eth0")
    pair.sysctl(rp_filter=1, accept_local=1)
    config = pair.folder / "config.yaml"
    config.write_text(f"vips: [{{address: {VIP}, owner: external}}]\n")

    looped = _sent_for_one_datagram(pair)
    found = _checks(_doctor(pair, "--config", str(config), "-o", "json"))["lvs-dr-loop"]
    pair.node.netns.run("sh", "-ec", "\n".join(found["findings"][0]["commands"]))
    mended = _sent_for_one_datagram(pair)

    assert looped > 20
    assert found["verdict"] == "bad"
    assert "no device here has" in found["findings"][0]["means"]
    assert mended == 1
    assert _checks(_doctor(pair, "--config", str(config), "-o", "json"))["lvs-dr-loop"]["verdict"] == "ok"


# ---- where and how it runs ---------------------------------------------------------------------------------------


def test_a_node_with_nothing_on_it_is_well_and_the_exit_code_says_so(pair):
    done = _doctor(pair)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{len(CHECKS)} checks: " in done.stdout
    assert " bad" not in done.stdout.splitlines()[-1]


def test_exit_code_is_1_and_hints_are_a_script(pair):
    pair.node.bind(VIP, "lo")
    done = _doctor(pair)
    hints = _doctor(pair, "--fix-hints")
    assert (done.returncode, hints.returncode) == (1, 1)
    assert "sysctl -w net.ipv4.conf.eth0.arp_ignore=1" in done.stdout
    lines = hints.stdout.splitlines()
    assert "sysctl -w net.ipv4.conf.eth0.arp_ignore=1" in lines
    assert all(line.startswith(("#", "sysctl -w net.")) for line in lines)
    assert len(lines) == len(set(lines))


def test_it_changes_nothing(pair):
    pair.node.bind(VIP, "kube-ipvs0 down")
    state = "ip -d addr; ip rule; ip route show table all; sysctl -a 2>/dev/null | grep -E 'net.ipv[46].conf'; ls -R "

    def seen() -> str:
        return pair.node.netns.run("sh", "-c", f"{state} {pair.pin_root}")

    until(lambda: "state UNKNOWN" not in pair.node.netns.run("ip", "link", "show", "eth0"), what="eth0 is up")
    before = seen()
    assert _doctor(pair, "--fix-hints").returncode == 1
    assert seen() == before


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--config", "/nonexistent.yaml"], 2, "No such file"),
        (["--kubeconfig", "/nonexistent"], 2, "Kubernetes access"),
        (["--configmap", "no-slash"], 2, "NAMESPACE/NAME"),
        (["--address", "tcp!"], 2, "must be unix:///PATH or HOST:PORT"),
        (["-o", "xml"], 2, "invalid choice"),
    ],
)
def test_wrong_usage_exits_2_and_says_what_is_allowed(pair, words, code, told):
    done = pair.arpguard("doctor", "--pin-dir", str(pair.pin_root / "none"), *words)
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_an_api_server_that_is_not_there_leaves_the_rest(pair, tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        "contexts: [{name: a, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    checks = _checks(_doctor(pair, "--kubeconfig", str(kubeconfig), "-o", "json"))
    assert checks["kube-proxy"]["verdict"] == "unknown"
    assert "cannot list" in checks["kube-proxy"]["findings"][0]["seen"]
    assert checks["vip-bound"]["verdict"] == "skip"


def test_without_root_what_can_be_read_is_checked_and_the_rest_is_unknown(pair):
    pair.node.bind(VIP, "lo")
    words = [sys.executable, "-m", "arpguard", "doctor", "-o", "json", "--address", "unix:///nobody"]
    prefix = [*pair.node.netns.prefix(), "setpriv", "--reuid=65534", "--clear-groups"]
    done = subprocess.run([*prefix, *words], capture_output=True, text=True, timeout=HUNG_S, check=False)
    checks = _checks(done)
    assert done.returncode == 1
    assert checks["vip-bound"]["verdict"] == "bad"
    for name in ("vip-on-wire", "agent", "one-agent", "foreign-programs", "kernel", "tcx", "capabilities"):
        assert checks[name]["verdict"] == "unknown", name


def test_missing_bpffs_is_found_and_mounted_by_the_command(pair):
    doctor = "arpguard doctor -o json --no-ask --address unix:///nobody"
    script = f"""
set -e; export PATH={Path(sys.executable).parent}:$PATH
umount /sys/fs/bpf
{doctor}; echo ,
eval "$({doctor} | {sys.executable} -c '
import json, sys
print([f["commands"] for c in json.load(sys.stdin)["checks"] if c["check"] == "bpffs" for f in c["findings"]][0][0])')"
{doctor}
"""
    words = [*pair.node.netns.prefix(), "unshare", "--mount", "sh", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HUNG_S, check=False)
    before, after = json.loads(f"[{done.stdout}]")
    verdicts = [{c["check"]: c["verdict"] for c in document["checks"]}["bpffs"] for document in (before, after)]
    assert verdicts == ["warn", "ok"]


# ---- programs of others, IPv6, odd names -------------------------------------------------------------------------


@pytest.mark.tcx
def test_a_program_that_runs_before_the_guard_is_found_until_it_goes(pair):
    config = f"mode: enforce\nvips: [{{address: {VIP}, owner: {{node: elsewhere}}}}]\n"
    agent = pair.agent(config)
    words = ("--config", str(agent.config), "--node-name", "node-1", "--no-ask", "-o", "json")

    def check() -> dict:
        return _checks(pair.arpguard("doctor", *words))["foreign-programs"]

    with attached(pair.node, a_tc_program(TC_OK), syscall.ATTACH_TCX_INGRESS, syscall.F_BEFORE):
        before = check()
    with attached(pair.node, a_tc_program(TC_OK), syscall.ATTACH_TCX_INGRESS, 0):
        behind = check()
    with attached(pair.node, an_xdp_program(), syscall.ATTACH_XDP, XDP_GENERIC):
        xdp = check()

    assert before["verdict"] == "bad"
    assert "tcx ingress" in before["findings"][0]["seen"]
    assert "runs before the guard" in before["findings"][0]["seen"]
    assert (behind["verdict"], xdp["verdict"], check()["verdict"]) == ("ok", "ok", "ok")
    assert "xdp" in xdp["findings"][0]["seen"]


def test_clsact_filters_of_others_are_seen(pair):
    pair.node.bind(VIP, "lo")
    pair.node.netns.run("tc", "qdisc", "add", "dev", "eth0", "clsact")
    pin = pair.pin_root / "theirs"
    syscall.obj_pin(a_tc_program(TC_OK), str(pin))
    filters = ("tc", "filter", "add", "dev", "eth0", "ingress", "bpf", "direct-action", "object-pinned", str(pin))
    pair.node.netns.run(*filters)
    found = _checks(_doctor(pair, "-o", "json"))["foreign-programs"]
    assert found["verdict"] == "ok"
    assert "clsact ingress" in found["findings"][0]["seen"]


def _with_ipv6(pair: Pair) -> None:
    for host, number in ((pair.node, 1), (pair.client, 100)):
        host.netns.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.eth0.accept_dad=0")
        host.netns.batch([f"addr add 2001:db8::{number}/64 dev eth0 nodad"])


def test_ipv6_vip_is_asked_for_and_a_setting_in_its_way_is_found_and_mended(pair):
    _with_ipv6(pair)
    pair.client.netns.batch(["addr add 2001:db8::50/128 dev eth0 nodad"])
    config = pair.folder / "config.yaml"
    config.write_text("vips: [{address: '2001:db8::50', owner: external}]\n")
    words = ("--config", str(config), "-o", "json")

    answered = _checks(_doctor(pair, *words))
    pair.node.netns.run("sysctl", "-qw", "net.ipv6.conf.eth0.suppress_frag_ndisc=0")
    found = _checks(_doctor(pair, *words))["ipv6"]
    pair.node.netns.run("sh", "-ec", "\n".join(found["findings"][0]["commands"]))

    assert answered["vip-on-wire"]["findings"][0]["seen"].endswith(f"answered on eth0 by {pair.client.mac}")
    assert answered["ipv6"]["verdict"] == "ok"
    assert found["verdict"] == "warn"
    assert _checks(_doctor(pair, *words))["ipv6"]["verdict"] == "ok"


@pytest.mark.parametrize("name", ["eth0.7", "a$(reboot)b", "it's", "*"])
def test_commands_work_for_links_with_odd_names(pair, name):
    pair.node.netns.run("ip", "link", "set", "eth0", "down")
    pair.node.netns.run("ip", "link", "set", "eth0", "name", name, "up")
    until(lambda: pair.node.netns.run("cat", "/proc/net/dev"))
    pair.node.bind(VIP, "lo")
    assert _checks(_doctor(pair, "--no-ask", "-o", "json"))["vip-bound"]["verdict"] == "bad"
    pair.node.netns.run("sh", "-ec", _doctor(pair, "--no-ask", "--fix-hints").stdout)
    assert _checks(_doctor(pair, "--no-ask", "-o", "json"))["vip-bound"]["verdict"] == "ok"


# ---- the cluster -------------------------------------------------------------------------------------------------


def test_configuration_of_a_configmap_and_one_that_is_not_there(lab):
    with Ward(lab, 90) as ward:
        text = f"mode: enforce\nvips: [{{address: {ward.vip}, owner: external}}]\n"
        ward.serve(objects.config_map(SHOP, "arpguard", text), objects.config_map(SHOP, "wrong", "mode: perhaps\n"))
        ward.sh("ip addr add {vip}/32 dev lo")
        told = json.loads(ward.doctor("--configmap", f"{SHOP}/arpguard", "-o", "json"))
        bound = next(check for check in told["checks"] if check["check"] == "vip-bound")
        assert "a host outside the cluster owns it" in bound["findings"][0]["means"]
        for name, words in (("missing", "does not exist"), ("wrong", "mode: must be observe or enforce, not perhaps")):
            with pytest.raises(DataPlaneError, match=words):
                ward.doctor("--configmap", f"{SHOP}/{name}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mode: ipvs", "is not a KubeProxyConfiguration"),
        ("a: [", "is not YAML"),
        ("[" * 5000, "is not YAML"),
        ("kind: KubeProxyConfiguration\nmode: [ipvs]\nipvs: 7", "mode iptables (the default)"),
    ],
)
def test_kube_proxys_configuration_in_odd_forms(lab, text, told):
    with Ward(lab, 91 + len(text) % 7) as ward:
        settings = objects.config_map("kube-system", "kube-proxy", "")
        ward.serve({**settings, "data": {"config.conf": text}})
        assert told in ward.check("kube-proxy")["findings"][0]["seen"]


# ---- the page, and the lab ---------------------------------------------------------------------------------------

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, CHECKS_PAGE = DOCS / "doctor.md", DOCS / "doctor-checks.md"


def test_commands_of_the_page_do_what_it_shows(lab):
    blocks = re.findall(r"^```(console|text)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    script = [
        "set +e",
        f"export PATH={Path(sys.executable).parent}:$PATH",
        "mount -t tmpfs tmpfs /run",
        "export COLUMNS=300",
    ]
    for kind, text in blocks:
        for line in text.splitlines() if kind == "console" else ():
            script += ["echo @@@", line.removeprefix("# ")]
    words = [*lab.join("page", 98).netns.prefix(), "unshare", "--mount", "bash", "-c", "\n".join(script)]
    done = subprocess.run(words, cwd=PAGE.parents[1], capture_output=True, text=True, timeout=HUNG_S, check=False)
    outputs = iter(done.stdout.split("@@@\n")[1:])
    assert done.stderr == ""
    output = ""
    for kind, text in blocks:
        for line in text.splitlines():
            if kind == "console":
                output = next(outputs)
            else:
                assert " ".join(line.split()) in {" ".join(each.split()) for each in output.splitlines()}, output
    assert json.loads(output)["verdict"] == "bad"


def test_page_has_every_verdict():
    rows = re.findall(r"^\| `([a-z]+)` \| ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(grade.value for grade in Grade)


def test_page_has_every_check_as_the_code_has_it():
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.*?) \| ", CHECKS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(check.name, check.asks) for check in CHECKS]


def test_the_lab_shows_each_trap_before_and_after():
    """In a process of its own: the names of a lab's namespaces are by process. The scenario runs in that, too, or all
    traps were shown."""
    code = (
        "from arpguard_lab import runner, traps; from arpguard.cli.main import main\n"
        "traps.TRAPS = [trap for trap in traps.TRAPS if trap.check in ('takeovers', 'can-reach')]\n"
        "runner.side_by_side = lambda plays, at_once: (step for play in plays.values() for step in play())\n"
        "main(['lab', '--nodes', '2', '--scenario', 'doctor'])\n"
    )
    wide = {**os.environ, "COLUMNS": "300"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HUNG_S, env=wide, check=False
    )
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert "TRAP SAID EXPECTED" in lines
    assert any(line == "takeovers: drop_gratuitous_arp 1 bad, then ok bad, then ok ok" for line in lines)
    assert sum(line.endswith(" ok ok") for line in lines) == sum(
        trap.check in ("takeovers", "can-reach") for trap in TRAPS
    )
