"""What the scenarios of vouching share: VIPs that are answered for, nodes that are bound to each other, verdicts."""

import json
import time
from collections.abc import Iterator, Sequence
from random import Random

from arpguard.addresses import Address
from arpguard.config.model import VouchingProfile
from arpguard_lab.asking import EVER_NS
from arpguard_lab.bench import Step
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.bench import KubeBench, Watch, vip
from arpguard_lab.topology import Host

LEASE = "vouching: {profile: default}"
VIPS = [vip(50 + number) for number in range(12)]
PATIENCE_S = 15.0

_BOUND_S = 180.0  # 3 to 40 s on an idle machine; on a busy one, trials may start over
_PAIR = 2
_VOUCHERS, _VOUCHING, _LINKS = (f"{objects.PREFIX}{name}" for name in ("vouchers", "vouching", "links"))
_FIRST = vip(70)


def lease_of(seed: int) -> str:
    """Settings for random rounds: each profile has its seeds."""
    profile = Random(f"profile {seed}").choice(list(VouchingProfile))  # noqa: S311 - no secret
    return f"vouching: {{profile: {profile.value}}}"


def begin(bench: KubeBench) -> Iterator[Step]:
    """VIPs that are answered for, and nodes that are bound to each other."""
    until_all_publish(bench)
    bench.set_out(*VIPS)
    took_s = until_bound(bench)
    yield bench.ask("every node is vouched for", VIPS[0], [bench.owner(VIPS[0])], bound_after_s=took_s)


def until_all_publish(bench: KubeBench) -> None:
    """Waits until every node says on which links it may own VIPs; until then it gets none.

    Others would have those that it should have, and hand them over a minute later.
    """
    bench.publish("first", [_FIRST])
    bench.until(lambda: _publishing(bench) == len(bench.nodes), PATIENCE_S, "every node publishes its links")


def _publishing(bench: KubeBench) -> int:
    return sum(json.loads(each.get(_LINKS, "[]")) != [] for each in _notes(bench).values())


def until_bound(bench: KubeBench, hosts: Sequence[Host] = (), limit_s: float = _BOUND_S) -> int:
    """Waits until some nodes, or all, are bound to the vouchers that they keep; returns for how many seconds."""
    began = time.monotonic()
    bench.until(
        lambda: _all_bound(bench, hosts or bench.nodes), limit_s, "nodes are vouched for", lambda: _bonds(bench)
    )
    return round(time.monotonic() - began)


def _bonds(bench: KubeBench) -> str:
    """Whether each node's kernel is bound, and what its heartbeat says of vouching."""
    notes = _notes(bench)
    return "; ".join(_bond(bench, host, notes.get(f"node.{bench.server.node_name(host)}", {})) for host in bench.nodes)


def _bond(bench: KubeBench, host: Host, said: dict[str, str]) -> str:
    state = "bound" if bench.agent(host).is_bound() else "not bound"
    return f"{host.name}, {state}, says {said.get(_VOUCHERS, '{}')} {said.get(_VOUCHING, '{}')}"


def _all_bound(bench: KubeBench, hosts: Sequence[Host]) -> bool:
    """Whether all are bound, and no two of them to each other: of such two one leaves, if a third node takes part."""
    notes, named = _notes(bench), vouchers(bench)
    if not all(host in named and bench.agent(host).is_bound() for host in hosts):
        return False
    takes_part = [name for name, each in notes.items() if name.startswith("node.") and _VOUCHING in each]
    is_paired = any(named.get(voucher) is host for host, voucher in named.items() if host in hosts)
    return len(takes_part) <= _PAIR or not is_paired


def vouchers(bench: KubeBench) -> dict[Host, Host]:
    """The nodes whose heartbeats name a voucher, and whom."""
    hosts = {bench.server.node_name(host): host for host in bench.nodes}
    notes = _notes(bench)
    texts = {host: notes.get(f"node.{name}", {}).get(_VOUCHERS, "{}") for name, host in hosts.items()}
    named = {host: json.loads(text).get("vouchers", []) for host, text in texts.items()}
    return {host: hosts[each[0]["node"]] for host, each in named.items() if each}


def is_doubted(bench: KubeBench, host: Host) -> bool:
    """Whether a node's heartbeat says that others may not hear it."""
    notes = _notes(bench).get(f"node.{bench.server.node_name(host)}", {})
    return bool(json.loads(notes.get(_VOUCHING, "{}")).get("doubted"))


def _notes(bench: KubeBench) -> dict[str, dict[str, str]]:
    """The annotations of Leases, by name."""
    leases = bench.server.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{bench.home}/leases")["items"]
    return {item["metadata"]["name"]: item["metadata"].get("annotations", {}) for item in leases}


def voucher_of(bench: KubeBench, host: Host) -> Host:
    """The node that a node's heartbeat names."""
    return vouchers(bench)[host]


def an_owner(bench: KubeBench, among: Sequence[Host] = ()) -> Host:
    """A node, of some or of all, that answers for VIPs."""
    return next(host for host in among or bench.nodes if bench.owned(VIPS, host))


def none_lost(bench: KubeBench, watch: Watch, text: str, vips: Sequence[Address] = (), /, **facts: object) -> Step:
    """A verdict with the bar that no request for some VIPs, or for any, was lost; for when the watch is over."""
    return verdict(bench, watch, text, **losses(watch, vips or VIPS), **facts)


def losses(watch: Watch, vips: Sequence[Address]) -> dict[str, object]:
    """How many requests for some VIPs were lost, with the bar that none was; for when the watch is over."""
    lost = sum(watch.stream.lost(each, until_ns=EVER_NS) for each in vips)
    longest_ms = max((watch.stream.silence(each).length_ms for each in vips), default=0)
    return {"lost": lost, "longest_silence_ms": longest_ms, "none_lost": lost == 0}


def verdict(bench: KubeBench, watch: Watch, text: str, **facts: object) -> Step:
    """The last step of a watch: the bars, and the whole record."""
    bench.check_against_journal(watch)
    return bench.one_answers(text, VIPS[0], **facts, **watch.facts())
