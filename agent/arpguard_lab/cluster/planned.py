"""What is done on purpose, and must hardly be felt: drains, updates, edits of the configuration, moving endpoints."""

import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address

from arpguard.clock import boot_ns
from arpguard_lab.asking import EVER_NS, FEW_ADDRESSES, answered_by
from arpguard_lab.bench import Bounded, Step
from arpguard_lab.capture import Said
from arpguard_lab.cluster.bench import AT_THE_FENCE_NS, KubeBench, Watch, ms, now_ns, vip
from arpguard_lab.cluster.pods import Pods
from arpguard_lab.cluster.topology import CONFIGMAP
from arpguard_lab.cluster.yardstick import Yardstick
from arpguard_lab.oracle import Spread
from arpguard_lab.topology import Host

GAP_MS = 50
GAP_WRITES = 8  # where the machine is busy: a hand-over is two writes and an event, each with work at both its ends
CRASH_MS = 3000  # for how long VIPs are silent at most when their node dies
_UNFIT_S = 2.0
_PATIENCE_S = 10.0
_VIP = vip(50)
_VIPS = [vip(50 + number) for number in range(3)]
_METRICS_PORT = 9469


def run_drain(bench: KubeBench) -> Iterator[Step]:
    """Asks the owner to give its VIP up, in every way there is."""
    bench.set_out(_VIP)

    ways: list[tuple[str, Callable[[Host], None], Callable[[Host], None]]] = [
        ("cordoned", bench.cordon, partial(bench.cordon, cordoned=False)),
        ("not ready", partial(bench.set_ready, ready=False), partial(bench.set_ready, ready=True)),
        ("excluded", bench.exclude, partial(bench.exclude, excluded=False)),
    ]

    with _moves(bench) as moves:
        for text, do, undo in ways:
            owner = bench.owner(_VIP)
            yield moves.move(f"{owner.name} is {text}", owner, partial(do, owner), bench.others(owner))
            undo(owner)
            bench.settle_evenly([_VIP])

    yield moves.verdict("all drains")


def run_etp_local(bench: KubeBench) -> Iterator[Step]:
    """Moves the ready endpoints of a Service with externalTrafficPolicy Local."""
    first, second, *others = bench.nodes
    none = dict.fromkeys(bench.nodes, False)

    bench.publish("local", [_VIP], local=True)
    bench.endpoints("local", {**none, first: True})
    bench.settle([_VIP], among=[first])
    bench.bind_everywhere(_VIP)
    yield bench.ask(f"a ready endpoint on {first.name} only", _VIP, [first])

    with _moves(bench) as moves:
        ready = {**none, second: True}
        yield moves.move(
            f"the ready endpoint moves to {second.name}", first, partial(bench.endpoints, "local", ready), [second]
        )
        bench.endpoints("local", none)
        bench.until(lambda: not bench.who(_VIP)[_VIP], _PATIENCE_S, "no node answers")
        yield bench.ask("no ready endpoint: no node answers", _VIP, [])
        told = bench.until(lambda: bench.events("Service", "local"), _PATIENCE_S, "an Event on the Service")
        yield bench.ask("and an Event on the Service says so", _VIP, [], event_after_ms=round(told * 1000))

        back = {**none, (others or [first])[0]: True}
        bench.endpoints("local", back)
        bench.settle([_VIP], among=[(others or [first])[0]])
        yield bench.ask("a ready endpoint on another node", _VIP, [(others or [first])[0]])

    yield moves.verdict("all moves")


@dataclass
class _Moves:
    """Hand-overs of a VIP, each measured."""

    bench: KubeBench
    watch: Watch
    yardstick: Yardstick
    gaps_ms: list[int] = field(default_factory=list)

    def move(self, text: str, owner: Host, action: Callable[[], None], among: list[Host]) -> Step:
        """Does something that makes the owner hand its VIP over to one of some nodes.

        The gap is in bounds if it is as short as it is on a machine that has nothing else to do, or no longer than a
        few writes to the API server took at that time.
        """
        began_ns = now_ns()

        action()
        self.watch.wait(
            lambda: self.watch.first(_VIP, began_ns, owner), _PATIENCE_S, f"another node answers for {_VIP}"
        )

        first, last = self.watch.first(_VIP, began_ns, owner), self.watch.last(_VIP, owner)
        gap_ms = ms(first.time_ns - last.time_ns) if first and last else None
        if gap_ms is not None:
            self.gaps_ms.append(gap_ms)
        write_ms = self.yardstick.worst_ms(began_ns)

        return self.bench.one_of(
            text,
            _VIP,
            among,
            [first.mac] if first else [],
            gap_ms=Bounded(gap_ms, max(GAP_MS, GAP_WRITES * write_ms), "gap_in_bounds"),
            write_ms=write_ms,
            moved_after_ms=ms(first.time_ns - began_ns) if first else None,
        )

    def verdict(self, text: str) -> Step:
        """That none of it was overlapped; for when the watch is over."""
        self.bench.check_against_journal(self.watch)
        return self.bench.one_answers(
            f"{text}: at most one node answered at any moment",
            _VIP,
            hand_overs=len(self.gaps_ms),
            worst_gap_ms=max(self.gaps_ms, default=None),
            **self.watch.facts(),
        )


@contextmanager
def _moves(bench: KubeBench) -> Iterator[_Moves]:
    with Yardstick(bench.server.api, bench.home) as yardstick, bench.watch([_VIP]) as watch:
        yield _Moves(bench, watch, yardstick)


def run_rolling_update(bench: KubeBench) -> Iterator[Step]:
    """Replaces the agents as a DaemonSet's controller does, then kills one, then deletes the DaemonSet."""
    pods = Pods(bench)
    bench.set_out(*_VIPS)

    with bench.watch(_VIPS) as watch:
        for host in bench.nodes:
            pods.replace(host)
        bench.settle(_VIPS)
        time.sleep(1.0)
    yield _none_lost(bench, watch, "every agent replaced, one after the other", dict.fromkeys(_VIPS, EVER_NS))

    bench.settle_evenly(_VIPS)
    with bench.watch(_VIPS) as watch:
        owner = bench.owner(_VIPS[0])
        agent, owned = bench.agent(owner), bench.owned(_VIPS, owner)
        agent.kill(signal.SIGKILL)
        fence_ns, ahead_ns = agent.fence_ns(), now_ns() - boot_ns()
        agent.start()
        in_time = False
        while not in_time and boot_ns() < fence_ns:
            time.sleep(0.01)
            in_time = agent.fence_ns() > fence_ns > boot_ns()
        agent.wait_for()
        time.sleep(3.0)
    end_ns = EVER_NS if in_time else fence_ns + ahead_ns - AT_THE_FENCE_NS  # what comes after it is not promised
    until_ns = {vip: end_ns if vip in owned else EVER_NS for vip in _VIPS}
    yield _none_lost(bench, watch, f"the agent of {owner.name} killed and started again at once", until_ns)

    bench.unbind_everywhere(*_VIPS)
    pods.delete_daemon_set()
    for host in bench.nodes[:-1]:
        pods.end(host)

    keeper = bench.nodes[-1]
    bench.settle(_VIPS, among=[keeper])
    yield bench.ask("DaemonSet deleted: the last agent gets all VIPs", _VIPS[0], [keeper])
    pods.end(keeper)
    pinned = [host.name for host in bench.nodes if bench.agent(host).is_pinned()]
    yield bench.ask(
        "the last agent stops: no node answers", _VIPS[0], [], still_pinned=len(pinned), unpinned=not pinned
    )


def run_bad_image(bench: KubeBench) -> Iterator[Step]:
    """Rolls an update out whose agents do not start; then deletes a Pod, and the next one never comes."""
    pods = Pods(bench)
    bench.set_out(*_VIPS)

    with bench.watch(_VIPS) as watch:
        owner = bench.owner(_VIPS[0])
        following = pods.surge(owner)
        following.kill(signal.SIGKILL)  # as a container that fails while it starts
        time.sleep(_UNFIT_S)
        pods.discard(following)

    until_ns = dict.fromkeys(_VIPS, EVER_NS)
    yield _none_lost(bench, watch, "the next agent does not start: the node keeps answering", until_ns)
    with bench.watch(_VIPS) as watch:
        ended_ns = now_ns()
        pods.end(owner)
        watch.wait(lambda: watch.first(_VIPS[0], ended_ns, owner), _PATIENCE_S, "another node answers")
        bench.settle(_VIPS, among=bench.others(owner))

    bench.check_against_journal(watch)
    silence_ms = max(watch.stream.silence(each).length_ms for each in _VIPS)
    yield bench.one_answers(
        f"the Pod of {owner.name} is deleted, and no new one starts: another node answers",
        _VIPS[0],
        bench.others(owner),
        longest_silence_ms=Bounded(silence_ms, CRASH_MS, "as_after_a_crash"),
        **watch.facts(),
    )


def _none_lost(bench: KubeBench, watch: Watch, text: str, until_ns: Mapping[IPv4Address, int]) -> Step:
    """`until_ns`: the wall-clock time after which a VIP may be asked for in vain."""
    bench.check_against_journal(watch)
    lost = sum(watch.stream.lost(each, until_ns=end_ns) for each, end_ns in until_ns.items())
    longest_ms = max(watch.stream.silence(each).length_ms for each in _VIPS)
    return bench.one_answers(
        text,
        _VIPS[0],
        lost=lost,
        longest_silence_ms=longest_ms,
        none_lost=lost == 0,
        **watch.facts(),
    )


def run_toggle(bench: KubeBench) -> Iterator[Step]:
    """Edits the ConfigMap: observe, enforce, and something that is not a mode."""
    bench.set_out(_VIP)
    owner = bench.owner(_VIP)
    pids = {host: bench.agent(host).pid for host in bench.nodes}

    with bench.watch([_VIP], interval_s=0.004, addresses=FEW_ADDRESSES) as watch:
        yield bench.ask("mode enforce", _VIP, [owner])

        wrote_ns = now_ns()
        bench.configure(bench.config("observe"))
        everybody = {host.mac for host in bench.nodes}
        watch.wait(
            lambda: answered_by(watch.said, _VIP, wrote_ns) == everybody, _PATIENCE_S, "every node's kernel answers"
        )
        firsts = [said.time_ns - wrote_ns for host in bench.nodes if (said := _first_of(watch, host, wrote_ns))]
        observed = Spread.of(firsts)

        yield bench.ask(
            "mode observe: every frame passes, all nodes answer",
            _VIP,
            bench.nodes,
            followed_worst_ms=Bounded(observed.worst_ms, 1000, "within_1_s"),
        )

        wrote_ns = now_ns()
        bench.configure(bench.config("enforce"))
        bench.until(lambda: bench.who(_VIP)[_VIP] == [owner.mac], _PATIENCE_S, "one node answers")
        time.sleep(0.5)
        watch.poll()
        lasts = [said.time_ns - wrote_ns for host in bench.others(owner) if (said := watch.last(_VIP, host, wrote_ns))]
        enforced = Spread.of(lasts)

        yield bench.ask(
            "mode enforce again: one node answers",
            _VIP,
            [owner],
            followed_worst_ms=Bounded(enforced.worst_ms or 0, 1000, "within_1_s"),
        )

        bench.configure("mode: nonsense\n")
        told_s = bench.until(lambda: bench.events("ConfigMap", CONFIGMAP), _PATIENCE_S, "an Event on the ConfigMap")
        bench.until(
            lambda: all(_complains(bench, host) for host in bench.nodes), _PATIENCE_S, "status reports the mistake"
        )
        metrics = [host for host in bench.nodes if _config_problem(host)]
        yield bench.ask(
            "a wrong edit: the last good configuration stays; an Event, the metric and status report the mistake",
            _VIP,
            [owner],
            event_after_ms=round(told_s * 1000),
            metric_on_nodes=len(metrics),
            metric_tells=len(metrics) == len(bench.nodes),
        )

        bench.configure(bench.config())
        bench.until(lambda: not any(map(_config_problem, bench.nodes)), _PATIENCE_S, "the problem is over")

    same = all(bench.agent(host).pid == pids[host] for host in bench.nodes)
    silence = watch.stream.silence(_VIP)
    lost = watch.stream.lost(_VIP)

    yield bench.ask(
        "no agent was restarted, and no request was lost",
        _VIP,
        [owner],
        requests=watch.stream.sent,
        lost=lost,
        none_lost=lost == 0,
        longest_silence_ms=silence.length_ms,
        not_started_again=same,
        nothing_missed=watch.drops == 0,
    )


def _first_of(watch: Watch, host: Host, since_ns: int) -> Said | None:
    return next((said for said in watch.said if said.time_ns >= since_ns and said.mac == host.mac), None)


def _complains(bench: KubeBench, host: Host) -> bool:
    """Whether the node's status names a problem of the configuration."""
    return "nonsense" in str(bench.status(host))


def _config_problem(host: Host) -> bool:
    """The node's metric arpguard_config_problems."""
    text = host.netns.call(_metrics)
    rows = [line for line in text.splitlines() if line.startswith("arpguard_config_problems ")]
    return bool(rows) and float(rows[0].split()[-1]) > 0


def _metrics() -> str:
    with closing(socket.create_connection(("127.0.0.1", _METRICS_PORT), 5.0)) as opened:
        opened.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        parts = []
        while part := opened.recv(1 << 16):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")
