"""What three agents tell of the cluster that they are in: by the API, as metrics, and at the command line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from api.apitools import Api, an_api
from arpguard.v1 import agent_pb2 as pb
from arpguard_lab.cluster.bench import OFF, KubeBench, vip
from arpguard_lab.cluster.scene import a_bench
from arpguard_lab.cluster.servers import Fault
from arpguard_lab.cluster.topology import KubeAgent, KubeLab
from arpguard_lab.topology import Host
from support.cli import make_pki, tls_flags
from support.netns.cable import a_place
from support.netns.waiting import HUNG_S, until

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

WEB, SHOP, ANOTHER = vip(150), vip(151), vip(152)
VIPS = [WEB, SHOP, ANOTHER]
OUTSIDE = IPv4Address("10.9.9.9")
LEASE = f"duration: 15s, renew: 3s, margin: 4s, {OFF}"  # an agent may stand still without losing its VIPs


class Served(KubeAgent):
    """An agent that others can ask, too."""

    pki = Path()

    @property
    def own_settings(self) -> str:
        pki = self.pki
        tls = f"cert: {pki}/server.pem, key: {pki}/server.key, client_ca: {pki}/ours.pem"
        listen = f'"{self.api}", "127.0.0.1:50051", "{self.host.address}:50051"'
        return f"bpf: {{pin_dir: {self.pin_dir}}}\ngrpc: {{listen: [{listen}], tls: {{{tls}}}}}\n"


class ServedLab(KubeLab):
    """A lab of such agents."""

    def _build(self) -> None:
        super()._build()
        for guard in self.guards.values():
            guard.__class__ = Served


@pytest.fixture(scope="module")
def pki(tmp_path_factory) -> Path:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def bench(pki) -> Iterator[KubeBench]:
    """Three nodes, an elected VIP for each of three Services, and one that is outside the ranges."""
    Served.pki = pki
    with (
        a_place("cluster") as (folder, pin_root),
        ServedLab(3, folder, pin_root) as lab,
        a_bench(lab, "shown", lease=LEASE) as made,
    ):
        for number, address in enumerate(VIPS):
            made.publish(f"web-{number}", [address])
        made.publish("outside", [OUTSIDE])
        made.settle_evenly(VIPS)
        yield made


@pytest.fixture(scope="module")
def first(bench) -> Host:
    return bench.nodes[0]


@pytest.fixture(scope="module")
def api(bench, first) -> Iterator[Api]:
    with an_api(bench.agent(first)) as made:
        yield made


@pytest.fixture(scope="module")
def run(bench, first) -> Callable[..., tuple[int, str, str]]:
    """A command on the first node; exit code, output and errors."""

    def command(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [*first.netns.prefix(), sys.executable, "-m", "arpguard", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=HUNG_S,
            env={**os.environ, "ARPGUARD_ADDRESS": bench.agent(first).api},
        )
        return done.returncode, done.stdout, done.stderr

    return command


@pytest.fixture(scope="module")
def everywhere(pki) -> list[str]:
    return ["--all-nodes", *tls_flags(pki)]


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# ---- the API -----------------------------------------------------------------------------------------------------


def test_status_tells_what_is_followed_and_who_is_there(api, bench):
    status = api.GetStatus()
    found = status.kubernetes

    assert found.state == pb.Kubernetes.STATE_FOLLOWING
    assert (found.server, found.namespace) == ("https://203.0.113.254:6443", bench.home)
    assert [source.name for source in found.sources] == ["configmaps", "leases", "nodes", "services"]
    assert all(source.lists >= 1 and source.streams >= 1 and not source.lost for source in found.sources)
    assert [(node.name, node.alive, node.refusal) for node in found.nodes] == [
        (host.name, True, "") for host in bench.nodes
    ]
    assert [list(node.addresses) for node in found.nodes] == [[str(host.address)] for host in bench.nodes]
    assert status.config.source == "ConfigMap arpguard/arpguard"


def test_status_tells_of_the_lease(api):
    status = api.GetStatus()
    writes = {(row.kind, row.outcome): row.count for row in status.kubernetes.writes}

    assert writes["heartbeat", "applied"] > 1
    assert (status.kubernetes.renewal_problem, status.kubernetes.yielding) == ("", False)
    assert status.lease == pb.Lease(
        duration={"seconds": 15}, renew_interval={"seconds": 3}, margin={"seconds": 4}, stretched=False
    )
    until(
        lambda: api.GetStatus().kubernetes.renewal_time.ToNanoseconds() > status.kubernetes.renewal_time.ToNanoseconds()
    )


def test_vip_tells_its_service_and_who_has_it(api, bench):
    owner = bench.owner(WEB)
    (found,) = api.GetVip(address=str(WEB)).vips

    assert (found.source, found.owner) == (f"service {bench.home}/web-0", "elect")
    assert (found.claim.holder, found.claim.state, found.claim.alive) == (owner.name, pb.Claim.STATE_VALID, True)
    assert {vip.address: vip.source for vip in api.ListVips().vips}[str(SHOP)] == f"service {bench.home}/web-1"


def test_claims_epoch_is_that_of_the_owners_entry(bench):
    owner = bench.owner(WEB)
    with an_api(bench.agent(owner)) as owners:
        (found,) = owners.GetVip(address=str(WEB)).vips
        assert (found.kind, found.epoch, found.claim.holder) == (pb.KIND_OWNED, found.claim.epoch, owner.name)


def test_every_node_explains_an_elected_vip_alike(bench):
    owner, stories = bench.owner(WEB), []
    for host in bench.nodes:
        with an_api(bench.agent(host)) as node:
            stories.append(node.ExplainVip(address=str(WEB)).links[0].ownership)

    for story in stories:
        assert story.source == f"service {bench.home}/web-0"
        assert (story.claim.holder, story.claim.state) == (owner.name, pb.Claim.STATE_VALID)
        assert [candidate.node for candidate in story.candidates if candidate.chosen] == [owner.name]
        assert list(story.candidates) == list(stories[0].candidates)
        assert f"{owner.name} renews its lease in time" in story.steps


def test_node_that_may_not_own_it_is_named_with_the_reason(api, bench):
    away = next(host for host in bench.nodes[1:] if host != bench.owner(WEB))
    bench.exclude(away)
    try:
        refused = f"{away.name} cannot own the VIP: {EXCLUDED}"
        until(lambda: refused in api.ExplainVip(address=str(WEB)).links[0].ownership.steps)
        story = api.ExplainVip(address=str(WEB)).links[0].ownership
        assert (story.candidates[-1].node, story.candidates[-1].eligible) == (away.name, False)
        assert {node.name: node.refusal for node in api.GetStatus().kubernetes.nodes}[away.name] == EXCLUDED
    finally:
        bench.exclude(away, excluded=False)
        bench.settle_evenly(VIPS)


EXCLUDED = "excluded by the label node.kubernetes.io/exclude-from-external-load-balancers"


@pytest.mark.parametrize("address", [OUTSIDE, "198.51.100.2", "198.51.100.99"], ids=["range", "node", "nobody"])
def test_address_that_is_not_guarded_is_explained(address, api, bench):
    words = {
        str(OUTSIDE): f"service {bench.home}/outside has this address, but it is in none of the configuration's",
        "198.51.100.2": "198.51.100.2 is the address of node node-2: guarding it would cut the node off",
        "198.51.100.99": "nothing in ConfigMap arpguard/arpguard makes 198.51.100.99 a VIP, and no Service has",
    }[str(address)]
    (story,) = api.ExplainVip(address=str(address)).links

    assert any(step.startswith(words) for step in story.ownership.steps), story.ownership.steps
    assert (story.ownership.source, story.HasField("entry"), story.ownership.HasField("claim")) == ("", False, False)


# ---- health, metrics ---------------------------------------------------------------------------------------------


def test_lost_api_server_is_told_of_and_does_not_make_the_whole_unhealthy(api, bench, first):
    """A liveness probe must not end an agent that guards on."""
    assert api.status_of("kubernetes") == "SERVING"
    bench.lab.cut_off(first)
    try:
        until(lambda: api.status_of("kubernetes") == "NOT_SERVING", 30)
        assert [api.status_of(name) for name in ("", "dataplane", "config")] == ["SERVING"] * 3
        until(lambda: api.GetStatus().kubernetes.renewal_problem, 30)
        others = bench.nodes[1]
        with an_api(bench.agent(others)) as other:
            until(lambda: not {node.name: node.alive for node in other.GetStatus().kubernetes.nodes}[first.name], 30)
    finally:
        bench.lab.reconnect(first)
    until(lambda: api.status_of("kubernetes") == "SERVING", 30)
    begin_all_streams_anew(api, bench, first)
    bench.settle_evenly(VIPS)


def begin_all_streams_anew(api: Api, bench: KubeBench, host: Host) -> None:
    """Otherwise one that the agent has not missed yet may be lost up to 25 s later (TCP_USER_TIMEOUT)."""

    def streams() -> dict[str, int]:
        sources = api.GetStatus().kubernetes.sources
        return {source.name: source.streams for source in sources if not source.lost}

    before = {source.name: source.streams for source in api.GetStatus().kubernetes.sources}
    bench.server.trouble(host, Fault("cut"))
    bench.server.trouble(host, None)
    until(lambda: all(streams().get(name, 0) > count for name, count in before.items()), 30, "all streams are new")


def test_metrics_are_of_this_cluster(bench, first):
    def scrape() -> dict[str, str]:
        text = first.netns.run("curl", "-s", "http://127.0.0.1:9469/metrics")
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))

    until(lambda: float(scrape()["arpguard_vips_held"]) == len(bench.owned(VIPS, first)))
    found = scrape()
    assert float(found["arpguard_kubernetes_complete"]) == 1
    assert float(found['arpguard_kubernetes_source_up{resource="services"}']) == 1
    assert float(found["arpguard_nodes_alive"]) == float(found["arpguard_nodes"]) == 3
    assert float(found["arpguard_renewal_age_seconds"]) < 30


def test_metrics_vips_and_explain_name_the_same_service_and_the_same_owner(bench, run):
    rows = {row[0]: row for row in cells(run("vips", "-o", "wide")[1])}
    assert rows["VIP"][4:6] == ["OWNER", "SERVICE"]
    for number, address in enumerate(VIPS):
        owner = bench.owner(address)
        labels = {"vip": str(address), "node": owner.name, "service": f"web-{number}", "namespace": bench.home}
        shown = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
        assert f"arpguard_vip_owner{{{shown}}} 1.0" in owner.netns.run("curl", "-s", "http://127.0.0.1:9469/metrics")

        service = f"{bench.home}/web-{number}"
        assert rows[str(address)][4:6] == [owner.name, service]
        with an_api(bench.agent(owner)) as node:
            story = node.ExplainVip(address=str(address)).links[0].ownership
        assert (story.source, story.claim.holder) == (f"service {service}", owner.name)
        assert f"service {service} makes {address} a VIP" in " ".join(run("explain", str(address))[1].split())


# ---- the command line --------------------------------------------------------------------------------------------


def test_status_page_has_the_cluster_on_it(run):
    _, out, _ = run("status")

    assert "kubernetes  following https://203.0.113.254:6443, Leases in namespace arpguard" in out.splitlines()
    assert "nodes       3 of 3 nodes alive" in out.splitlines()
    assert ["services", "ok"] in [row[:2] for row in cells(out)]


def test_vips_page_names_the_nodes_that_have_them(run, bench):
    rows = {row[0]: row[4] for row in cells(run("vips")[1])[1:]}

    assert rows == {str(address): bench.owner(address).name for address in VIPS}


def test_all_nodes_are_asked_at_once(run, bench, everywhere):
    code, out, err = run("status", *everywhere)

    assert (code, err) == (1, ""), "the Service outside the ranges is a problem"
    assert [row[:3] for row in cells(out)[1:4]] == [[host.name, "enforce", "following"] for host in bench.nodes]
    assert sum(int(row[-4]) for row in cells(out)[1:4]) == len(VIPS)


def test_vip_is_owned_on_one_node_of_all(run, bench, everywhere):
    code, out, err = run("vips", str(WEB), *everywhere)
    rows = {row[1]: row[3] for row in cells(out)[1:]}

    assert (code, err) == (0, "")
    assert rows == {host.name: "owned" if host == bench.owner(WEB) else "foreign" for host in bench.nodes}


def test_document_has_an_item_for_each_node(run, bench, everywhere):
    code, out, _ = run("explain", str(WEB), "-o", "json", *everywhere)
    found = json.loads(out)["nodes"]

    assert code == 0
    assert [item["node"] for item in found] == [host.name for host in bench.nodes]
    assert {item["links"][0]["ownership"]["claim"]["holder"] for item in found} == {bench.owner(WEB).name}
    assert found[1]["target"] == f"{bench.nodes[1].address}:50051"
    code, out, _ = run("conflicts", *everywhere)
    assert (code, out.splitlines()[0]) == (0, "no claim by another host has been heard since the agent started")
    code, out, err = run("audit", str(WEB), *everywhere)
    assert (code, err, out.splitlines()[-1]) == (0, "", "1 VIP: only the owner answers")
    assert [line.split()[:2] for line in out.splitlines()[1:4]] == [[host.name, str(WEB)] for host in bench.nodes]


def test_other_agents_take_mutual_tls_only(run):
    code, out, err = run("status", "--all-nodes")

    assert (code, out) == (2, "")
    assert "--tls-ca: missing: --all-nodes asks the other nodes' agents over the network" in err


def test_node_that_cannot_be_reached_is_shown_and_keeps_no_answer_away(run, bench, everywhere):
    last = bench.nodes[-1]
    bench.lab.pull(last)
    try:
        code, out, err = run("vips", str(WEB), "--timeout", "20", *everywhere)
        assert (code, err) == (3, "")
        assert [row[1] for row in cells(out)[1:3]] == [host.name for host in bench.nodes[:2]]
        assert out.splitlines()[4].startswith(f"{last.name}: ")
        found = json.loads(run("vips", "-o", "json", "--timeout", "20", *everywhere)[1])["nodes"]
        assert [bool(item["error"]) for item in found] == [False, False, True]
    finally:
        bench.lab.plug_in(last)
        bench.settle_evenly(VIPS)


def test_where_no_other_agent_listens_the_remedy_is_told(run, everywhere):
    code, out, err = run("status", "--port", "50059", *everywhere)

    assert code == 3
    assert out.splitlines()[1].startswith("node-1 ")
    assert "cannot reach the other nodes' agents: an agent serves other machines only if its `grpc.listen` names" in err


def test_agent_that_is_unknown_to_the_certificate_is_refused(run, pki):
    code, out, _ = run("status", "--all-nodes", *tls_flags(pki, name="other.example"))

    assert code == 3
    assert "no TLS connection" in out


def test_reachable_without_this_nodes_socket(run, bench, pki):
    """From a machine of the operator's: the first agent by mutual TLS, too."""
    target = f"{bench.nodes[1].address}:50051"
    code, out, _ = run("conflicts", "--address", target, "--all-nodes", *tls_flags(pki))

    assert (code, out.splitlines()[0]) == (0, "no claim by another host has been heard since the agent started")
