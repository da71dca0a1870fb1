"""`arpguard uninstall` beside the lab's API server: in which order things go, what is left, and what is said of it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from arpguard.cli.main import main
from arpguard.kube.claims import FINALIZER
from arpguard.runtime.cluster import uninstalling
from arpguard_lab.apiserver.embedded import running
from arpguard_lab.apiserver.server import Options
from arpguard_lab.cluster import objects
from support.kube.manifests import hooked, parsed
from support.kube.plain_http import MERGE
from support.netns.waiting import until
from support.repeating import repeated

HOME = NAME = "arpguard"
DAEMONSETS = f"/apis/apps/v1/namespaces/{HOME}/daemonsets"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
OF_ANOTHER = "example.org/kept"
WAIT_S = 20


@pytest.fixture(autouse=True)
def _late_by_less(monkeypatch):
    monkeypatch.setattr(uninstalling, "_LATE_S", 0.5)


@pytest.fixture
def server():
    """With the rights of the chart's hook."""
    with running(Options(rbac=[each for each in parsed(hooked()) if each["kind"].startswith("Role")])) as embedded:
        yield embedded


@pytest.fixture
def api(client):
    made = client()
    made.ask("POST", "/api/v1/namespaces", objects.namespace(HOME))
    return made


@pytest.fixture
def uninstall(server, tmp_path, capsys):
    path = tmp_path / "kubeconfig"

    def run(*words: str, account: str = "arpguard/arpguard-uninstall") -> tuple[int, str, str]:
        server.do(lambda it: it.write_kubeconfig(path, account or "admin", account))
        with pytest.raises(SystemExit) as caught:
            main(["uninstall", "--kubeconfig", str(path), *words])
        return caught.value.code, *capsys.readouterr()

    return run


def a_daemonset(api, *finalizers: str, pods: int = 3) -> None:
    """With a finalizer it stays for a while after it was deleted, as one does whose Pods have to end first."""
    made = objects.daemon_set(HOME, NAME)
    made["metadata"]["finalizers"] = list(finalizers)
    assert api.ask("POST", DAEMONSETS, made).code == 201
    api.ask("PATCH", f"{DAEMONSETS}/{NAME}/status", {"status": {"currentNumberScheduled": pods}}, MERGE)


def a_lease(api, name: str, *finalizers: str, duration_s: int = 1) -> None:
    metadata = {"name": name, "namespace": HOME, "finalizers": list(finalizers)}
    spec = {"leaseDurationSeconds": duration_s}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    assert api.ask("POST", LEASES, body).code == 201


def test_agents_that_clean_up_leave_nothing_to_tell(api, uninstall):
    a_daemonset(api)
    code, out, err = uninstall()

    assert (code, err) == (0, "DaemonSet arpguard/arpguard: waiting for its Pods to end\n")
    assert out.startswith(
        "the agents are gone; removed 0 Leases that they left\n"
        "now delete the rest of arpguard as you installed it: helm uninstall"
    )
    assert api.ask("GET", f"{DAEMONSETS}/{NAME}").code == 404


def test_what_agents_left_is_removed_once_they_are_gone_and_their_nodes_are_named(api, uninstall):
    a_daemonset(api, OF_ANOTHER)
    a_lease(api, "node.worker-1")
    a_lease(api, "vip.192.0.2.10", FINALIZER)
    a_lease(api, "vip.192.0.2.11", FINALIZER)
    a_lease(api, "somebody-else")
    seen = []

    def end_pods():
        until(lambda: "deletionTimestamp" in api.ask("GET", f"{DAEMONSETS}/{NAME}").body["metadata"], WAIT_S)
        seen.append(len(api.ask("GET", LEASES).names))
        api.ask("PATCH", f"{DAEMONSETS}/{NAME}", {"metadata": {"finalizers": None}}, MERGE)

    ending = threading.Thread(target=end_pods)
    ending.start()
    code, out, _ = uninstall()
    ending.join()

    assert code == 1
    assert seen == [4], "agents find their claims as long as they run"
    assert api.ask("GET", LEASES).names == ["somebody-else"]
    assert "removed 3 Leases that they left" in out
    assert "worker-1 may still have the guard, because the Lease of its agent is still there\n" in out
    assert out.splitlines()[-1] == "then remove the remaining guard: kubectl apply -k deploy/cleanup"


@contextmanager
def an_agent(api, node: str) -> Iterator[None]:
    """Renews a heartbeat."""
    a_lease(api, f"node.{node}")

    def renew() -> None:
        spec = {"spec": {"renewTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}}
        assert api.ask("PATCH", f"{LEASES}/node.{node}", spec, MERGE).code == 200

    with repeated(renew, 0.1):
        yield


@pytest.mark.parametrize("named", ["arpguard/arpguard", "arpguard/mistyped"])
def test_claims_of_agents_that_still_run_are_left_alone(named, api, uninstall):
    a_lease(api, "vip.192.0.2.10", FINALIZER)
    a_lease(api, "node.worker-2")
    with an_agent(api, "worker-1"):
        code, out, err = uninstall("--daemonset", named, account="")

    assert code == 1
    assert out.startswith("agents are still running on worker-1, so nothing was removed; ")
    assert "waiting 1.5 s to see whether any agent still renews its heartbeat" in err
    assert set(api.ask("GET", LEASES).names) == {"node.worker-1", "node.worker-2", "vip.192.0.2.10"}
    (claim,) = [item for item in api.ask("GET", LEASES).body["items"] if item["metadata"]["name"].startswith("vip.")]
    assert claim["metadata"]["finalizers"] == [FINALIZER]


def test_api_server_that_is_away_for_a_moment_is_waited_for(server, api, uninstall):
    a_daemonset(api, OF_ANOTHER)

    def restart():
        until(lambda: "deletionTimestamp" in api.ask("GET", f"{DAEMONSETS}/{NAME}").body["metadata"], WAIT_S)
        server.run(lambda it: it.go_down())
        time.sleep(1.5)  # it is asked each second
        server.run(lambda it: it.come_up())
        api.ask("PATCH", f"{DAEMONSETS}/{NAME}", {"metadata": {"finalizers": None}}, MERGE)

    restarting = threading.Thread(target=restart)
    restarting.start()
    code, out, _ = uninstall()
    restarting.join()

    assert (code, out.splitlines()[0]) == (0, "the agents are gone; removed 0 Leases that they left")


def test_finalizers_of_others_keep_a_lease(api, uninstall):
    a_daemonset(api)
    a_lease(api, "vip.192.0.2.10", FINALIZER, OF_ANOTHER)
    uninstall()

    (left,) = api.ask("GET", LEASES).body["items"]
    assert left["metadata"]["finalizers"] == [OF_ANOTHER]
    assert "deletionTimestamp" in left["metadata"]


def test_agents_that_do_not_end_keep_their_leases(api, uninstall):
    a_daemonset(api, OF_ANOTHER, pods=2)
    a_lease(api, "vip.192.0.2.10", FINALIZER)
    code, out, _ = uninstall("--timeout", "0.1")

    assert code == 1
    assert out == (
        "the agents did not stop in time (still present: 2 Pods). Check `kubectl -n arpguard get pods`, then run "
        "this command again\n"
    )
    assert api.ask("GET", LEASES).names == ["vip.192.0.2.10"]


def test_it_can_be_run_again(api, uninstall):
    a_lease(api, "vip.192.0.2.10", FINALIZER)
    assert uninstall()[0] == 0
    code, out, err = uninstall()

    assert (code, err) == (0, "DaemonSet arpguard/arpguard is already gone\n")
    assert "0 Leases" in out


def test_account_without_the_rights_is_told_which_it_needs(api, uninstall):
    a_daemonset(api)
    code, out, err = uninstall(account="arpguard/nobody")

    assert (code, out) == (3, "")
    assert "it must be allowed to get and delete the DaemonSet, and to list, patch and delete Leases" in err
    assert api.ask("GET", f"{DAEMONSETS}/{NAME}").code == 200


@pytest.mark.parametrize("name", ["arpguard", "/arpguard", "Arp/guard"])
def test_name_that_names_no_daemonset_exits_2(name, uninstall):
    code, _, err = uninstall("--daemonset", name)
    assert code == 2
    assert "expected NAMESPACE/NAME" in err
