"""`arpguard lab --kubernetes` against an API server that is given to it, without kube-controller-manager."""

import json
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from arpguard_lab.apiserver.embedded import running
from arpguard_lab.apiserver.faults import Delay
from arpguard_lab.apiserver.paths import WRITES
from arpguard_lab.apiserver.resources import NAMESPACES, NODES, PODS, SERVICES
from arpguard_lab.apiserver.server import Options
from arpguard_lab.cluster import objects
from support.lab.run import LabRun, as_expected, kubernetes_run

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

LIMIT_S = 600
SLOW_S = 0.1
VIP = "198.51.100.50"
LISTS = (NAMESPACES, NODES, SERVICES, PODS)


@pytest.fixture
def given(tmp_path, monkeypatch):
    with running(Options(bare=True)) as server:
        server.do(lambda it: it.write_kubeconfig(tmp_path / "kubeconfig", "admin"))
        monkeypatch.setenv("ARPGUARD_TEST_KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield server


@contextmanager
def a_run(folder: Path, *scenarios: str):
    folder.mkdir()
    words = [word for name in scenarios for word in ("--scenario", name)]
    with kubernetes_run(folder, "--nodes", "2", *words) as run:
        yield run


def steps(run: LabRun) -> list[dict]:
    out, err = run.process.communicate(timeout=LIMIT_S)
    assert err == ""
    return json.loads(out)


def names(server) -> list[str]:
    return server.do(lambda it: sorted(name for each in LISTS for _, name in it.store.table(each).live))


def test_two_labs_that_announce_the_same_address_do_not_mind_each_other(given, tmp_path):
    """Each on Services of its own, whoever made them first."""
    before = names(given)
    with ExitStack() as stack:
        runs = [stack.enter_context(a_run(tmp_path / name, "follow-kube-vip")) for name in ("a", "b")]
        for run in runs:
            assert [step for step in steps(run) if not as_expected(step)] == []
    assert names(given) == before


def test_a_service_in_the_way_is_named(given, tmp_path):
    for body in (objects.namespace("shop"), objects.service("shop", "old", [VIP], {"owner": "follow"})):
        given.do(lambda it, body=body: it.put(body))
    with a_run(tmp_path / "lab", "node-ip") as run:
        (step,) = steps(run)
    assert run.process.returncode == 1
    assert "`kubectl -n shop delete service old`" in step["error"]


def test_a_hand_over_is_judged_by_what_a_write_takes_there(given, tmp_path):
    given.do(lambda it: it.fault(delay=tuple(Delay(SLOW_S, verb) for verb in sorted(WRITES))))
    with a_run(tmp_path / "lab", "drain") as run:
        found = steps(run)
    wrong = [step for step in found if not as_expected(step)]
    assert not wrong, json.dumps(wrong, indent=1)
    moved = [step for step in found if "gap_ms" in step]
    assert len(moved) == 3
    assert all(step["gap_ms"] > 1000 * SLOW_S and step["write_ms"] >= 1000 * SLOW_S for step in moved)
