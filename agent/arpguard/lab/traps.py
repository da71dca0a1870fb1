"""The traps that the doctor knows, laid on a node of the lab, found, and mended as the doctor says.

Each has a node and a VIP of its own, so that none is in another's way.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from arpguard.errors import DataPlaneError
from arpguard.lab.apiserver.embedded import Embedded, running
from arpguard.lab.apiserver.server import Options
from arpguard.lab.bench import Bench, Step
from arpguard.lab.cluster import objects
from arpguard.lab.netns import command
from arpguard.lab.topology import NETWORK, Host, Lab
from arpguard.wire.arp import build_announcements

Json: TypeAlias = dict[str, Any]

FIRST_WARD = 20  # the last byte of the first node's address
VIP_OFFSET = 100
DEADLINE_S = 20.0
_LONG_S = 60.0
SHOP = "shop"
_KUBE_PROXY = """apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ipvs
ipvs:
  strictARP: false
"""


class Ward:
    """A fresh node on the lab's switch, a VIP, and what the doctor says there."""

    def __init__(self, lab: Lab, number: int, config: str = "") -> None:
        self.lab = lab
        self.host = lab.join(f"ward-{number}", number)
        self.vip = IPv4Address(f"{NETWORK}.{number + VIP_OFFSET}")
        self.agent = lab.agent(self.host)
        self.configured = bool(config)
        self.server: Embedded | None = None
        self._stack = ExitStack()
        if config:
            self.configure(config)

    def configure(self, config: str) -> None:
        """Gives doctor and agent this configuration; `{vip}` and `{node}` in it are the ward's."""
        self.agent.configure(config.replace("{vip}", str(self.vip)).replace("{node}", self.host.name))

    def sh(self, *lines: str) -> None:
        """Runs shell lines on the node; `{vip}` in them is the VIP."""
        self._run(self.host, lines)

    def outside(self, *lines: str) -> None:
        """Runs shell lines on the lab's client, a host of no cluster."""
        self._run(self.lab.client, lines)

    def serve(self, *documents: Json) -> None:
        """Starts an API server on the node that has these objects."""
        self.server = self.host.netns.call(lambda: self._stack.enter_context(running(Options(tls=False))))
        self.server.do(lambda it: it.load([objects.namespace(SHOP), objects.namespace("kube-system"), *documents]))
        self.server.do(lambda it: it.write_kubeconfig(self.kubeconfig, "admin"))

    @property
    def kubeconfig(self) -> Path:
        """Where `serve` says how its server is reached."""
        return self.agent.config.with_suffix(".kubeconfig")

    def doctor(self, *words: str) -> str:
        """What `arpguard doctor` prints; DataPlaneError when it does not come to a verdict."""
        own = ["--pin-dir", str(self.agent.pin_dir), "--address", self.agent.api]
        own = ["--config", str(self.agent.config)] if self.configured else own
        own += ["--kubeconfig", str(self.kubeconfig)] if self.server else []
        asked = [sys.executable, "-m", "arpguard", "doctor", "--node-name", self.host.name, *own, *words]
        done = subprocess.run(  # noqa: S603 - our own program
            [*self.host.netns.prefix(), *asked], capture_output=True, text=True, timeout=_LONG_S, check=False
        )
        if done.returncode not in (0, 1) or done.stderr:
            raise DataPlaneError(f"the doctor failed ({done.returncode}): {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout

    def check(self, name: str) -> Json:
        """One check's result."""
        found: list[Json] = [each for each in json.loads(self.doctor("-o", "json"))["checks"] if each["check"] == name]
        return found[0]

    def take_advice(self, before: Json) -> None:
        """Runs what `--fix-hints` prints; for what is not bad, the commands of a check's findings."""
        if before["verdict"] == "bad":
            self.sh(self.doctor("--fix-hints"))
        else:
            self.sh(*(line for finding in before["findings"] for line in finding["commands"]))

    def start_agent(self) -> None:
        """Starts the node's agent, and waits until it guards."""
        self.agent.start()
        self.agent.wait_for()

    def stop_agent(self) -> None:
        """Stops it; the guard stays."""
        self.agent.kill(signal.SIGTERM)

    def _run(self, host: Host, lines: "tuple[str, ...] | list[str]") -> None:
        script = "\n".join(["set -e", *lines]).replace("{vip}", str(self.vip))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        kubeconfig = f"KUBECONFIG={self.kubeconfig}"
        command(*host.netns.prefix(), "env", f"PATH={path}", kubeconfig, "sh", "-c", script)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_agent()
        for pid in _processes_of(self.agent.config):
            os.kill(pid, signal.SIGTERM)
        _wait(lambda: not _processes_of(self.agent.config))
        self._stack.close()


def _processes_of(config: Path) -> list[int]:
    """Agents that were started with a configuration, also those that a hint has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # gone
            continue
        if b"agent" in words and os.fsencode(config) in words:
            found.append(int(folder.name))
    return found


def _wait(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


Deed: TypeAlias = Callable[[Ward], None]


@dataclass(frozen=True, slots=True)
class Trap:
    """`lay` makes it; `mend` None: the doctor's own commands do. `grade` is what the check has to say before."""

    check: str
    what: str
    lay: Deed
    mend: Deed | None = None
    config: str = ""
    grade: str = "bad"


@dataclass(frozen=True, slots=True)
class Course:
    """How it went: what the check said with the trap, and after the fix."""

    trap: Trap
    before: str
    after: str
    seen: str = ""

    @property
    def ok(self) -> bool:
        """Whether the trap was found, and the fix was one."""
        return self.before == self.trap.grade and self.after == "ok"


def treat(lab: Lab, number: int, trap: Trap) -> Course:
    """Lays a trap on a node of its own, has it found, mends it, and looks again."""
    with Ward(lab, number, trap.config) as ward:
        trap.lay(ward)
        before = ward.check(trap.check)
        if trap.mend is None:
            ward.take_advice(before)
        else:
            trap.mend(ward)
        after: Json = {}

        def well() -> bool:
            after.update(ward.check(trap.check))
            return bool(after["verdict"] == "ok")

        _wait(well) if before["verdict"] != "ok" else None
        seen = next((each["seen"] for each in before["findings"] if each["verdict"] == before["verdict"]), "")
        return Course(trap, str(before["verdict"]), str(after.get("verdict", "")), str(seen))


# ---- how traps are made ------------------------------------------------------------------------------------------


def _sh(*lines: str) -> Deed:
    return lambda ward: ward.sh(*lines)


def _both(*deeds: Deed) -> Deed:
    def do(ward: Ward) -> None:
        for deed in deeds:
            deed(ward)

    return do


def _guarded(ward: Ward) -> None:
    ward.start_agent()


def _configured(config: str) -> Deed:
    return lambda ward: ward.configure(config)


_VIP_ON_LO = "ip addr add {vip}/32 dev lo"
_VIP_ON_IPVS = (
    "ip link add kube-ipvs0 type bridge",
    "ip link set kube-ipvs0 arp off",
    "ip addr add {vip}/32 dev kube-ipvs0",
)
_QUIET_ARP = "sysctl -qw net.ipv4.conf.eth0.arp_ignore=1 net.ipv4.conf.eth0.arp_announce=2"
_OWNED = "mode: enforce\nvips: [{address: {vip}, owner: {node: {node}}}]\n"
_OF_ANOTHER = "mode: enforce\nvips: [{address: {vip}, owner: {node: elsewhere}}]\n"
_EXTERNAL = "mode: enforce\nvips: [{address: {vip}, owner: external}]\n"
_DELEGATED = "mode: enforce\nvips: [{address: {vip}, owner: {node: {node}, delegated: true}}]\n"


def _second_link(*lines: str) -> Deed:
    """eth1 on the same switch, with an address in the same subnet."""

    def lay(ward: Ward) -> None:
        number = int(ward.vip) & 0xFF
        name = f"port{number}"
        ward.lab.switch.batch(
            [
                f"link add {name} type veth peer name eth1 netns {ward.host.netns.name}",
                f"link set {name} master br0 up",
            ]
        )
        ward.sh("ip link set eth1 up", f"ip addr add {NETWORK}.{number - 50}/24 dev eth1 metric 500", *lines)

    return lay


def _service(*addresses: str, annotations: Mapping[str, str] | None = None) -> Deed:
    def lay(ward: Ward) -> None:
        own = {"{vip}": ward.vip, "{node}": ward.host.address}
        vips = [own[each] for each in addresses]
        ward.serve(objects.node(ward.host.name, ward.host.address), objects.service(SHOP, "db", vips, annotations))

    return lay


def _ipvs(ward: Ward) -> None:
    """kube-proxy's objects, as kubeadm makes them."""
    settings = objects.config_map("kube-system", "kube-proxy", "")
    settings["data"] = {"config.conf": _KUBE_PROXY}
    ward.serve(settings, objects.daemon_set("kube-system", "kube-proxy"), objects.service(SHOP, "web", [ward.vip]))


def _openelb(ward: Ward) -> None:
    """An address pool that finds its link by an address of its own, which a Service has got meanwhile."""
    kind = {"kind": "Eip", "plural": "eips", "singular": "eip"}
    version = {"name": "v1alpha2", "served": True, "storage": True}
    ward.serve(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "eips.network.kubesphere.io"},
            "spec": {"group": "network.kubesphere.io", "scope": "Cluster", "names": kind, "versions": [version]},
        },
        {
            "apiVersion": "network.kubesphere.io/v1alpha2",
            "kind": "Eip",
            "metadata": {"name": "pool"},
            "spec": {"address": f"{ward.vip}-{ward.vip}", "protocol": "layer2", "interface": f"can_reach:{ward.vip}"},
        },
    )
    ward.sh(*_VIP_ON_IPVS)


def _restarted_kube_proxy(ward: Ward) -> None:
    """The doctor's commands, and what kube-proxy does when it starts."""
    ward.take_advice(ward.check("kube-proxy"))
    ward.sh("sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2")


def _claimed(ward: Ward) -> None:
    """The agent owns the VIP, and somebody outside announces it."""
    ward.start_agent()
    mouth = ward.lab.client.listen()
    mouth.send(build_announcements(mouth.mac, ward.vip)[0])
    mouth.close()
    _wait(lambda: bool(ward.check("vip-claimed")["verdict"] == "bad"))


def _restarted(ward: Ward) -> None:
    ward.stop_agent()
    ward.start_agent()


def _second_guard(ward: Ward) -> None:
    """One agent was told another folder, and what it left there is still attached."""
    ward.start_agent()
    ward.stop_agent()
    text = ward.agent.config.read_text(encoding="utf-8")
    ward.agent.pin_dir = ward.agent.pin_dir.with_name(f"{ward.agent.pin_dir.name}-new")
    ward.agent.config.write_text(text.replace(str(ward.agent.pin_dir)[: -len("-new")], str(ward.agent.pin_dir)))
    ward.start_agent()


TRAPS = (
    Trap("vip-bound", "VIP on lo, no guard", _sh(_VIP_ON_LO)),
    Trap("vip-bound", "VIP of another node on lo, agent not started", _sh(_VIP_ON_LO), config=_OF_ANOTHER),
    Trap("vip-bound", "VIP of a host outside on the NIC", _sh("ip addr add {vip}/32 dev eth0"), config=_EXTERNAL),
    Trap(
        "vip-bound",
        "the guard only observes",
        _both(_sh(_VIP_ON_LO), _guarded),
        _configured(_OF_ANOTHER),
        _OF_ANOTHER.replace("enforce", "observe"),
        "warn",
    ),
    Trap("kube-ipvs", "externalIP on kube-ipvs0, which is down and NOARP", _sh(*_VIP_ON_IPVS)),
    Trap(
        "vip-on-wire",
        "VIP on lo, and a host outside has it",
        _both(_sh(_VIP_ON_LO), lambda ward: ward.outside("ip addr add {vip}/32 dev eth0")),
    ),
    Trap(
        "vip-on-wire",
        "externalIP of a Service is a host's outside the cluster",
        _both(_service("{vip}"), lambda ward: ward.outside("ip addr add {vip}/32 dev eth0")),
    ),
    Trap("vip-refused", "externalIP of a Service is this node's address", _service("{node}")),
    Trap("vip-claimed", "a host outside announces an owned VIP", _claimed, _restarted, _OWNED),
    Trap(
        "vip-leaks",
        "VIP on lo, arp_announce 0",
        _sh(_VIP_ON_LO, _QUIET_ARP, "sysctl -qw net.ipv4.conf.eth0.arp_announce=0"),
    ),
    Trap(
        "vip-leaks",
        "VIP on lo, arp_announce 1 and the VIP in the link's subnet",
        _sh(_VIP_ON_LO, _QUIET_ARP, "sysctl -qw net.ipv4.conf.eth0.arp_announce=1"),
    ),
    Trap("arp-ignore", "arp_ignore 8", _sh("sysctl -qw net.ipv4.conf.eth0.arp_ignore=8")),
    Trap(
        "arp-ignore",
        "delegated VIP on lo, arp_ignore 1",
        _both(_sh(_VIP_ON_LO, "sysctl -qw net.ipv4.conf.all.arp_ignore=1"), _guarded),
        config=_DELEGATED,
    ),
    Trap(
        "arp-ignore",
        "arp_ignore set on kube-ipvs0 only",
        _sh(*_VIP_ON_IPVS, "sysctl -qw net.ipv4.conf.kube-ipvs0.arp_ignore=1"),
        grade="warn",
    ),
    Trap(
        "lvs-dr-loop",
        "real server with accept_local and rp_filter 1",
        _sh(_VIP_ON_LO, "sysctl -qw net.ipv4.conf.eth0.rp_filter=1 net.ipv4.conf.eth0.accept_local=1"),
    ),
    Trap("same-segment", "two NICs in one subnet", _second_link(), grade="warn"),
    Trap(
        "rp-filter",
        "strict filter where the way back leads by the other NIC",
        _second_link("sysctl -qw net.ipv4.conf.eth1.rp_filter=1"),
    ),
    Trap("takeovers", "drop_gratuitous_arp 1", _sh("sysctl -qw net.ipv4.conf.all.drop_gratuitous_arp=1")),
    Trap(
        "proxy-arp",
        "proxy_arp, and a VIP that is routed elsewhere",
        _second_link(
            "ip route add {vip}/32 dev eth1", "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.eth0.proxy_arp=1"
        ),
        config=_EXTERNAL,
    ),
    Trap("interfaces", "a link that is not there", _sh(), _configured("interfaces: [eth0]\n"), "interfaces: [eth7]\n"),
    Trap(
        "interfaces",
        "a port of a bridge",
        _sh(
            "ip link add br7 type bridge",
            "ip link add eth7 type veth peer name eth8",
            "ip link set eth7 master br7",
            "ip link set eth8 up",
            "ip link set eth7 up",
            "ip link set br7 up",
        ),
        _configured("interfaces: [br7]\n"),
        "interfaces: [eth7]\n",
    ),
    Trap(
        "can-reach",
        "can_reach of an address that is bound here",
        _sh(_VIP_ON_LO),
        _configured(f"interfaces: ['can_reach:{NETWORK}.254']\n"),
        "interfaces: ['can_reach:{vip}']\n",
        "warn",
    ),
    Trap("can-reach", "an Eip of OpenELB by its own address", _openelb),
    Trap("kube-proxy", "IPVS without strictARP", _ipvs, _restarted_kube_proxy),
    Trap("agent", "configured, not started", _sh(), config=_OF_ANOTHER),
    Trap("one-agent", "a guard left behind in another folder", _second_guard, config=_OF_ANOTHER),
    Trap("xdp", "native XDP on a veth", _sh(), _configured("datapath: auto\n"), "datapath: xdp\n", "warn"),
)


COLUMNS = ("TRAP", "SAID", "EXPECTED")


@dataclass(frozen=True, slots=True)
class Diagnosis(Step):
    """`nodes` is what the check said with the trap and after the fix, `expected` what it should."""

    def as_json(self) -> Json:
        """The step for machines."""
        before, after = self.nodes
        told = {"scenario": self.scenario, "step": self.step, "vip": self.vip, "before": before, "after": after}
        return told | {"expected": list(self.expected), "ok": self.ok, **self.facts}

    def cells(self) -> tuple[str, ...]:
        """The step as a table row under COLUMNS."""
        return self.step, ", then ".join(self.nodes), ", then ".join(self.expected)


def doctor(bench: Bench) -> Iterator[Step]:
    """All traps, one after the other."""
    for number, trap in enumerate(TRAPS, FIRST_WARD):
        course = treat(bench.lab, number, trap)
        yield Diagnosis(
            scenario="doctor",
            step=f"{trap.check}: {trap.what}",
            vip=f"{NETWORK}.{number + VIP_OFFSET}",
            expected=(trap.grade, "ok"),
            nodes=(course.before, course.after),
            ok=course.ok,
            facts={"seen": course.seen},
        )
