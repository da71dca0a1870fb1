"""Faults that have to come at one certain moment, with real agents and frames. docs/faults.md has the list."""

import signal
from collections.abc import Iterator

import pytest

from arpguard.units import NS_PER_S
from arpguard_lab.cluster.bench import KubeBench, Watch, now_ns, vip
from arpguard_lab.cluster.scene import a_bench
from arpguard_lab.cluster.servers import Fault
from arpguard_lab.cluster.topology import KubeLab
from arpguard_lab.topology import Host
from support.netns.cable import a_place
from support.netns.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

VIP = vip(50)
LEASE_S = 3
PATIENCE_S = 60
WRITES = 500  # more than both nodes write in two minutes


@pytest.fixture(scope="module")
def bench() -> Iterator[KubeBench]:
    """Two nodes; the VIP is bound on both, so that without the guard each kernel would answer."""
    with a_place("faults") as (folder, pin_root), KubeLab(2, folder, pin_root) as lab, a_bench(lab, "faults") as made:
        made.publish("web", [VIP])
        made.settle([VIP])
        made.bind_everywhere(VIP)
        yield made


@pytest.fixture(autouse=True)
def mended(bench) -> Iterator[None]:
    """Whatever a test that failed has left behind is no fault of the next."""
    yield
    for host in bench.nodes:
        bench.agent(host).send(signal.SIGCONT)
        bench.cordon(host, cordoned=False)
        bench.server.trouble(host, None)
    bench.settle([VIP], limit_s=PATIENCE_S)


def lease(bench: KubeBench, name: str) -> dict:
    return bench.server.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{bench.home}/leases/{name}")


def epoch(bench: KubeBench, host: Host) -> str:
    return lease(bench, f"node.{host.name}")["metadata"]["annotations"]["arpguard.io/epoch"]


def holder(bench: KubeBench) -> str:
    return lease(bench, f"vip.{VIP}")["spec"].get("holderIdentity", "")


def pass_time(watch: Watch, seconds: float) -> None:
    began_ns = now_ns()
    watch.wait(lambda: now_ns() - began_ns > seconds * NS_PER_S, PATIENCE_S, "time passes")


def one_by_one(watch: Watch) -> bool:
    facts = watch.facts()
    return bool(facts["never_two_at_once"] and facts["nothing_missed"])


def test_f2_agent_that_stood_still_for_two_leases_answers_only_after_it_claimed_anew(bench):
    owner = bench.owner(VIP)
    (other,) = bench.others(owner)
    with bench.watch([VIP]) as watch:
        bench.agent(owner).send(signal.SIGSTOP)
        bench.settle([VIP], among=[other], limit_s=PATIENCE_S)
        pass_time(watch, 2 * LEASE_S)
        went_on_ns = now_ns()
        bench.agent(owner).send(signal.SIGCONT)
        bench.cordon(other)
        watch.wait(lambda: watch.first(VIP, went_on_ns, other), PATIENCE_S, "it has the VIP again")
        assert holder(bench) == owner.name
        bench.cordon(other, cordoned=False)
    bench.check_against_journal(watch)
    assert one_by_one(watch), watch.facts()


def test_f3_node_that_stands_still_between_revoking_and_claiming_claims_nothing_later(bench):
    """The old owner is back before the new one goes on, and has the VIP again by then."""
    owner = bench.owner(VIP)
    (other,) = bench.others(owner)
    before = epoch(bench, owner)
    with bench.watch([VIP]) as watch:
        bench.server.trouble(other, Fault("hold", "vip."))
        bench.agent(owner).send(signal.SIGSTOP)
        until(lambda: epoch(bench, owner) != before, PATIENCE_S, "it is revoked")
        bench.agent(other).send(signal.SIGSTOP)
        assert holder(bench) == owner.name
        back_ns = now_ns()
        bench.agent(owner).send(signal.SIGCONT)
        watch.wait(lambda: watch.first(VIP, back_ns), PATIENCE_S, "it is answered for again")
        bench.server.trouble(other, None)
        bench.agent(other).send(signal.SIGCONT)
        pass_time(watch, 2 * LEASE_S)
        assert watch.first(VIP, back_ns, owner) is None
    bench.check_against_journal(watch)
    assert one_by_one(watch), watch.facts()


def test_f5_release_that_is_applied_three_leases_late_frees_nothing(bench):
    """It was given up, and the owner wanted the VIP again: it must have claimed anew before it answered."""
    owner = bench.owner(VIP)
    with bench.watch([VIP]) as watch:
        bench.server.trouble(owner, Fault("zombie", 3.0 * LEASE_S))
        began_ns, given_up = now_ns(), bench.agent(owner).said().count("given up: vip=")
        bench.cordon(owner)
        until(lambda: bench.agent(owner).said().count("given up: vip=") > given_up, PATIENCE_S, "its kernel was told")
        bench.cordon(owner, cordoned=False)
        bench.server.trouble(owner, None)
        watch.wait(lambda: watch.first(VIP, began_ns + NS_PER_S), PATIENCE_S, "it is answered for again")
        pass_time(watch, 4 * LEASE_S)
        assert holder(bench)
    bench.check_against_journal(watch)
    assert one_by_one(watch), watch.facts()


@pytest.mark.parametrize("restarts", [False, True], ids=["agents-run-on", "an-agent-restarts"])
def test_f9_backup_that_is_restored_after_a_lease_without_the_server_makes_nobody_answer_twice(bench, restarts):
    """It names the owner before the last one, and is so old that no watch shows anything for minutes.

    The agent of the owner before the last one may restart meanwhile: its kernel still has the epoch of the backup.
    """
    first = bench.owner(VIP)
    (second,) = bench.others(first)
    backup = bench.server.snapshot()
    bench.cordon(first)
    bench.settle([VIP], among=[second], limit_s=PATIENCE_S)
    bench.cordon(first, cordoned=False)
    for number in range(WRITES):
        bench.annotate("web", {"written": str(number)})
    with bench.watch([VIP]) as watch:
        bench.server.go_down()
        try:
            pass_time(watch, LEASE_S + 1)
            bench.server.restore(backup)
            if restarts:
                bench.agent(first).kill(signal.SIGKILL)
                bench.agent(first).start()
        finally:
            bench.server.come_back()
        for host in [second] if restarts else bench.nodes:
            agent = bench.agent(host)
            watch.wait(lambda agent=agent: agent.has_failed, PATIENCE_S, f"the agent of {host.name} ends")
            assert "etcd was restored from a backup" in agent.said()
            agent.start()  # as kubelet does
        back_ns = now_ns()
        watch.wait(lambda: watch.first(VIP, back_ns), PATIENCE_S, "it is answered for again")
        pass_time(watch, 2 * LEASE_S)
    assert one_by_one(watch), watch.facts()
    bench.settle([VIP], limit_s=PATIENCE_S)
