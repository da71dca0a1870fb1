"""What tests order of the lab's server: each fault hits whom it is meant for, and nobody else."""

import asyncio
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from http.client import HTTPConnection

import pytest
import yaml
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config
from kubernetes.aio import client as aio_client
from kubernetes.aio import config as aio_config

from arpguard.errors import ConfigError, ListenError
from arpguard.kube.client import Client
from arpguard.kube.connecting import find_access
from arpguard.kube.execing import PodCommand, execute
from arpguard_lab.apiserver import store
from arpguard_lab.apiserver.embedded import running
from arpguard_lab.apiserver.execing import Kubelets, _run
from arpguard_lab.apiserver.faults import Delay
from arpguard_lab.apiserver.server import ApiServer, Options
from arpguard_lab.cluster import objects
from support.kube.manifests import tool
from support.kube.plain_http import MERGE, STRATEGIC, Api, counted
from support.netns.waiting import HUNG_S

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SHORT_S = 2.0
LONG_S = 3.0  # longer than requests take on a busy machine
LOST = (ConnectionError, TimeoutError, ssl.SSLError, OSError)


def a_lease(name="a", holder="n", **metadata) -> dict:
    return {"metadata": {"name": name, **metadata}, "spec": {"holderIdentity": holder}}


def until(condition, patience_s=10):
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.01)


def put(server, **lease) -> dict:
    return server.do(lambda it: it.put({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **a_lease(**lease)}))


def fault(server, name="*", **faults) -> None:
    server.do(lambda it: it.fault(name, **faults))


def known_to(server):
    """Makes clients of a server by name."""

    def make(name="admin", **changes) -> Api:
        server.do(lambda it: it.add_client(name))
        return Api(server.do(lambda it: it.kubeconfig(name)), **changes)

    return make


@pytest.fixture
def plain():
    with running(Options(tls=False)) as server:
        yield server, known_to(server)


# Stalls, cuts, delays


def test_a_stalled_client_gets_no_answer_until_it_is_over_and_others_do(server, client):
    fault(server, "one", stall=True)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(client("one").ask, "POST", LEASES, a_lease())
        with pytest.raises(TimeoutError):
            client("one", patience_s=SHORT_S).ask("GET", LEASES)
        assert client("two").ask("GET", LEASES).names == []
        fault(server, "one")
        assert waiting.result().code == 201


def test_a_request_that_was_given_up_during_a_stall_is_not_done(server, client):
    fault(server, "one", stall=True)
    with pytest.raises(TimeoutError):
        client("one", patience_s=SHORT_S).ask("POST", LEASES, a_lease())
    until(lambda: server.do(lambda it: counted(it.counters, "one", code=0)) == 1)
    fault(server)
    assert client("one").ask("GET", LEASES).names == []


def test_a_cut_resets_open_connections_and_new_ones_until_it_is_over(plain):
    server, client = plain  # Python's TLS shows a reset as an end
    one, two = client("one"), client("two")
    with one.watch(LEASES) as cut, two.watch(LEASES) as other:
        fault(server, "one", cut=True)
        with pytest.raises(ConnectionResetError):
            cut.next()
        with pytest.raises(ConnectionResetError):
            one.ask("GET", LEASES)
        put(server)
        assert other.next()["type"] == "ADDED"
    fault(server, "one")
    assert one.ask("GET", LEASES).code == 200


def test_a_delay_is_for_a_verb_and_a_resource(server, client):
    fault(server, delay=(Delay(LONG_S, verb="create", resource="leases"),))
    api = client()
    took = {}
    for what, ask in {"create": ("POST", LEASES, a_lease()), "list": ("GET", LEASES)}.items():
        start = time.monotonic()
        api.ask(*ask)
        took[what] = time.monotonic() - start
    assert took["create"] >= LONG_S > took["list"]


# Writes whose end is not known


def test_the_answer_of_a_swallowed_write_is_lost_and_the_write_is_not(server, client):
    api = client("one")
    fault(server, "one", swallow=1)
    with pytest.raises(LOST):
        api.ask("POST", LEASES, a_lease())
    assert client("two").ask("GET", LEASES).names == ["a"]
    assert api.ask("POST", LEASES, a_lease("b")).code == 201


def test_a_zombie_arrives_after_its_client_has_given_up(server, client):
    fault(server, "one", zombie=LONG_S)
    with pytest.raises(TimeoutError):
        client("one", patience_s=SHORT_S).ask("POST", LEASES, a_lease())
    assert client("two").ask("GET", LEASES).names == []
    until(lambda: client("two").ask("GET", LEASES).names == ["a"])


def test_a_zombie_that_comes_too_late_changes_nothing(server, client):
    made = client("two").ask("POST", LEASES, a_lease())
    fault(server, "one", zombie=LONG_S)
    late = a_lease(holder="one", resourceVersion=made.version)
    with pytest.raises(TimeoutError):
        client("one", patience_s=SHORT_S).ask("PUT", f"{LEASES}/a", late)
    won = client("two").ask("PUT", f"{LEASES}/a", a_lease(holder="two", resourceVersion=made.version))
    assert won.code == 200
    until(lambda: server.do(lambda it: it.zombies) == 0)
    assert client("two").ask("GET", f"{LEASES}/a").body["spec"] == {"holderIdentity": "two"}


# Refusals


@pytest.mark.parametrize(
    ("code", "reason", "retry"),
    [
        (429, "TooManyRequests", "1"),
        (500, "InternalError", None),
        (503, "ServiceUnavailable", None),
        (504, "Timeout", None),
    ],
)
def test_the_next_requests_fail_as_ordered(server, client, code, reason, retry):
    api = client("one")
    fault(server, "one", fail=2, code=code)
    replies = [api.ask("GET", LEASES) for _ in range(3)]
    assert [reply.code for reply in replies] == [code, code, 200]
    assert (replies[0].body["reason"], replies[0].headers["Retry-After"]) == (reason, retry)
    assert client("two").ask("GET", LEASES).code == 200


def test_warnings_are_sent_as_ordered_and_for_old_kinds(server, client):
    fault(server, warning='say "hello"')
    assert client().ask("GET", LEASES).headers["Warning"] == '299 - "say \\"hello\\""'
    fault(server)
    assert "v1 Endpoints is deprecated" in client().ask("GET", "/api/v1/endpoints").headers["Warning"]


def test_an_unknown_token_is_refused(server, client):
    kubeconfig = {**server.do(lambda it: (it.add_client("one"), it.kubeconfig("one"))[1])}
    kubeconfig["users"] = [{"user": {"token": "wrong"}}]
    refused = Api(kubeconfig).ask("GET", LEASES)
    assert (refused.code, refused.body["reason"]) == (401, "Unauthorized")


# Watches, and what they have missed


def test_a_frozen_watch_tells_nothing_until_it_is_over_and_everything_then(server, client):
    with client("one", patience_s=LONG_S).watch(LEASES) as stream:
        fault(server, "one", freeze=True)
        put(server)
        with pytest.raises(TimeoutError):
            stream.next()
    with client("one").watch(LEASES) as stream, client("two").watch(LEASES) as other:
        assert other.next()["type"] == "ADDED"
        put(server, holder="m")
        assert other.next()["type"] == "MODIFIED"
        fault(server, "one")
        assert [stream.next()["type"] for _ in range(2)] == ["ADDED", "MODIFIED"]


def test_a_frozen_watch_neither_marks_nor_ends():
    with running(Options(bookmark_interval_s=0.05)) as server:
        api = known_to(server)("one", patience_s=8.0)
        with api.watch(LEASES, allowWatchBookmarks="true", timeoutSeconds=5) as stream:
            assert stream.next()["type"] == "BOOKMARK"
            fault(server, freeze=True)
            with pytest.raises(TimeoutError):
                list(stream)


def test_a_bookmark_says_how_far_the_watch_has_come():
    with running(Options(bookmark_interval_s=0.05)) as server:
        api = known_to(server)("one")
        with api.watch(LEASES, allowWatchBookmarks="true", resourceVersion=api.ask("GET", LEASES).version) as stream:
            version = api.ask("POST", CONFIG_MAPS, {"metadata": {"name": "c"}}).version
            marks = (event for event in stream if event["type"] == "BOOKMARK")
            mark = next(each for each in marks if each["object"]["metadata"]["resourceVersion"] == version)
        assert mark["object"]["kind"] == "Lease"


def test_a_watch_from_before_the_cache_was_emptied_is_gone(server, client):
    api = client()
    start = api.ask("GET", LEASES).version
    put(server)
    server.do(lambda it: it.expire())
    with api.watch(LEASES, resourceVersion=start) as stream:
        event, end = stream.next(), stream.next()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert end is None
    fault(server, gone_as_status=True)
    refused = api.ask("GET", LEASES, watch="true", resourceVersion=start)
    assert (refused.code, refused.body["message"].split(":")[0]) == (410, "too old resource version")


def test_a_watch_that_is_up_to_date_outlives_the_cache(server, client):
    with client().watch(LEASES) as stream:
        until(lambda: server.do(lambda it: it.counters.watches["admin"]) == 1)
        client().ask("POST", CONFIG_MAPS, {"metadata": {"name": "c"}})
        server.do(lambda it: (it.expire(), it.compact()))
        put(server)
        assert stream.next()["type"] == "ADDED"


def test_a_list_cannot_be_continued_from_a_past_that_is_forgotten(server, client):
    for name in "abc":
        put(server, name=name)
    api = client()
    first = api.ask("GET", LEASES, limit=1)
    put(server, name="d")
    server.do(lambda it: it.compact())
    refused = api.ask("GET", LEASES, limit=1, **{"continue": first.body["metadata"]["continue"]})
    assert (refused.code, refused.body["reason"]) == (410, "Expired")


def test_a_slow_watcher_is_dropped_and_holds_up_nobody(server, client, monkeypatch):
    monkeypatch.setattr(store, "HISTORY_LEN", 50)
    text = "x" * 100_000
    with client("slow").watch(LEASES) as slow, client("quick").watch(LEASES) as quick:
        until(lambda: server.do(lambda it: it.counters.watches["quick"]) == 1)
        for number in range(300):
            put(server, holder=f"{number}{text}")
            assert quick.next()["object"]["spec"]["holderIdentity"].startswith(str(number))
        events = list(slow)
    assert events[-1]["type"] == "ERROR"
    assert events[-1]["object"]["code"] == 410
    assert 0 < len(events) < 300


def test_stale_reads_are_of_the_past_and_only_where_they_may_be(server, client):
    put(server)
    revision = server.do(lambda it: it.store.revision)
    put(server, name="b")
    fault(server, "one", stale=revision)
    one = client("one")
    assert one.ask("GET", LEASES, resourceVersion="0").names == ["a"]
    assert one.ask("GET", f"{LEASES}/b", resourceVersion="0").code == 404
    assert one.ask("GET", LEASES).names == ["a", "b"]
    assert client("two").ask("GET", LEASES, resourceVersion="0").names == ["a", "b"]


# Restarts and restores


def test_a_restart_drops_connections_refuses_new_ones_and_keeps_the_state(server, client):
    api = client()
    start = api.ask("POST", LEASES, a_lease()).version
    api.ask("PATCH", f"{LEASES}/a", {"spec": {"holderIdentity": "m"}}, MERGE)
    with api.watch(LEASES) as stream:
        stream.next()
        server.run(lambda it: it.go_down())
        assert stream.next() is None
        with pytest.raises(ConnectionRefusedError):
            api.ask("GET", LEASES)
        server.run(lambda it: it.come_up())
    assert api.ask("GET", f"{LEASES}/a").body["spec"] == {"holderIdentity": "m"}
    with api.watch(LEASES, resourceVersion=start) as stream:
        assert stream.next()["object"]["code"] == 410


def test_a_restored_backup_takes_revisions_back_and_nobody_is_told(server, client):
    api = client()
    made = api.ask("POST", LEASES, a_lease())
    backup = server.do(lambda it: it.snapshot())
    lost = api.ask("PATCH", f"{LEASES}/a", {"spec": {"holderIdentity": "m"}}, MERGE)
    server.do(lambda it: it.restore(backup))
    assert api.ask("GET", f"{LEASES}/a").body == made.body
    assert api.ask("GET", LEASES, resourceVersion=lost.version).code == 504
    with api.watch(LEASES, resourceVersion=lost.version) as stream:
        api.ask("PATCH", f"{LEASES}/a", {"spec": {"holderIdentity": "x"}}, MERGE)
        later = api.ask("POST", LEASES, a_lease("b"))
        assert stream.next()["object"]["metadata"]["resourceVersion"] == later.version


def test_a_restored_backup_can_take_revisions_forward(server, client):
    api = client()
    start = api.ask("POST", LEASES, a_lease()).version
    server.do(lambda it: it.restore(it.snapshot(), bump=1000))
    assert int(api.ask("GET", LEASES).version) == int(start) + 1000
    with api.watch(LEASES, resourceVersion=start) as stream:
        assert stream.next()["object"]["code"] == 410


# RBAC

ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: agent, namespace: arpguard}
rules:
  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, update]}
  - {apiGroups: [""], resources: [configmaps], resourceNames: [arpguard], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: agent, namespace: arpguard}
roleRef: {kind: Role, name: agent, apiGroup: rbac.authorization.k8s.io}
subjects: [{kind: ServiceAccount, name: agent, namespace: arpguard}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: agent}
rules:
  - {apiGroups: [""], resources: [nodes, nodes/status], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: agent}
roleRef: {kind: ClusterRole, name: agent, apiGroup: rbac.authorization.k8s.io}
subjects: [{kind: ServiceAccount, name: agent, namespace: arpguard}]
"""
OWN = LEASES.replace("default", "arpguard")
OWN_MAPS = CONFIG_MAPS.replace("default", "arpguard")


@pytest.fixture
def guarded():
    with running(Options(rbac=tuple(yaml.safe_load_all(ROLE)))) as server:
        server.do(lambda it: it.add_client("agent", "arpguard/agent"))
        yield server, Api(server.do(lambda it: it.kubeconfig("agent")))


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (("GET", OWN), 200),
        (("GET", LEASES), 403),
        (("GET", LEASES.replace("/namespaces/default", "")), 403),
        (("POST", OWN, a_lease()), 403),
        (("PUT", f"{OWN}/a", a_lease()), 403),
        (("DELETE", f"{OWN}/a"), 403),
        (("GET", f"{OWN_MAPS}/arpguard"), 404),
        (("GET", f"{OWN_MAPS}/other"), 403),
        (("GET", OWN_MAPS), 403),
        (("GET", f"{OWN_MAPS}?fieldSelector=metadata.name%3Darpguard"), 200),
        (("GET", "/api/v1/nodes/n"), 404),
        (("GET", "/api/v1/nodes/n/status"), 404),
        (("GET", "/api/v1/nodes"), 403),
        (("GET", "/apis"), 200),
        (("GET", "/metrics"), 403),
    ],
)
def test_a_client_may_do_what_its_roles_allow(guarded, ask, code):
    _server, api = guarded
    assert api.ask(*ask).code == code


def test_a_refusal_says_who_may_not_do_what_where(guarded):
    _server, api = guarded
    message = api.ask("GET", f"{LEASES}/a").body["message"]
    assert message == (
        'leases.coordination.k8s.io "a" is forbidden: User "system:serviceaccount:arpguard:agent" cannot get resource '
        '"leases" in API group "coordination.k8s.io" in the namespace "default"'
    )


def test_a_put_that_creates_needs_both_verbs(guarded):
    server, api = guarded
    server.do(lambda it: it.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "arpguard"}}))
    refused = api.ask("PUT", f"{OWN}/a", a_lease())
    assert (refused.code, "cannot create resource" in refused.body["message"]) == (403, True)


def test_roles_hold_from_the_moment_they_are_written(guarded):
    server, api = guarded
    role = next(each for each in yaml.safe_load_all(ROLE) if each["kind"] == "Role")
    server.do(lambda it: it.put({**role, "rules": []}))
    assert api.ask("GET", OWN).code == 403


def test_what_was_used_can_be_held_against_what_is_granted(guarded):
    server, api = guarded
    api.ask("GET", OWN)
    api.ask("GET", f"{OWN_MAPS}/arpguard")
    api.ask("GET", "/api/v1/nodes/n")
    unused = server.do(lambda it: it.unused_grants("agent"))
    assert {(grant.verb, grant.resource) for grant in unused} == {
        ("get", "leases"), ("watch", "leases"), ("update", "leases"), ("list", "configmaps"), ("get", "nodes/status")
    }  # fmt: skip
    uses = server.do(lambda it: it.counters.uses["agent"])
    assert {(use.verb, use.resource, use.namespace) for use in uses} == {
        ("list", "leases", "arpguard"), ("get", "configmaps", "arpguard"), ("get", "nodes", "")
    }  # fmt: skip


# Counters, custom resources


def test_what_was_asked_is_counted(server, client):
    api = client("one")
    api.ask("POST", LEASES, a_lease())
    api.ask("POST", LEASES, a_lease())
    api.ask("GET", LEASES)
    counters = server.do(lambda it: it.counters)
    until(lambda: counted(counters, "one") == 3)
    assert counted(counters, "one", "create", "leases", 201) == 1
    assert counted(counters, "one", "create", "leases", 409) == 1
    assert counted(counters, "one", "list") == 1
    assert counters.received["one"] == 2 * len(json.dumps(a_lease()))
    assert counters.sent["one"] > 0
    assert server.do(lambda it: it.store.write_rate()) > 0
    with api.watch(LEASES):
        until(lambda: counters.watches["one"] == 1)
    until(lambda: counters.watches["one"] == 0)


def test_a_custom_resource_has_no_strategic_patch():
    definition = objects.l2_status_definition()
    del definition["spec"]["versions"][0]["schema"], definition["spec"]["versions"][0]["subresources"]
    with running(Options(objects=(definition,))) as server:
        api = known_to(server)()
        path = "/apis/metallb.io/v1beta1/namespaces/default/servicel2statuses"
        made = api.ask("POST", path, {"metadata": {"name": "l"}, "status": {"node": "n"}})
        assert (made.code, made.body["metadata"]["generation"], made.body["status"]) == (201, 1, {"node": "n"})
        assert api.ask("PATCH", f"{path}/l", {"status": {"node": "m"}}, STRATEGIC).code == 415
        assert api.ask("PATCH", f"{path}/l", {"status": {"node": "m"}}, MERGE).body["status"] == {"node": "m"}


def test_a_definition_makes_a_resource_and_takes_it_along(server, client):
    api = client()
    definition = {
        "metadata": {"name": "things.x.io"},
        "spec": {
            "group": "x.io", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}],
        },
    }  # fmt: skip
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert api.ask("POST", path, definition).code == 201
    assert api.ask("POST", "/apis/x.io/v1/things", {"metadata": {"name": "t"}}).code == 201
    assert api.ask("DELETE", f"{path}/things.x.io").code == 200
    assert api.ask("GET", "/apis/x.io/v1/things").code == 404


def test_an_object_of_an_unknown_kind_cannot_be_loaded(server):
    with pytest.raises(ConfigError, match=r"x\.io/v1 Thing"):
        server.do(lambda it: it.put({"apiVersion": "x.io/v1", "kind": "Thing"}))


def test_a_port_that_is_taken_is_named(server):
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ListenError, match=str(port)), running(Options(port=port)):
        pass


def test_it_serves_in_the_event_loop_of_its_user():
    async def use():
        async with ApiServer(Options(tls=False)) as server:
            server.add_client("one")
            api = Api(server.kubeconfig("one"))
            return await asyncio.to_thread(api.ask, "GET", LEASES)

    assert asyncio.run(use()).code == 200


def test_commands_in_pods_have_ended_when_it_has(tmp_path, monkeypatch):
    """A process that is killed is gone some time later."""
    wait = asyncio.subprocess.Process.wait

    async def wait_longer(process):
        await asyncio.sleep(0.2)
        return await wait(process)

    monkeypatch.setattr(asyncio.subprocess.Process, "wait", wait_longer)

    async def use():
        known = [objects.namespace("arpguard"), objects.pod("arpguard", "one", "node-1")]
        kubelets = Kubelets(lambda _node, _words: ["sh", "-c", f"echo here; exec sleep {HUNG_S}"])
        async with ApiServer(Options(tls=False, objects=known, kubelets=kubelets)) as server:
            server.write_kubeconfig(tmp_path / "kubeconfig", "one")
            async with aclosing(Client(await find_access(tmp_path / "kubeconfig"), "node-1")) as client:
                begun = asyncio.Event()
                command = execute(client, PodCommand("arpguard", "one", "", ["sh"]), lambda _piece: begun.set())
                asking = asyncio.create_task(command)
                await begun.wait()
                asking.cancel()
                await asyncio.wait([asking])
            await server.stop()

            assert not [task for task in asyncio.all_tasks() if task.get_coro().__qualname__ == _run.__qualname__]

    asyncio.run(asyncio.wait_for(use(), HUNG_S))


# Other people's clients


@pytest.fixture
def kubeconfig(server, tmp_path):
    path = tmp_path / "kubeconfig.yaml"
    server.do(lambda it: it.write_kubeconfig(path, "other"))
    assert path.stat().st_mode & 0o777 == 0o600
    return str(path)


def test_the_official_client_works_with_it(kubeconfig):
    with kubernetes_config.new_client_from_config(kubeconfig) as api_client:
        core = kubernetes_client.CoreV1Api(api_client)
        core.create_namespaced_config_map("default", {"metadata": {"name": "c"}, "data": {"a": "b"}})
        assert [item.metadata.name for item in core.list_namespaced_config_map("default").items] == ["c"]
        assert kubernetes_client.VersionApi(api_client).get_code().major == "1"
        with pytest.raises(kubernetes_client.ApiException) as raised:
            core.read_namespaced_config_map("d", "default")
        assert json.loads(raised.value.body)["reason"] == "NotFound"


def test_the_official_client_works_with_it_in_an_event_loop(kubeconfig):
    async def use():
        api_client = await aio_config.new_client_from_config(kubeconfig)
        async with api_client:
            leases = aio_client.CoordinationV1Api(api_client)
            made = await leases.create_namespaced_lease("default", a_lease())
            made.spec.holder_identity = "m"
            await leases.replace_namespaced_lease("a", "default", made)
            return (await leases.list_namespaced_lease("default")).items

    assert [lease.spec.holder_identity for lease in asyncio.run(use())] == ["m"]


@pytest.fixture
def kubectl(kubeconfig, tmp_path):
    found = tool("kubectl")

    def run(*arguments, stdin=None):
        command = [found, "--kubeconfig", kubeconfig, "--cache-dir", str(tmp_path / "cache"), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, timeout=HUNG_S).stdout

    return run


def test_kubectl_applies_shows_patches_and_deletes(kubectl):
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **a_lease()}
    assert kubectl("apply", "-f", "-", stdin=json.dumps(lease)) == "lease.coordination.k8s.io/a created\n"
    assert kubectl("get", "leases").split("\n")[0].split() == ["NAME", "HOLDER", "AGE"]
    lease["spec"]["holderIdentity"] = "m"
    assert kubectl("apply", "-f", "-", stdin=json.dumps(lease)) == "lease.coordination.k8s.io/a configured\n"
    kubectl("patch", "lease", "a", "-p", '{"spec":{"leaseDurationSeconds":3}}')
    assert json.loads(kubectl("get", "lease", "a", "-o", "json"))["spec"] == {
        "holderIdentity": "m",
        "leaseDurationSeconds": 3,
    }
    assert "leases" in kubectl("api-resources")
    kubectl("delete", "lease", "a")
    assert kubectl("get", "leases", "-o", "name") == ""


# The process


@contextmanager
def a_process(tmp_path, *arguments):
    control = tmp_path / "control.sock"
    command = [sys.executable, "-m", "arpguard_lab.apiserver", "--control", f"unix:{control}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            yield url, lambda *ask: order(control, *ask)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(HUNG_S) == 0


def order(control, method, path, body=None):
    connection = HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(control))
    connection.request(method, f"/control/{path}", body if isinstance(body, str | None) else json.dumps(body))
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, json.loads(text)


def test_a_process_takes_orders(tmp_path):
    scene, role = tmp_path / "scene.yaml", tmp_path / "rbac.yaml"
    scene.write_text(
        json.dumps({"kind": "List", "items": [{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **a_lease()}]})
    )
    role.write_text(ROLE)
    clients = ["--client", "admin", "--client", "agent=arpguard/agent", "--kubeconfigs", str(tmp_path)]
    options = ["--load", str(scene), "--rbac", str(role), *clients]
    with a_process(tmp_path, *options) as (url, told):
        api = Api(yaml.safe_load((tmp_path / "admin.yaml").read_text()))
        assert url.startswith("https://127.0.0.1:")
        assert api.ask("GET", LEASES).names == ["a"]
        agent = Api(yaml.safe_load((tmp_path / "agent.yaml").read_text()))
        assert (agent.ask("GET", LEASES).code, agent.ask("GET", OWN).code) == (403, 200)

        assert told("PUT", "faults/admin", {"fail": 1, "code": 503, "delay": [{"seconds": 0.01}]})[0] == 200
        assert [api.ask("GET", LEASES).code for _ in range(2)] == [503, 200]
        assert told("PUT", "faults/admin", {"explode": True})[0] == 400
        assert told("PUT", "faults/admin", {})[0] == 200

        number = told("POST", "snapshots")[1]["snapshot"]
        more = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **a_lease("b")}
        assert told("POST", "load", json.dumps(more))[0] == 200
        assert api.ask("GET", LEASES).names == ["a", "b"]
        assert told("POST", f"restore/{number}")[0] == 200
        assert api.ask("GET", LEASES).names == ["a"]
        requests = told("GET", "counters")[1]["requests"]
        assert {"client": "admin", "verb": "list", "resource": "leases", "code": 503, "count": 1} in requests


def test_a_process_keeps_a_journal_of_leases(tmp_path):
    with a_process(tmp_path, "--client", "admin", "--kubeconfigs", str(tmp_path)) as (_url, told):
        api = Api(yaml.safe_load((tmp_path / "admin.yaml").read_text()))
        before_ns = time.time_ns()
        first = api.ask("POST", LEASES, a_lease(holder="one"))
        api.ask("DELETE", f"{LEASES}/a")
        rows = told("GET", "journal")[1]
        assert [(row["name"], row.get("object", {}).get("spec", {}).get("holderIdentity")) for row in rows] == [
            ("a", "one"),
            ("a", None),
        ]
        assert before_ns < rows[0]["time_ns"] <= rows[1]["time_ns"] < time.time_ns()
        assert told("GET", f"journal?since={first.version}")[1] == rows[1:]


def test_a_process_goes_down_and_comes_up(tmp_path):
    with a_process(tmp_path, "--client", "admin", "--kubeconfigs", str(tmp_path)) as (_url, told):
        api = Api(yaml.safe_load((tmp_path / "admin.yaml").read_text()))
        api.ask("POST", LEASES, a_lease())
        for _ in range(2):
            assert told("POST", "down")[0] == 200
            with pytest.raises(ConnectionRefusedError):
                api.ask("GET", LEASES)
        for _ in range(2):
            assert told("POST", "up")[0] == 200
            assert api.ask("GET", LEASES).names == ["a"]


def test_a_process_says_what_is_wrong_with_its_files(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("kind: [")
    command = [sys.executable, "-m", "arpguard_lab.apiserver", "--load", str(wrong)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HUNG_S)
    assert (done.returncode, str(wrong) in done.stderr) == (2, True)


def test_large_lists_are_whole(tmp_path):
    """10,000 slices in one answer."""
    endpoints = [{"addresses": [f"192.0.2.{each}"]} for each in range(10)]
    head = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints}
    slices = [{**head, "metadata": {"name": f"e-{number}"}} for number in range(10_000)]
    with a_process(tmp_path, "--client", "one", "--kubeconfigs", str(tmp_path)) as (_url, told):
        assert told("POST", "load", json.dumps({"kind": "List", "items": slices}))[0] == 200
        api = Api(yaml.safe_load((tmp_path / "one.yaml").read_text()))
        assert len(api.ask("GET", "/apis/discovery.k8s.io/v1/endpointslices").body["items"]) == 10_000


def test_plain_http_is_there_for_those_who_want_it(tmp_path):
    with a_process(tmp_path, "--http", "--client", "one", "--kubeconfigs", str(tmp_path)) as (url, _told):
        assert url.startswith("http://")
        assert Api(yaml.safe_load((tmp_path / "one.yaml").read_text())).ask("GET", LEASES).code == 200
