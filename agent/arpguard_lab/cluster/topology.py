"""The lab's Ethernet, and a second network beside it, on which the nodes reach the API server.

       node-1            node-2            node-3                 api
      203.0.113.1       203.0.113.2       203.0.113.3         203.0.113.254
          | mgmt0           | mgmt0           | mgmt0              | mgmt0
    ------+-----------------+-----------------+--------------------+------  br1, in the switch's namespace

So a node can be cut off from the API server while its VIPs are still asked for on eth0, and the other way round.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from arpguard.addresses import Address, MacAddress
from arpguard.clock import boot_ns
from arpguard.core.vouching.trials import TRIAL_VARIABLE
from arpguard.dataplane import loader
from arpguard.dataplane.maps import ControlValue, EntryTable, read_grants, read_totals
from arpguard.dataplane.syscall import Fd
from arpguard.model import NodeControl
from arpguard.verdict import Kind, Mode, Reason
from arpguard_lab.cluster.loss import lose
from arpguard_lab.cluster.traces import Traces
from arpguard_lab.netns import Netns
from arpguard_lab.topology import AgentProcess, Ethernet, Host, Lab

MANAGEMENT = "203.0.113"
API_NUMBER = 254
API_ADDRESS = f"{MANAGEMENT}.{API_NUMBER}"
API_PORT = 6443
CONFIGMAP = "arpguard"
DAEMONSET = "arpguard"
TRIAL_MS = 3000  # that nodes try each other before one vouches for the other, and not a minute
_POD_NAMES = ("NODE_NAME", "POD_NAME", "POD_NAMESPACE", "DAEMONSET_NAME", "KUBECONFIG")


class KubeAgent(AgentProcess):
    """An agent that follows an API server; `pod` names the Pod that it claims to be, if any.

    With `follows` False it takes its configuration from its own file, and not from the ConfigMap. `code`: the folder of
    another version's modules, "" for these. `traces`: where it leaves its trace of the claim protocol, if it does.
    """

    def __init__(self, host: Host, folder: Path, pin_dir: Path) -> None:
        super().__init__(host, folder, pin_dir)
        self.node = host.name
        self.namespace = ""
        self.kubeconfig = folder / f"{host.name}.kubeconfig"
        self.pod = ""
        self.follows = True
        self.code = ""
        self.traces: Traces | None = None

    def words(self) -> list[str]:
        """Its command line."""
        words = [sys.executable, "-m", "arpguard", "agent", "--config", str(self.config), "--node-name", self.node]
        words += ["--configmap", f"{self.namespace}/{CONFIGMAP}"] if self.follows else []
        words += ["--standby"] if self.pod else []
        if self.traces is not None and self.follows and not self.code:
            words += ["--trace", str(self.traces.file_for(self.node))]
        return [*words, "--kubeconfig", str(self.kubeconfig)]

    def environment(self) -> dict[str, str]:
        """Its environment: as in the DaemonSet's Pods, if it is to be one."""
        own = {name: text for name, text in os.environ.items() if name not in _POD_NAMES}
        own |= {"NODE_NAME": self.node, "POD_NAMESPACE": self.namespace}
        own |= {TRIAL_VARIABLE: str(TRIAL_MS)}
        own |= {"TMPDIR": str(self.config.parent)}  # who is killed leaves its files there
        if self.code:
            own |= {"PYTHONPATH": self.code}
        if self.pod:
            own |= {"POD_NAME": self.pod, "DAEMONSET_NAME": DAEMONSET}
        return own

    def cpu_s(self) -> float:
        """Seconds of CPU that it has used (proc(5), stat)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_kb(self, kind: str = "VmRSS") -> int:
        """Resident memory in kilobytes; "RssAnon" is that without pages of files (proc(5), status)."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{kind}:"))

    def is_pinned(self) -> bool:
        """Whether anything of it is still in the kernel's file system."""
        return self.pin_dir.exists() and any(self.pin_dir.iterdir())

    def table(self) -> EntryTable:
        """The pinned entries."""
        maps = loader.open_maps(self.pin_dir)
        return EntryTable(maps["entries"], maps["counters"])

    def control(self) -> ControlValue:
        """The pinned control value."""
        return ControlValue(loader.open_maps(self.pin_dir)["control"])

    def forget_entries(self) -> None:
        """Empties the pinned maps of an agent that is stopped, and leaves the programs."""
        if self.is_pinned():
            table = self.table()
            table.delete(list(table.read().entries))
            self.control().write(NodeControl(mode=Mode.OBSERVE, generation=0))

    def answers_counted(self) -> int:
        """How many frames its programs have answered, by their own counters."""
        tally, *_ = read_totals(loader.open_maps(self.pin_dir)["totals"])
        return sum(tally.enforced.get(reason, 0) for reason in (Reason.ANSWERED, Reason.ANSWERED_THIRD_PARTY))

    def fence_ns(self) -> int:
        """Until when the kernel answers (boot clock); 0 where it has no lease."""
        control = self.control().read()
        return control.fence_ns if control else 0

    def is_bound(self) -> bool:
        """Whether its kernel answers before its voucher's fence only, and that lies ahead."""
        maps = loader.open_maps(self.pin_dir)
        control, grants = ControlValue(maps["control"]).read(), read_grants(maps["grants"])
        return control is not None and grants.binds(control.term) and grants.fence_ns > boot_ns()

    def owned(self) -> list[Address]:
        """What its kernel answers for until the fence."""
        ours = [key.vip for key, entry in self.table().read().entries.items() if entry.kind is Kind.OWNED]
        return ours if self.fence_ns() > boot_ns() else []

    def mode(self) -> Mode | None:
        """What its kernel has to do; None where it has nothing that can be read."""
        control = self.control().read()
        return control.mode if control else None

    def remove_guard(self) -> None:
        """Detaches and unpins it, as `arpguard cleanup` does."""
        self.host.netns.arpguard("cleanup", "--pin-dir", str(self.pin_dir))


class KubeLab(Lab):
    """A lab whose nodes reach an API server over a network of its own."""

    def __init__(
        self,
        nodes: int,
        folder: Path,
        pin_root: Path,
        others: Sequence[tuple[str, int]] = (),
        ethernet: Ethernet | None = None,
    ) -> None:
        super().__init__(nodes, folder, pin_root, others, ethernet or Ethernet())
        self.pin_root = pin_root
        self.api: Netns
        self.guards: dict[str, KubeAgent] = {}
        self._losses: dict[str, list[Fd]] = {}
        self.traces: Traces | None = None

    def trace(self, traces: Traces) -> None:
        """From now on each agent that is started leaves a trace, and the API server its journal."""
        self.traces = traces
        for guard in self.guards.values():
            guard.traces = traces

    def successor(self, host: Host) -> KubeAgent:
        """A second agent for a node, over the same pins, with a folder of its own as each Pod has."""
        before = self.guards[host.name]
        folder = self.folder / f"{host.name}-{len(self.agents)}"
        folder.mkdir()
        agent = KubeAgent(host, folder, before.pin_dir)
        agent.node, agent.namespace, agent.kubeconfig = before.node, before.namespace, before.kubeconfig
        agent.traces = before.traces
        self.agents.append(agent)
        return agent

    def number(self, host: Host) -> int:
        """The last byte of a host's addresses."""
        return host.address.packed[-1]

    def _build(self) -> None:
        super()._build()
        self.switch.batch(["link add br1 type bridge forward_delay 0 mcast_snooping 0", "link set br1 up"])
        self.api = self.namespace("api")

        for netns, number in [*((host.netns, self.number(host)) for host in self.nodes), (self.api, API_NUMBER)]:
            self.switch.batch(
                [
                    f"link add mgmt{number} type veth peer name mgmt0 netns {netns.name}",
                    f"link set mgmt{number} master br1 up",
                ]
            )
            netns.batch(["link set mgmt0 up", f"addr add {MANAGEMENT}.{number}/24 dev mgmt0"])

        for host in self.nodes:
            guard = KubeAgent(host, self.folder, self.pin_root / host.name)
            self.guards[host.name] = guard
            self.agents.append(guard)

    def _remove(self) -> None:
        for agent in self.agents:
            agent.send(signal.SIGCONT)
        super()._remove()

    def cut_off(self, host: Host) -> None:
        """From now on what the node sends to the API server goes nowhere, and nothing comes back. Its link stays up."""
        self.switch.batch([f"link set mgmt{self.number(host)} nomaster"])

    def reconnect(self, host: Host) -> None:
        """The end of `cut_off`."""
        self.switch.batch([f"link set mgmt{self.number(host)} master br1"])

    def split_off(self, host: Host) -> None:
        """Parts the node from the others and the clients, and leaves its link up and the API server in reach."""
        self.switch.batch([f"link set port{self.number(host)} nomaster"])

    def rejoin(self, host: Host) -> None:
        """The end of `split_off`."""
        self.switch.batch([f"link set port{self.number(host)} master br0"])

    def mute(self, port: str) -> None:
        """From now on the switch drops all that comes in at a port, and still sends to it (bridge(8), `locked`)."""
        self.switch.batch([f"link set {port} type bridge_slave learning off locked on fdb_flush"])

    def deafen(self, port: str) -> None:
        """From now on the switch sends nothing to a port, and still takes what comes in."""
        floods = "flood off mcast_flood off bcast_flood off"
        self.switch.batch([f"link set {port} type bridge_slave learning off {floods} fdb_flush"])

    def restore(self, port: str) -> None:
        """The end of `mute` and of `deafen`."""
        floods = "flood on mcast_flood on bcast_flood on"
        self.switch.batch([f"link set {port} type bridge_slave learning on locked off {floods}"])

    def lose(self, port: str, percent: int) -> None:
        """From now on so many frames of a hundred are lost at a port of the switch, each way."""
        self._losses[port] = self.switch.call(lambda: lose(port, percent))

    def lose_nothing(self, port: str) -> None:
        """The end of `lose`."""
        for link in self._losses.pop(port, []):
            link.close()

    def management_port(self, host: Host) -> str:
        """Where the switch has the node's way to the API server."""
        return f"mgmt{self.number(host)}"

    def unplug(self, host: Host) -> None:
        """Takes the carrier from eth0."""
        self.switch.batch([f"link set port{self.number(host)} down"])

    def replug(self, host: Host) -> None:
        """The end of `unplug`."""
        self.switch.batch([f"link set port{self.number(host)} up"])

    def link_down(self, host: Host) -> None:
        """Sets eth0 down, as an administrator does."""
        host.netns.batch(["link set eth0 down"])

    def link_up(self, host: Host) -> None:
        """The end of `link_down`; IPv6 addresses do not outlive that (keep_addr_on_down, ip-sysctl)."""
        again = [f"addr replace {host.address6}/64 dev eth0"] if self.has_ipv6 else []
        host.netns.batch(["link set eth0 up", *again])

    def set_mac(self, host: Host, mac: MacAddress) -> None:
        """Gives eth0 another MAC address."""
        host.netns.batch([f"link set eth0 address {mac}"])

    def put_right(self, host: Host) -> None:
        """The end of all that was done to the node's links."""
        self.plug_in(host)
        self.reconnect(host)
        self.rejoin(host)
        self.heal([host])
        for port in (host.port, self.management_port(host)):
            self.restore(port)
            self.lose_nothing(port)
        self.set_mac(host, host.mac)
        self.link_up(host)

    def pull(self, host: Host) -> None:
        """Takes the node off both networks: its ports go down."""
        number = self.number(host)
        self.switch.batch([f"link set port{number} down", f"link set mgmt{number} down"])

    def plug_in(self, host: Host) -> None:
        """The end of `pull`."""
        number = self.number(host)
        self.switch.batch([f"link set port{number} up", f"link set mgmt{number} up"])
