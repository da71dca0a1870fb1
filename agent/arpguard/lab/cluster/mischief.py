"""What can be done to a lab's nodes, agents, networks, API server and kernel maps: the menu that rounds draw from.

Everything here may happen to a cluster by itself, but for tampering with the maps, which takes root: of that only what
closes the guard or claims a longer fence is on the menu, as whoever may write the maps can also open it.
"""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address
from random import Random

from arpguard.addresses import Address
from arpguard.lab.cluster.bench import KubeBench
from arpguard.lab.cluster.pods import Pods
from arpguard.lab.cluster.servers import Fault
from arpguard.lab.topology import Host, other_mac

_SPARE = IPv4Address("198.51.100.99")


@dataclass(frozen=True, slots=True)
class Deed:
    """Something to do at a time (seconds from the start of the round). `harm`: may fail; what mends is tried again."""

    at_s: float
    what: str
    do: Callable[[], None]
    harm: bool = True


class Mischief:
    """The menu, and the dice."""

    def __init__(self, bench: KubeBench, dice: Random, vips: Sequence[Address]) -> None:
        """`vips`: those that may lose their claims. The Service `local` has endpoints to move."""
        self._bench = bench
        self._dice = dice
        self._vips = list(vips)
        self._pods = Pods(bench)
        self._menu: list[tuple[int, Callable[[Host], list[Deed]]]] = [
            (3, self._kill),
            (2, self._restart),
            (3, self._hang),
            (3, self._partition),
            (2, self._split),
            (2, self._flap),
            (2, self._change_mac),
            (4, self._trouble),
            (2, self._restart_api),
            (3, self._keep_away),
            (2, self._delete_lease),
            (2, self._move_endpoints),
            (2, self._replace),
            (2, self._die),
            (2, self._tamper),
            (2, self._edit_config),
        ]

    def draw(self, hosts: Sequence[Host]) -> list[Deed]:
        """One thing for each of some nodes, with its end."""
        weights = [weight for weight, _ in self._menu]
        choices = [self._dice.choices(self._menu, weights)[0][1] for _ in hosts]
        return [deed for host, choose in zip(hosts, choices, strict=True) for deed in choose(host)]

    def _span(self, most_s: float) -> tuple[float, float]:
        begin = self._dice.uniform(0.0, 0.5)
        return begin, begin + self._dice.uniform(0.05, most_s)

    def _kill(self, host: Host) -> list[Deed]:
        begin, end = self._span(4.0)
        agent = self._bench.agent(host)
        return [
            Deed(begin, f"kill: {host.name}", partial(agent.kill, signal.SIGKILL)),
            Deed(end, "start", agent.start, harm=False),
        ]

    def _hang(self, host: Host) -> list[Deed]:
        begin, end = self._span(5.0)
        agent = self._bench.agent(host)
        return [
            Deed(begin, f"hang: {host.name}", partial(agent.send, signal.SIGSTOP)),
            Deed(end, "go on", partial(agent.send, signal.SIGCONT), harm=False),
        ]

    def _partition(self, host: Host) -> list[Deed]:
        begin, end = self._span(5.0)
        lab = self._bench.lab
        return [
            Deed(begin, f"partition: {host.name}", partial(lab.cut_off, host)),
            Deed(end, "reconnect", partial(lab.reconnect, host), harm=False),
        ]

    def _trouble(self, host: Host) -> list[Deed]:
        begin, end = self._span(4.0)
        server = self._bench.server
        fault = self._dice.choice(server.faults)
        return [
            Deed(begin, f"api {fault.name}: {host.name}", partial(self._set_trouble, host, fault)),
            Deed(end, "api well", partial(self._set_trouble, host, None), harm=False),
        ]

    def _set_trouble(self, host: Host, fault: Fault | None) -> None:
        self._bench.server.trouble(host, fault)

    def _restart_api(self, _host: Host) -> list[Deed]:
        begin, end = self._span(2.5)
        server = self._bench.server
        return [
            Deed(begin, "api restart: all", server.go_down),
            Deed(end, "api back", server.come_back, harm=False),
        ]

    def _keep_away(self, host: Host) -> list[Deed]:
        begin, end = self._span(3.0)
        bench = self._bench
        ways: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
            ("cordon", partial(bench.cordon, host), partial(bench.cordon, host, cordoned=False)),
            ("not ready", partial(bench.set_ready, host, ready=False), partial(bench.set_ready, host, ready=True)),
            ("exclude", partial(bench.exclude, host), partial(bench.exclude, host, excluded=False)),
        ]
        text, do, undo = self._dice.choice(ways)
        return [Deed(begin, f"{text}: {host.name}", do), Deed(end, "put back", undo, harm=False)]

    def _delete_lease(self, host: Host) -> list[Deed]:
        begin, _ = self._span(0.5)
        names = [f"vip.{self._dice.choice(self._vips)}", f"node.{self._bench.server.node_name(host)}"]
        name = self._dice.choice(names)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._bench.home}/leases/{name}"
        return [
            Deed(begin, f"delete {name.partition('.')[0]} lease: {name}", partial(self._bench.server.api.delete, path))
        ]

    def _move_endpoints(self, _host: Host) -> list[Deed]:
        begin, _ = self._span(0.5)
        chosen = self._dice.sample(self._bench.nodes, k=self._dice.randint(1, len(self._bench.nodes)))
        ready = {each: each in chosen for each in self._bench.nodes}
        return [Deed(begin, "endpoints: moved", partial(self._bench.endpoints, "local", ready), harm=False)]

    def _replace(self, host: Host) -> list[Deed]:
        begin, end = self._span(4.0)
        return [
            Deed(begin, f"replace: {host.name}", partial(self._pods.end, host)),
            Deed(end, "new pod", partial(self._begin_pod, host), harm=False),
        ]

    def _begin_pod(self, host: Host) -> None:
        if self._bench.agent(host).pid is None:
            self._pods.begin(host)

    def _die(self, host: Host) -> list[Deed]:
        begin, end = self._span(5.0)
        lab, agent = self._bench.lab, self._bench.agent(host)
        return [
            Deed(begin, f"node dies: {host.name}", partial(lab.pull, host)),
            Deed(begin, f"kill: {host.name}", partial(agent.kill, signal.SIGKILL)),
            Deed(end, "plug in", partial(lab.plug_in, host), harm=False),
            Deed(end, "start", agent.start, harm=False),
        ]

    def _restart(self, host: Host) -> list[Deed]:
        begin, _ = self._span(0.5)
        agent = self._bench.agent(host)
        return [
            Deed(begin, f"restart: {host.name}", partial(agent.kill, signal.SIGTERM)),
            Deed(begin, "start", agent.start, harm=False),
        ]

    def _split(self, host: Host) -> list[Deed]:
        begin, end = self._span(5.0)
        lab = self._bench.lab
        return [
            Deed(begin, f"split: {host.name}", partial(lab.split_off, host)),
            Deed(end, "join", partial(lab.rejoin, host), harm=False),
        ]

    def _flap(self, host: Host) -> list[Deed]:
        lab, begin = self._bench.lab, self._dice.uniform(0.0, 0.5)
        ways = [(lab.unplug, lab.replug, "unplug"), (lab.link_down, lab.link_up, "link down")]
        down, up, what = self._dice.choice(ways)
        deeds = []
        for _ in range(self._dice.randint(1, 4)):
            end = begin + self._dice.uniform(0.02, 1.5)
            deeds += [
                Deed(begin, f"{what}: {host.name}", partial(down, host)),
                Deed(end, "link up", partial(up, host), harm=False),
            ]
            begin = end + self._dice.uniform(0.02, 0.5)
        return deeds

    def _change_mac(self, host: Host) -> list[Deed]:
        begin, end = self._span(4.0)
        lab = self._bench.lab
        return [
            Deed(begin, f"mac change: {host.name}", partial(lab.set_mac, host, other_mac(host.mac))),
            Deed(end, "mac back", partial(lab.set_mac, host, host.mac), harm=False),
        ]

    def _tamper(self, host: Host) -> list[Deed]:
        begin, _ = self._span(0.5)
        agent = self._bench.agent(host)
        what, do = self._dice.choice(
            [
                ("fence far ahead", agent.put_fence_far_ahead),
                ("another epoch", agent.change_epoch),
                ("owned entries closed", agent.close_entries),
            ]
        )
        return [Deed(begin, f"map {what}: {host.name}", do)]

    def _edit_config(self, _host: Host) -> list[Deed]:
        begin, end = self._span(3.0)
        bench = self._bench
        what, text = self._dice.choice(
            [
                ("lease of 4 s", bench.config(extra="lease: {duration: 4s, renew: 1s, margin: 1s}")),
                ("one more VIP", bench.config(extra=f"vips: [{{address: {_SPARE}, owner: external}}]")),
                ("no YAML", "mode: [enforce"),
                ("unknown setting", bench.config(extra="modes: {enforce: true}")),
            ]
        )
        return [
            Deed(begin, f"config {what}: all", partial(bench.configure, text)),
            Deed(end, "config back", partial(bench.configure, bench.config()), harm=False),
        ]
