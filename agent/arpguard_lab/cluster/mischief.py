"""What can be done to a lab's nodes, agents, networks, API server and kernel maps: the menu that rounds draw from.

Everything here may happen to a cluster by itself, but for tampering with the maps, which takes root (tampering.py).
What is drawn depends on the dice and on names alone: what a round does is known without doing it.
"""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address
from random import Random

from arpguard.addresses import Address
from arpguard_lab.cluster.bench import KubeBench
from arpguard_lab.cluster.meddling import Meddler, Way
from arpguard_lab.cluster.pods import Pods
from arpguard_lab.cluster.tampering import CLOSING, OPENING, Observing, Opening
from arpguard_lab.cluster.topology import KubeAgent
from arpguard_lab.topology import Host, other_mac

_SPARE = IPv4Address("198.51.100.99")
_PERIOD_S = 0.1
# What a node does whose clock is slow by 1/12 while the others' are fast by as much (chrony's greatest rates), told by
# their clocks: seconds last 13/11 as long, so it renews each 1.18 s, and its fence is 2 s * 13/11 = 3 s - 636 ms ahead.
_SLOW_CLOCK = "duration: 3s, renew: 1180ms, margin: 636ms"


@dataclass(frozen=True, slots=True)
class Deed:
    """Something to do at a time (seconds from the start of the round). `harm`: may fail; the repair is tried again."""

    at_s: float
    what: str
    do: Callable[[], None]
    harm: bool = True


def _for_a_time(
    span: tuple[float, float], what: str, do: Callable[[], None], end_what: str, undo: Callable[[], None]
) -> list[Deed]:
    """Some harm, and its repair at the end."""
    begin, end = span
    return [Deed(begin, what, do), Deed(end, end_what, undo, harm=False)]


class Mischief:
    """The menu, and the dice."""

    def __init__(
        self, bench: KubeBench, dice: Random, vips: Sequence[Address], pods: Pods, meddler: Meddler | None = None
    ) -> None:
        """`vips`: those that may lose their claims. The Service `local` has endpoints to move.

        `meddler`: of the frames of vouching, where nodes vouch for each other.
        """
        self._bench = bench
        self._dice = dice
        self._vips = list(vips)
        self._pods = pods
        self._vouching = bench.lease

        self._menu: list[tuple[int, Callable[[Host], list[Deed]]]] = [
            (3, self._kill),
            (2, self._restart),
            (3, self._hang),
            (1, self._starve),
            (4, self._partition),
            (3, self._split),
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
            (3, self._open),
            (3, self._edit_config),
            (1, self._observe),
            (2, self._slow_clock),
        ]
        if meddler is not None:
            self._menu.append((8, partial(self._meddle, meddler)))

    def draw(self, hosts: Sequence[Host]) -> list[Deed]:
        """One thing for each of some nodes, with its end."""
        weights = [weight for weight, _ in self._menu]
        choices = [self._dice.choices(self._menu, weights)[0][1] for _ in hosts]
        return [deed for host, choose in zip(hosts, choices, strict=True) for deed in choose(host)]

    def _span(self, most_s: float) -> tuple[float, float]:
        begin = self._dice.uniform(0.0, 0.5)
        return begin, begin + self._dice.uniform(0.05, most_s)

    def _kill(self, host: Host) -> list[Deed]:
        agent = self._bench.agent(host)
        return self._for_a_while(host.name, 4.0, "start", [("kill", partial(agent.kill, signal.SIGKILL), agent.start)])

    def _hang(self, host: Host) -> list[Deed]:
        agent = self._bench.agent(host)
        stop, go_on = partial(agent.send, signal.SIGSTOP), partial(agent.send, signal.SIGCONT)
        return self._for_a_while(host.name, 5.0, "continue", [("hang", stop, go_on)])

    def _starve(self, host: Host) -> list[Deed]:
        """A tenth of a CPU, as cgroups give it (cpu.max): the process stands still for the rest of each period."""
        begin, end = self._span(4.0)
        agent = self._bench.agent(host)
        stop, go_on = partial(agent.send, signal.SIGSTOP), partial(agent.send, signal.SIGCONT)
        deeds = [Deed(begin, f"starve: {host.name}", stop)]
        for number in range(1, round((end - begin) / _PERIOD_S)):
            at_s = begin + number * _PERIOD_S
            deeds += [
                Deed(at_s, "a turn", go_on, harm=False),
                Deed(at_s + _PERIOD_S / 10, "its end", stop, harm=False),
            ]
        return [*deeds, Deed(end + _PERIOD_S, "continue", go_on, harm=False)]

    def _partition(self, host: Host) -> list[Deed]:
        lab, port = self._bench.lab, self._bench.lab.management_port(host)
        ways: list[_Way] = [
            ("partition", partial(lab.cut_off, host), partial(lab.reconnect, host)),
            ("partition, requests lost", partial(lab.mute, port), partial(lab.restore, port)),
            ("partition, answers lost", partial(lab.deafen, port), partial(lab.restore, port)),
            ("partition, 10 % lost", partial(lab.lose, port, 10), partial(lab.lose_nothing, port)),
            ("partition, half lost", partial(lab.lose, port, 50), partial(lab.lose_nothing, port)),
        ]
        return self._for_a_while(host.name, 5.0, "reconnect", ways)

    def _for_a_while(self, who: str, most_s: float, end_text: str, ways: "Sequence[_Way]") -> list[Deed]:
        span = self._span(most_s)
        text, do, undo = self._dice.choice(ways) if len(ways) > 1 else ways[0]
        return _for_a_time(span, f"{text}: {who}", do, end_text, undo)

    def _trouble(self, host: Host) -> list[Deed]:
        trouble = partial(self._bench.server.trouble, host)
        ways = [
            (f"api {fault.name}", partial(trouble, fault), partial(trouble, None))
            for fault in self._bench.server.faults
        ]
        return self._for_a_while(host.name, 4.0, "api well", ways)

    def _restart_api(self, _host: Host) -> list[Deed]:
        server = self._bench.server
        return self._for_a_while("all", 2.5, "api back", [("api restart", server.go_down, server.come_back)])

    def _keep_away(self, host: Host) -> list[Deed]:
        bench = self._bench
        ways: list[_Way] = [
            ("cordon", partial(bench.cordon, host), partial(bench.cordon, host, cordoned=False)),
            ("not ready", partial(bench.set_ready, host, ready=False), partial(bench.set_ready, host, ready=True)),
            ("exclude", partial(bench.exclude, host), partial(bench.exclude, host, excluded=False)),
        ]
        return self._for_a_while(host.name, 3.0, "put back", ways)

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
        return [Deed(begin, "endpoints: moved", partial(self._bench.endpoints, "local", ready))]

    def _replace(self, host: Host) -> list[Deed]:
        end, begin = partial(self._pods.end, host), partial(self._begin_pod, host)
        return self._for_a_while(host.name, 4.0, "new pod", [("replace", end, begin)])

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
        """From everybody on the LAN, both ways or one, or all nodes from each other; the API server is in reach."""
        lab, nodes = self._bench.lab, self._bench.nodes
        ways: list[_Way] = [
            ("split", partial(lab.split_off, host), partial(lab.rejoin, host)),
            ("split, deaf", partial(lab.deafen, host.port), partial(lab.restore, host.port)),
            ("split, mute", partial(lab.mute, host.port), partial(lab.restore, host.port)),
            ("split, all nodes from each other", partial(lab.part, nodes), partial(lab.heal, nodes)),
        ]
        return self._for_a_while(host.name, 5.0, "join", ways)

    def _meddle(self, meddler: Meddler, host: Host) -> list[Deed]:
        ways = [(f"vouching {way.text}", partial(meddler.begin, host, way), partial(meddler.end, host)) for way in Way]
        return self._for_a_while(host.name, 5.0, "vouching well", ways)

    def _flap(self, host: Host) -> list[Deed]:
        lab, begin = self._bench.lab, self._dice.uniform(0.0, 0.5)
        ways = [(lab.unplug, lab.replug, "unplug"), (lab.link_down, lab.link_up, "link down")]
        down, up, what = self._dice.choice(ways)
        deeds = []
        for _ in range(self._dice.randint(1, 4)):
            end = begin + self._dice.uniform(0.02, 1.5)
            deeds += _for_a_time(
                (begin, end), f"{what}: {host.name}", partial(down, host), "link up", partial(up, host)
            )
            begin = end + self._dice.uniform(0.02, 0.5)
        return deeds

    def _change_mac(self, host: Host) -> list[Deed]:
        change, other = partial(self._bench.lab.set_mac, host), other_mac(host.mac)
        way = "mac change", partial(change, other), partial(change, host.mac)
        return self._for_a_while(host.name, 4.0, "mac back", [way])

    def _tamper(self, host: Host) -> list[Deed]:
        begin, _ = self._span(0.5)
        what = self._dice.choice([*CLOSING])
        return [Deed(begin, f"map {what}: {host.name}", partial(CLOSING[what], self._bench.agent(host)))]

    def _open(self, host: Host) -> list[Deed]:
        ways = [
            (f"map {what}", opening.do, opening.undo)
            for what, tamper in OPENING.items()
            for opening in [Opening(self._bench, host, self._vips, tamper)]
        ]
        return self._for_a_while(host.name, 0.5, "whole again", ways)

    def _edit_config(self, _host: Host) -> list[Deed]:
        bench = self._bench
        edits = {
            "lease of 4 s": bench.config(lease=f"duration: 4s, renew: 1s, margin: 1s, {self._vouching}"),
            "lease of 2 s": bench.config(lease=f"duration: 2s, renew: 500ms, margin: 700ms, {self._vouching}"),
            "one more link": bench.config(interfaces="[eth0, mgmt0]"),
            "links by pattern": bench.config(interfaces="['e*']"),
            "one more VIP": bench.config(extra=f"vips: [{{address: {_SPARE}, owner: external}}]"),
            "no YAML": "mode: [enforce",
            "unknown setting": bench.config(extra="modes: {enforce: true}"),
        }
        back = partial(bench.configure, bench.config())
        ways = [(f"config {what}", partial(bench.configure, text), back) for what, text in edits.items()]
        return self._for_a_while("all", 3.0, "config back", ways)

    def _observe(self, _host: Host) -> list[Deed]:
        observing = Observing(self._bench)
        return self._for_a_while("all", 3.0, "config enforce", [("config observe", observing.do, observing.undo)])

    def _slow_clock(self, host: Host) -> list[Deed]:
        """Its agent starts again with the times of a slow clock, and falls silent later."""
        begin, _ = self._span(0.5)
        silent = begin + self._dice.uniform(2.0, 5.0)
        end = silent + self._dice.uniform(0.5, 4.0)
        lab, agent = self._bench.lab, self._bench.agent(host)

        ways: list[_Way] = [
            ("hang", partial(agent.send, signal.SIGSTOP), partial(agent.send, signal.SIGCONT)),
            ("partition", partial(lab.cut_off, host), partial(lab.reconnect, host)),
            ("kill", partial(agent.kill, signal.SIGKILL), agent.start),
        ]
        text, do, undo = self._dice.choice(ways)

        return [
            Deed(begin, f"slow clock: {host.name}", partial(self._restart_as, agent, _SLOW_CLOCK)),
            Deed(silent, f"slow clock, then {text}: {host.name}", do),
            Deed(end, "end of it", undo, harm=False),
            Deed(end, "clock right", partial(self._restart_as, agent, ""), harm=False),
        ]

    def _restart_as(self, agent: KubeAgent, clock: str) -> None:
        """With a lease of its own, or (empty) with that of the ConfigMap."""
        agent.kill(signal.SIGTERM)
        agent.follows = not clock
        agent.configure(self._bench.config(lease=f"{clock}, {self._vouching}" if clock else None))
        agent.start()


_Way = tuple[str, Callable[[], None], Callable[[], None]]  # what it is, how it begins, how it ends
