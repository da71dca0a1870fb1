"""The rules of a kube-apiserver that agents rely on: the lab's server keeps them.

The same tests run against a real cluster when ARPGUARD_TEST_KUBECONFIG names its kubeconfig.
"""

import gc
import itertools
import os
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from arpguard_lab.apiserver.embedded import running
from arpguard_lab.apiserver.server import Options
from support.kube.plain_http import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, real_kubeconfig
from support.netns.waiting import HUNG_S

REAL = os.environ.get("ARPGUARD_TEST_KUBECONFIG")
OTHER_UID = "00000000-0000-0000-0000-000000000000"
MICRO = "2024-01-01T00:00:00.123456Z"


@contextmanager
def the_double():
    with running() as server:
        server.do(lambda it: it.add_client("admin"))
        yield Api(server.do(lambda it: it.kubeconfig("admin")))


@contextmanager
def the_real():
    yield Api(real_kubeconfig(REAL))


@pytest.fixture(params=[the_double] + ([the_real] if REAL else []))
def api(request, namespace):
    with request.param() as client:
        assert client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}).code == 201
        yield client
        client.ask("DELETE", f"/api/v1/namespaces/{namespace}")


def a_lease(name="a", spec=None, **metadata) -> dict:
    return {"metadata": {"name": name, **metadata}, "spec": spec or {}}


def a_service(namespace, **spec) -> tuple[str, dict]:
    return f"/api/v1/namespaces/{namespace}/services", {
        "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 80}], **spec},
    }


def test_a_new_object_gets_what_only_the_server_gives(api, leases, namespace):
    made = api.ask("POST", leases, a_lease(spec={"holderIdentity": "n"}))
    metadata = made.body["metadata"]
    assert made.code == 201
    assert metadata["namespace"] == namespace
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(made.version) > 0
    assert (made.body["apiVersion"], made.body["kind"]) == ("coordination.k8s.io/v1", "Lease")
    assert api.ask("GET", f"{leases}/a").body["metadata"]["uid"] == metadata["uid"]


def test_an_object_is_created_once(api, leases):
    api.ask("POST", leases, a_lease())
    again = api.ask("POST", leases, a_lease())
    assert (again.code, again.body["reason"]) == (409, "AlreadyExists")
    assert again.body["details"] == {"name": "a", "group": "coordination.k8s.io", "kind": "leases"}


def test_a_name_is_generated(api, leases):
    made = api.ask("POST", leases, {"metadata": {"generateName": "x-"}})
    assert made.code == 201
    assert len(made.body["metadata"]["name"]) == len("x-") + 5


def test_an_object_needs_its_namespace(api, leases, namespace):
    refused = api.ask("POST", leases.replace(namespace, "not-there"), a_lease())
    assert (refused.code, refused.body["message"]) == (404, 'namespaces "not-there" not found')


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"renewTime": "2024-01-01T00:00:00Z"}, 'cannot parse "Z" as ".000000"'),
        ({"renewTime": "2024-01-01T00:00:00.123Z"}, 'cannot parse ".123Z" as ".000000"'),
        ({"renewTime": "2024-01-01T00:00:00.123456"}, 'cannot parse "" as "Z07:00"'),
        ({"acquireTime": "yesterday"}, 'cannot parse "yesterday" as "2006"'),
        ({"renewTime": "2024-02-31T00:00:00.123456Z"}, "day out of range"),
        ({"leaseDurationSeconds": "3"}, "LeaseSpec.spec.leaseDurationSeconds of type int32"),
        ({"leaseDurationSeconds": 3.5}, "cannot unmarshal number 3.5 into Go struct field"),
    ],
)
def test_a_lease_with_a_field_of_the_wrong_form_is_refused(api, leases, spec, says):
    refused = api.ask("POST", leases, a_lease(spec=spec))
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")
    assert refused.body["message"].startswith('Lease in version "v1" cannot be handled as a Lease: ')
    assert says in refused.body["message"]


def test_a_time_is_shown_in_utc(api, leases):
    made = api.ask("POST", leases, a_lease(spec={"renewTime": "2024-01-01T02:00:00.123456+02:00"}))
    assert made.body["spec"]["renewTime"] == MICRO


def test_a_lease_lasts_more_than_no_time(api, leases):
    refused = api.ask("POST", leases, a_lease(spec={"leaseDurationSeconds": 0}))
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    says = "Invalid value: 0: must be greater than 0"
    cause = {"reason": "FieldValueInvalid", "message": says, "field": "spec.leaseDurationSeconds"}
    assert refused.body["details"]["causes"] == [cause]
    assert refused.body["message"].startswith('Lease.coordination.k8s.io "a" is invalid: spec.leaseDurationSeconds: ')


def test_a_lease_may_have_no_holder(api, leases):
    assert api.ask("POST", leases, a_lease(spec={"holderIdentity": ""})).code == 201


@pytest.mark.parametrize("name", ["A", "a_b", "-a", "x" * 254, ""])
def test_a_name_is_a_dns_name(api, leases, name):
    assert api.ask("POST", leases, a_lease(name)).code == 422


def test_an_unknown_field_is_left_out_with_a_warning_or_refused(api, leases):
    made = api.ask("POST", leases, a_lease(spec={"holder": "n"}))
    assert (made.code, made.body["spec"]) == (201, {})
    assert made.headers["Warning"] == '299 - "unknown field \\"spec.holder\\""'
    refused = api.ask("POST", leases, a_lease("b", {"holder": "n"}), fieldValidation="Strict")
    assert (refused.code, 'strict decoding error: unknown field "spec.holder"' in refused.body["message"]) == (
        400,
        True,
    )


def test_an_update_must_know_the_current_version(api, leases):
    made = api.ask("POST", leases, a_lease())
    first = {**a_lease(spec={"holderIdentity": "n"}), "metadata": made.body["metadata"]}
    assert api.ask("PUT", f"{leases}/a", first).code == 200
    late = api.ask("PUT", f"{leases}/a", {**first, "spec": {"holderIdentity": "m"}})
    assert (late.code, late.body["reason"]) == (409, "Conflict")
    assert api.ask("GET", f"{leases}/a").body["spec"] == {"holderIdentity": "n"}


def test_an_update_of_a_lease_must_name_a_version(api, leases):
    api.ask("POST", leases, a_lease())
    refused = api.ask("PUT", f"{leases}/a", a_lease())
    assert (refused.code, "must be specified for an update" in refused.body["message"]) == (422, True)


def test_an_update_must_not_mean_another_object_of_that_name(api, leases):
    made = api.ask("POST", leases, a_lease())
    refused = api.ask("PUT", f"{leases}/a", a_lease(resourceVersion=made.version, uid=OTHER_UID))
    assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    assert f"Precondition failed: UID in precondition: {OTHER_UID}" in refused.body["message"]


def test_a_put_creates_a_missing_lease_unless_it_names_a_uid(api, leases):
    refused = api.ask("PUT", f"{leases}/a", a_lease(resourceVersion="7", uid=OTHER_UID))
    assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    assert api.ask("GET", f"{leases}/a").code == 404
    assert api.ask("PUT", f"{leases}/a", a_lease(resourceVersion="7")).code == 201


def test_a_put_does_not_create_a_config_map(api, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps/c"
    assert api.ask("PUT", path, {"metadata": {"name": "c"}}).code == 404


def test_a_write_that_changes_nothing_is_none(api, leases):
    made = api.ask("POST", leases, a_lease(spec={"holderIdentity": "n"}))
    assert api.ask("PUT", f"{leases}/a", made.body).version == made.version


def test_an_object_cannot_be_renamed(api, leases):
    api.ask("POST", leases, a_lease())
    assert api.ask("PUT", f"{leases}/a", a_lease("b")).code == 400


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        (MERGE, {"spec": {"holderIdentity": "m", "renewTime": None}}),
        (STRATEGIC, {"spec": {"holderIdentity": "m", "renewTime": None}}),
        (
            JSON_PATCH,
            [
                {"op": "test", "path": "/spec/holderIdentity", "value": "n"},
                {"op": "replace", "path": "/spec/holderIdentity", "value": "m"},
                {"op": "remove", "path": "/spec/renewTime"},
            ],
        ),
    ],
)
def test_a_patch_changes_what_it_names(api, leases, kind, patch):
    spec = {"holderIdentity": "n", "leaseDurationSeconds": 3, "renewTime": MICRO}
    api.ask("POST", leases, a_lease(spec=spec))
    patched = api.ask("PATCH", f"{leases}/a", patch, kind)
    assert (patched.code, patched.body["spec"]) == (200, {"holderIdentity": "m", "leaseDurationSeconds": 3})


@pytest.mark.parametrize("kind", [MERGE, STRATEGIC])
def test_a_null_in_a_patch_takes_away(api, leases, kind):
    api.ask("POST", leases, a_lease(annotations={"x.io/a": "1", "x.io/b": "2"}))
    patched = api.ask("PATCH", f"{leases}/a", {"metadata": {"annotations": {"x.io/a": None}}}, kind)
    assert patched.body["metadata"]["annotations"] == {"x.io/b": "2"}


def test_finalizers_are_replaced_by_a_merge_patch_and_joined_by_a_strategic_one(api, leases):
    api.ask("POST", leases, a_lease(finalizers=["x.io/one"]))
    joined = api.ask("PATCH", f"{leases}/a", {"metadata": {"finalizers": ["x.io/two"]}}, STRATEGIC)
    assert sorted(joined.body["metadata"]["finalizers"]) == ["x.io/one", "x.io/two"]
    removed = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/one"]}}
    assert api.ask("PATCH", f"{leases}/a", removed, STRATEGIC).body["metadata"]["finalizers"] == ["x.io/two"]
    replaced = api.ask("PATCH", f"{leases}/a", {"metadata": {"finalizers": ["x.io/three"]}}, MERGE)
    assert replaced.body["metadata"]["finalizers"] == ["x.io/three"]
    api.ask("PATCH", f"{leases}/a", {"metadata": {"finalizers": None}}, MERGE)


@pytest.mark.parametrize(
    ("kind", "patch", "code"),
    [
        (JSON_PATCH, [{"op": "test", "path": "/spec/holderIdentity", "value": "m"}], 422),
        (JSON_PATCH, [{"op": "remove", "path": "/spec/strategy"}], 422),
        (JSON_PATCH, {"op": "remove"}, 400),
        (MERGE, {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "m"}}, 409),
        (MERGE, {"spec": {"renewTime": "2024-01-01T00:00:00Z"}}, 422),
        ("application/json", {}, 415),
    ],
)
def test_a_patch_that_cannot_be_is_refused(api, leases, kind, patch, code):
    api.ask("POST", leases, a_lease(spec={"holderIdentity": "n"}))
    assert api.ask("PATCH", f"{leases}/a", patch, kind).code == code


@pytest.mark.parametrize("wrong", ["uid", "resourceVersion"])
def test_a_deletion_keeps_to_its_preconditions(api, leases, wrong):
    found = api.ask("POST", leases, a_lease()).body["metadata"]
    right = {name: found[name] for name in ("uid", "resourceVersion")}
    refused = api.ask(
        "DELETE", f"{leases}/a", {"preconditions": {**right, wrong: OTHER_UID if wrong == "uid" else "1"}}
    )
    assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    done = api.ask("DELETE", f"{leases}/a", {"preconditions": right})
    details = {"name": "a", "group": "coordination.k8s.io", "kind": "leases", "uid": found["uid"]}
    assert (done.code, done.body["status"], done.body["details"]) == (200, "Success", details)


def test_an_object_with_a_finalizer_goes_with_its_finalizer(api, leases):
    api.ask("POST", leases, a_lease(finalizers=["x.io/one"]))
    marked = api.ask("DELETE", f"{leases}/a")
    assert (marked.code, "deletionTimestamp" in marked.body["metadata"]) == (200, True)
    again = api.ask("DELETE", f"{leases}/a")
    assert again.version == marked.version
    more = api.ask("PATCH", f"{leases}/a", {"metadata": {"finalizers": ["x.io/one", "x.io/two"]}}, MERGE)
    assert (more.code, "no new finalizers can be added" in more.body["message"]) == (422, True)
    assert api.ask("GET", f"{leases}/a").code == 200
    assert api.ask("PATCH", f"{leases}/a", {"metadata": {"finalizers": None}}, MERGE).code == 200
    assert api.ask("GET", f"{leases}/a").code == 404


def test_a_collection_is_deleted_by_label(api, leases):
    api.ask("POST", leases, a_lease("a", labels={"x": "1"}))
    api.ask("POST", leases, a_lease("b", labels={"x": "2"}))
    assert api.ask("DELETE", leases, labelSelector="x=1").code == 200
    assert api.ask("GET", leases).names == ["b"]


@pytest.mark.parametrize(
    ("labels", "fields", "names"),
    [
        ("x=1", "", ["a"]),
        ("x==1", "", ["a"]),
        ("x!=1", "", ["b", "c"]),
        ("x", "", ["a", "b"]),
        ("!x", "", ["c"]),
        ("x in (1,2),y notin (q)", "", ["a"]),
        ("y", "metadata.name!=a", ["b"]),
        ("", "metadata.name=c", ["c"]),
        ("", "metadata.namespace=not-there", []),
    ],
)
def test_a_list_holds_what_is_selected(api, leases, labels, fields, names):
    api.ask("POST", leases, a_lease("a", labels={"x": "1", "y": "p"}))
    api.ask("POST", leases, a_lease("b", labels={"x": "2", "y": "q"}))
    api.ask("POST", leases, a_lease("c"))
    assert api.ask("GET", leases, labelSelector=labels, fieldSelector=fields).names == names


@pytest.mark.parametrize("query", [{"labelSelector": "a===b"}, {"fieldSelector": "spec.x=1"}, {"resourceVersion": "x"}])
def test_a_list_that_cannot_be_is_refused(api, leases, query):
    assert api.ask("GET", leases, **query).code == 400


def test_the_pages_of_a_list_are_of_one_moment(api, leases):
    for name in "abcde":
        api.ask("POST", leases, a_lease(name))
    first = api.ask("GET", leases, limit=2)
    assert (first.names, first.body["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    api.ask("DELETE", f"{leases}/c")
    api.ask("POST", leases, a_lease("cc"))
    second = api.ask("GET", leases, limit=2, **{"continue": first.body["metadata"]["continue"]})
    assert (second.names, second.version) == (["c", "d"], first.version)
    third = api.ask("GET", leases, limit=2, **{"continue": second.body["metadata"]["continue"]})
    assert (third.names, "continue" in third.body["metadata"]) == (["e"], False)


def test_a_list_can_be_of_an_exact_revision_and_not_of_the_future(api, leases):
    made = api.ask("POST", leases, a_lease("a"))
    api.ask("POST", leases, a_lease("b"))
    assert api.ask("GET", leases, resourceVersion=made.version, resourceVersionMatch="Exact").names == ["a"]
    assert api.ask("GET", leases, resourceVersion=made.version, resourceVersionMatch="NotOlderThan").names == ["a", "b"]
    future = api.ask("GET", leases, resourceVersion="99999999", resourceVersionMatch="NotOlderThan")
    assert (future.code, future.headers["Retry-After"]) == (504, "1")
    assert future.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_items_of_a_list_do_not_repeat_their_kind(api, leases):
    api.ask("POST", leases, a_lease())
    listed = api.ask("GET", leases)
    assert listed.body["kind"] == "LeaseList"
    assert "kind" not in listed.body["items"][0]


def test_a_watch_tells_every_change_after_a_list(api, leases):
    start = api.ask("GET", leases).version
    made = api.ask("POST", leases, a_lease(finalizers=["x.io/one"]))
    api.ask("PATCH", f"{leases}/a", {"spec": {"holderIdentity": "n"}}, MERGE)
    api.ask("DELETE", f"{leases}/a")
    api.ask("PATCH", f"{leases}/a", {"metadata": {"finalizers": None}}, MERGE)
    with api.watch(leases, resourceVersion=start) as stream:
        events = [stream.next() for _ in range(4)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] == int(made.version)
    assert {event["object"]["kind"] for event in events} == {"Lease"}


def test_a_watch_tells_changes_as_they_happen(api, leases):
    with api.watch(leases, resourceVersion=api.ask("GET", leases).version) as stream:
        api.ask("POST", leases, a_lease())
        assert stream.next()["type"] == "ADDED"
        api.ask("DELETE", f"{leases}/a")
        assert stream.next()["type"] == "DELETED"


@pytest.mark.parametrize("version", [{}, {"resourceVersion": "0"}])
def test_a_watch_from_nowhere_starts_with_what_is_there(api, leases, version):
    api.ask("POST", leases, a_lease())
    with api.watch(leases, **version) as stream:
        assert stream.next()["object"]["metadata"]["name"] == "a"


def test_an_object_that_enters_or_leaves_a_selection_is_added_or_deleted(api, leases):
    start = api.ask("GET", leases).version
    api.ask("POST", leases, a_lease())
    api.ask("PATCH", f"{leases}/a", {"metadata": {"labels": {"x": "1"}}}, MERGE)
    api.ask("PATCH", f"{leases}/a", {"spec": {"holderIdentity": "n"}}, MERGE)
    left = api.ask("PATCH", f"{leases}/a", {"metadata": {"labels": {"x": "2"}}}, MERGE)
    with api.watch(leases, resourceVersion=start, labelSelector="x=1") as stream:
        events = [stream.next() for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[2]["object"]["metadata"]["labels"] == {"x": "1"}
    assert events[2]["object"]["metadata"]["resourceVersion"] == left.version


def test_a_watch_list_ends_its_beginning_with_a_bookmark(api, leases):
    api.ask("POST", leases, a_lease())
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with api.watch(leases, **query) as stream:
        assert stream.next()["type"] == "ADDED"
        mark = stream.next()
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    refused = api.ask("GET", leases, watch="true", sendInitialEvents="true")
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")


def test_a_watch_ends_in_time(api, leases):
    with api.watch(leases, resourceVersion=api.ask("GET", leases).version, timeoutSeconds=1) as stream:
        assert list(stream) == []


def test_a_status_is_written_by_its_own_path_only(api, namespace):
    path, service = a_service(namespace, type="LoadBalancer")
    ingress = {"loadBalancer": {"ingress": [{"ip": "192.0.2.9", "ipMode": "VIP"}]}}
    made = api.ask("POST", path, {**service, "status": ingress})
    assert (made.code, made.body["status"]) == (201, {"loadBalancer": {}})
    assert api.ask("PATCH", f"{path}/s", {"status": ingress}, MERGE).body["status"] == {"loadBalancer": {}}
    change = {"status": ingress, "spec": {"externalIPs": ["192.0.2.7"]}}
    written = api.ask("PATCH", f"{path}/s/status", change, MERGE)
    assert (written.body["status"], "externalIPs" in written.body["spec"]) == (ingress, False)


def test_a_lease_has_no_status(api, leases):
    api.ask("POST", leases, a_lease())
    assert api.ask("GET", f"{leases}/a/status").code == 404


def test_only_a_load_balancer_has_an_ingress(api, namespace):
    path, service = a_service(namespace)
    api.ask("POST", path, service)
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}}
    assert api.ask("PATCH", f"{path}/s/status", ingress, MERGE).code == 422


def test_a_service_gets_its_defaults_and_a_warning_for_external_ips(api, namespace):
    path, service = a_service(namespace, externalIPs=["192.0.2.7"])
    made = api.ask("POST", path, service)
    expected = {"type": "ClusterIP", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster"}
    assert {**made.body["spec"], **expected} == made.body["spec"]
    assert made.body["spec"]["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    assert "spec.externalIPs is deprecated" in made.headers["Warning"]


PORTS = [{"port": 80}]
ANY = object()


@pytest.mark.parametrize(
    ("spec", "gets"),
    [
        ({"type": "LoadBalancer", "ports": PORTS}, {"allocateLoadBalancerNodePorts": True}),
        ({"type": "NodePort", "ports": PORTS}, {"externalTrafficPolicy": "Cluster"}),
        ({"type": "LoadBalancer", "ports": PORTS, "externalTrafficPolicy": "Local"}, {"healthCheckNodePort": ANY}),
        ({"clusterIP": "None"}, {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}),
        ({"clusterIP": "None", "selector": {"a": "b"}}, {"ipFamilyPolicy": "SingleStack"}),
        ({"type": "ExternalName", "externalName": "x.example.org"}, {"sessionAffinity": "None"}),
    ],
)  # fmt: skip
def test_a_service_gets_the_defaults_of_its_type(api, namespace, spec, gets):
    path, service = a_service(namespace)
    made = api.ask("POST", path, {**service, "spec": spec})

    assert made.code == 201
    found = made.body["spec"]
    assert {name: found[name] if gets[name] is not ANY else ANY for name in gets} == gets
    has_node_ports = spec.get("type") in ("LoadBalancer", "NodePort")
    assert [port.get("nodePort", 0) >= 30000 for port in found.get("ports", ())] == [has_node_ports] * len(
        found.get("ports", ())
    )


def test_what_a_service_was_given_stays_and_goes_with_its_type(api, namespace):
    path, service = a_service(namespace, type="LoadBalancer", loadBalancerClass="x.io/y")
    made = api.ask("POST", path, service).body["spec"]
    again = api.ask("PUT", f"{path}/s", service).body["spec"]
    assert again == made

    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}}
    told = api.ask("PATCH", f"{path}/s/status", ingress, MERGE).body["status"]
    assert told == {"loadBalancer": {"ingress": [{"ip": "192.0.2.9", "ipMode": "VIP"}]}}
    plain = api.ask("PATCH", f"{path}/s", {"spec": {"type": "ClusterIP"}}, MERGE).body
    assert plain["status"] == {"loadBalancer": {}}
    assert plain["spec"]["clusterIP"] == made["clusterIP"]
    assert plain["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    gone = ("allocateLoadBalancerNodePorts", "loadBalancerClass", "externalTrafficPolicy")
    assert not plain["spec"].keys() & set(gone)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"ports": []}, "spec.ports"),
        ({"ports": [{"port": 0}]}, "spec.ports[0].port"),
        ({"ports": [{"port": 80, "protocol": "XXX"}]}, "spec.ports[0].protocol"),
        ({"ports": [{"port": 80}, {"port": 81}]}, "spec.ports[1].name"),
        ({"externalIPs": ["x"]}, "spec.externalIPs[0]"),
        ({"externalIPs": ["127.0.0.1"]}, "spec.externalIPs[0]"),
        ({"externalIPs": ["192.0.2.1", "169.254.0.1"]}, "spec.externalIPs[1]"),
        ({"externalIPs": ["0.0.0.0"]}, "spec.externalIPs[0]"),
        ({"type": "Other"}, "spec.type"),
        ({"externalTrafficPolicy": "Local"}, "spec.externalTrafficPolicy"),
        ({"type": "NodePort", "externalTrafficPolicy": "Other"}, "spec.externalTrafficPolicy"),
        ({"loadBalancerClass": "x.io/y"}, "spec.loadBalancerClass"),
        ({"allocateLoadBalancerNodePorts": True}, "spec.allocateLoadBalancerNodePorts"),
    ],
)
def test_a_service_that_makes_no_sense_is_refused(api, namespace, change, field):
    path, service = a_service(namespace, **change)
    refused = api.ask("POST", path, service)

    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    assert field in [cause["field"] for cause in refused.body["details"]["causes"]]


@pytest.mark.parametrize(
    ("change", "field"),
    [({"loadBalancerClass": "x.io/z"}, "spec.loadBalancerClass"), ({"clusterIP": "10.0.0.99"}, "spec.clusterIPs[0]")],
)
def test_what_a_service_is_given_once_stays(api, namespace, change, field):
    path, service = a_service(namespace, type="LoadBalancer", loadBalancerClass="x.io/y")
    api.ask("POST", path, service)
    refused = api.ask("PATCH", f"{path}/s", {"spec": change}, MERGE)

    assert (refused.code, [cause["field"] for cause in refused.body["details"]["causes"]]) == (422, [field])


def test_an_ingress_is_an_address(api, namespace):
    path, service = a_service(namespace, type="LoadBalancer")
    api.ask("POST", path, service)
    refused = api.ask("PATCH", f"{path}/s/status", {"status": {"loadBalancer": {"ingress": [{"ip": "x"}]}}}, MERGE)

    assert (refused.code, refused.body["details"]["causes"][0]["field"]) == (422, "status.loadBalancer.ingress[0].ip")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"addressType": None}, "addressType"),
        ({"endpoints": [{"addresses": []}]}, "endpoints[0].addresses"),
        ({"endpoints": [{"addresses": ["2001:db8::1"]}]}, "endpoints[0].addresses"),
    ],
)
def test_an_endpoint_slice_that_makes_no_sense_is_refused(api, namespace, change, field):
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    refused = api.ask("POST", path, {"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": [], **change})

    assert (refused.code, [cause["field"] for cause in refused.body["details"]["causes"]]) == (422, [field])


def test_the_family_of_an_endpoint_slice_stays(api, namespace):
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    assert api.ask("POST", path, {"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": []}).code == 201
    assert api.ask("PATCH", f"{path}/x", {"addressType": "IPv6"}, MERGE).code == 422


@pytest.mark.parametrize(("data", "code"), [({"a b": "1"}, 422), ({"a": 1}, 400), ({"a.b_c-1": "1"}, 201)])
def test_a_config_map_holds_texts_under_plain_keys(api, namespace, data, code):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert api.ask("POST", path, {"metadata": {"name": "x"}, "data": data}).code == code


def test_leases_have_nothing_of_coordinated_elections(api, leases):
    """Which are not enabled by default."""
    made = api.ask("POST", leases, a_lease(spec={"strategy": "OldestEmulationVersion", "preferredHolder": "n"}))
    assert (made.code, made.body["spec"]) == (201, {})


def test_the_generation_counts_changes_of_the_specification(api, namespace):
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    made = api.ask("POST", path, {"metadata": {"name": "p"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}})
    labelled = api.ask("PATCH", f"{path}/p", {"metadata": {"labels": {"x": "1"}}}, MERGE)
    changed = api.ask("PATCH", f"{path}/p", {"spec": {"policyTypes": ["Egress"]}}, MERGE)
    assert [each.body["metadata"]["generation"] for each in (made, labelled, changed)] == [1, 1, 2]


def an_event(namespace, **change) -> tuple[str, dict]:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", {
        "metadata": {"name": "e"}, "regarding": {"kind": "Lease", "name": "a", "namespace": namespace},
        "eventTime": MICRO, "reportingController": "x.io/agent", "reportingInstance": "n", "action": "Do",
        "reason": "R", "note": "said", "type": "Normal", **change,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"series": {"count": 5, "lastObservedTime": MICRO}}, 200),
        ({"series": {"count": 1, "lastObservedTime": MICRO}}, 422),
        ({"note": "other"}, 422),
        ({"type": "Warning"}, 422),
        ({"action": "Other"}, 422),
        ({"eventTime": "2024-01-02T00:00:00.123456Z"}, 422),
    ],
)
def test_of_an_event_only_its_series_changes(api, namespace, change, code):
    path, event = an_event(namespace)
    api.ask("POST", path, event)
    assert api.ask("PATCH", f"{path}/e", change, MERGE).code == code


def test_an_event_may_be_about_an_object_elsewhere(api, namespace):
    path, event = an_event(namespace, regarding={"kind": "Lease", "name": "a", "namespace": "kube-system"})
    assert api.ask("POST", path, event).code == 201


def test_an_event_is_one_under_both_of_its_names(api, namespace):
    path, event = an_event(namespace)
    assert api.ask("POST", path, event).code == 201
    old = api.ask("GET", f"/api/v1/namespaces/{namespace}/events/e").body
    assert (old["involvedObject"]["name"], old["message"], old["reportingComponent"]) == ("a", "said", "x.io/agent")
    selected = api.ask("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", fieldSelector="regarding.name=a")
    assert [item["note"] for item in selected.body["items"]] == ["said"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"eventTime": None}, "eventTime"),
        ({"type": "Loud"}, "type"),
        ({"reportingInstance": ""}, "reportingInstance"),
        ({"reportingInstance": "x" * 129}, "reportingInstance"),
        ({"reportingController": "a b"}, "reportingController"),
        ({"action": "x" * 129}, "action"),
        ({"reason": ""}, "reason"),
        ({"note": "x" * 1025}, "message"),
        ({"series": {"count": 1, "lastObservedTime": MICRO}}, "series.count"),
        ({"series": {"count": 2}}, "series.lastObservedTime"),
        ({"deprecatedCount": 3}, "count"),
        ({"regarding": {"kind": "Node", "name": "a"}}, "involvedObject.namespace"),
    ],
)
def test_an_event_says_who_what_and_when(api, namespace, change, field):
    path, event = an_event(namespace, **change)
    refused = api.ask("POST", path, event)
    assert (refused.code, field in [cause["field"] for cause in refused.body["details"]["causes"]]) == (422, True)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/default/nothings", 404),
        ("GET", "/apis/coordination.k8s.io/v1/leases/a", 404),
        ("GET", "/apis/nothing.io/v1/things", 404),
        ("POST", "/apis/coordination.k8s.io/v1/leases", 405),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases", 405),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases/a", 405),
    ],
)
def test_a_path_or_method_that_is_not_there_is_refused(api, method, path, code):
    assert api.ask(method, path, {} if method != "GET" else None).code == code


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [(b"{", "application/json", 400), (b"[]", "application/json", 400), (b"a: b", "text/plain", 415),
     (b" " * (3 * 1024 * 1024 + 1), "application/json", 413)],
)  # fmt: skip
def test_a_body_that_is_no_object_is_refused(api, leases, body, content_type, code):
    assert api.ask("POST", leases, body, content_type).code == code


def test_a_form_that_is_not_there_is_refused(api, leases):
    assert api.ask("GET", leases, h_Accept="text/html").code == 406


def test_a_table_has_the_holders_of_leases(api, leases):
    api.ask("POST", leases, a_lease(spec={"holderIdentity": "n"}))
    table = api.ask("GET", leases, h_Accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json").body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Holder", "Age"]
    assert table["rows"][0]["cells"][:2] == ["a", "n"]


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_the_probes_answer(api, path):
    assert api.ask("GET", path).body == b"ok"


def test_what_there_is_can_be_found_out(api):
    assert "v1" in api.ask("GET", "/api").body["versions"]
    groups = {group["name"] for group in api.ask("GET", "/apis").body["groups"]}
    assert {"coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "apps"} <= groups
    listed = api.ask("GET", "/apis/coordination.k8s.io/v1").body["resources"]
    lease = next(each for each in listed if each["name"] == "leases")
    assert (lease["kind"], lease["namespaced"], "watch" in lease["verbs"]) == ("Lease", True, True)
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    items = api.ask("GET", "/apis", h_Accept=aggregated).body["items"]
    assert "coordination.k8s.io" in {item["metadata"].get("name") for item in items}


def test_a_namespace_takes_no_more_once_it_is_deleted(api, leases, namespace):
    api.ask("POST", leases, a_lease(finalizers=["x.io/one"]))
    gone = api.ask("DELETE", f"/api/v1/namespaces/{namespace}")
    assert gone.body["status"]["phase"] == "Terminating"
    refused = api.ask("POST", leases, a_lease("b"))
    assert (refused.code, refused.body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    api.ask("PATCH", f"{leases}/a", {"metadata": {"finalizers": None}}, MERGE)


# ---- server-side apply ----


def a_config_map(data=None, **metadata) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}, "data": data or {"a": "1"}}


@pytest.fixture
def apply(api, namespace):
    """Applies a ConfigMap as a manager."""

    def ask(body, manager="one", **query):
        path = f"/api/v1/namespaces/{namespace}/configmaps/c"
        return api.ask("PATCH", path, body, APPLY, fieldManager=manager, **query)

    return ask


def managed(reply) -> dict:
    """Manager and operation -> its fields."""
    fields = reply.body["metadata"]["managedFields"]
    assert all(entry["fieldsType"] == "FieldsV1" and entry["time"] for entry in fields)
    return {(entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"] for entry in fields}


def test_an_apply_creates_an_object_and_manages_what_it_names(apply):
    made = apply(a_config_map({"a": "1", "b": "2"}, labels={"x": "1"}))

    assert made.code == 201
    fields = {"f:data": {"f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {"f:x": {}}}}
    assert managed(made) == {("one", "Apply", ""): fields}
    assert apply(a_config_map({"a": "1", "b": "2"}, labels={"x": "1"})).version == made.version


def test_what_an_apply_names_no_more_goes(apply):
    apply(a_config_map({"a": "1", "b": "2"}, labels={"x": "1"}))
    apply(a_config_map({"c": "3"}, labels={"x": "1"}), "two")
    left = apply(a_config_map({"a": "1"}))

    assert left.body["data"] == {"a": "1", "c": "3"}
    assert left.body["metadata"]["labels"] == {"x": "1"}  # another manager names it


def test_what_another_manages_is_a_conflict_unless_it_is_forced(apply):
    apply(a_config_map({"a": "1", "b": "2"}))
    same = apply(a_config_map({"a": "1"}), "two")
    refused = apply(a_config_map({"a": "2"}), "two")
    forced = apply(a_config_map({"a": "2"}), "two", force="true")

    assert same.code == 200
    assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    assert refused.body["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    assert refused.body["details"]["causes"] == [cause]
    assert forced.body["data"] == {"a": "2", "b": "2"}
    assert managed(forced) == {
        ("one", "Apply", ""): {"f:data": {"f:b": {}}},
        ("two", "Apply", ""): {"f:data": {"f:a": {}}},
    }


def test_other_writes_take_over_the_fields_that_they_change(api, apply, namespace):
    apply(a_config_map({"a": "1", "b": "2"}))
    path = f"/api/v1/namespaces/{namespace}/configmaps/c"
    changed = api.ask("PATCH", path, {"data": {"b": "9"}}, MERGE, fieldManager="two")
    refused = apply(a_config_map({"a": "1", "b": "2"}))

    assert managed(changed) == {
        ("one", "Apply", ""): {"f:data": {"f:a": {}}},
        ("two", "Update", ""): {"f:data": {"f:b": {}}},
    }
    assert (refused.code, 'conflict with "two" using v1: .data.b' in refused.body["message"]) == (409, True)


def test_a_program_is_the_manager_of_what_it_writes(api, leases):
    made = api.ask(
        "POST", leases, a_lease(spec={"holderIdentity": "n"}, labels={"x": "1"}), h_User_Agent="agent/1.2 (x)"
    )
    renewed = api.ask("PATCH", f"{leases}/a", {"spec": {"holderIdentity": "m"}}, MERGE, h_User_Agent="other/1")

    assert managed(made) == {
        ("agent", "Update", ""): {
            "f:metadata": {"f:labels": {".": {}, "f:x": {}}}, "f:spec": {"f:holderIdentity": {}},
        },
    }  # fmt: skip
    assert managed(renewed)["other", "Update", ""] == {"f:spec": {"f:holderIdentity": {}}}
    assert managed(renewed)["agent", "Update", ""] == {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}}


def test_finalizers_are_applied_one_by_one(apply):
    apply(a_config_map(finalizers=["x.io/one"]))
    both = apply(a_config_map(finalizers=["x.io/two"]), "two")
    left = apply(a_config_map())

    assert both.body["metadata"]["finalizers"] == ["x.io/one", "x.io/two"]
    assert left.body["metadata"]["finalizers"] == ["x.io/two"]
    assert apply(a_config_map(), "two").code == 200


@pytest.mark.parametrize(
    ("body", "query", "code"),
    [
        (a_config_map(), {"fieldManager": ""}, 422),
        (a_config_map(managedFields=[{"manager": "x"}]), {}, 400),
        ({"metadata": {"name": "c"}}, {}, 400),
        (b"a: [", {}, 400),
    ],
)
def test_an_apply_that_cannot_be_is_refused(api, apply, namespace, body, query, code):
    apply(a_config_map())
    path = f"/api/v1/namespaces/{namespace}/configmaps/c"
    assert api.ask("PATCH", path, body, APPLY, **({"fieldManager": "one"} | query)).code == code


def test_a_status_is_applied_by_its_own_path(api, things):
    """As MetalLB does: forced, with everything that it knows."""
    api.ask("POST", things, a_thing(things))
    status = {**a_thing(things), "status": {"node": "n1", "links": ["x"]}}
    del status["spec"]
    applied = api.ask("PATCH", f"{things}/a/status", status, APPLY, fieldManager="one", force="true")

    assert (applied.code, applied.body["status"]) == (200, {"node": "n1", "links": ["x"]})
    assert applied.body["spec"] == {"kind": "one", "count": 3}
    assert managed(applied)["one", "Apply", "status"] == {"f:status": {"f:links": {}, "f:node": {}}}
    missing = api.ask("PATCH", f"{things}/b/status", status, APPLY, fieldManager="one")
    assert missing.code in (400, 404)  # the name differs, or there is none


# ---- custom resources ----

STRING = {"type": "string"}
IMMUTABLE = {
    "type": "string",
    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
}
THING = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["kind"],
            "properties": {
                "kind": {"type": "string", "enum": ["one", "two"]},
                "count": {"type": "integer", "minimum": 1, "default": 3},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "either": {"x-kubernetes-int-or-string": True},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
                "parts": {"type": "array", "maxItems": 2, "items": {"type": "object", "properties": {"id": STRING}}},
            },
        },
        "status": {"type": "object", "properties": {"node": IMMUTABLE, "links": {"type": "array", "items": STRING}}},
    },
}


def a_definition(group, schema) -> dict:
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.fixture
def things(api, namespace):
    """The path of a custom resource."""
    group, definitions = f"{namespace}.example.org", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert api.ask("POST", definitions, a_definition(group, THING)).code == 201
    path = f"/apis/{group}/v1/namespaces/{namespace}/things"
    deadline = time.monotonic() + 30
    while api.ask("GET", path).code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    made = api.ask("GET", f"{definitions}/things.{group}").body
    assert {each["type"]: each["status"] for each in made["status"]["conditions"]}["Established"] == "True"
    yield path
    api.ask("DELETE", f"{definitions}/things.{group}")


def wrong_type(found, wanted) -> str:
    return f'Invalid value: "{found}": {{}} must be of type {wanted}: "{found}"'


def a_thing(things, **spec) -> dict:
    """The version and kind of a custom object stand in it: no server knows them."""
    group = things.split("/")[2]
    return {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"kind": "one", **spec}}


@pytest.mark.parametrize(("change", "code"), [({"kind": ""}, 400), ({"apiVersion": ""}, 400), ({"kind": "Other"}, 422)])
def test_a_custom_object_says_what_it_is(api, things, change, code):
    assert api.ask("POST", things, a_thing(things) | change).code == code


def test_rules_are_for_what_is_right_otherwise(api, things):
    refused = api.ask("POST", things, a_thing(things, kind="three"))

    assert [cause["field"] for cause in refused.body["details"]["causes"]] == ["spec.kind", "<nil>"]


def test_a_custom_object_gets_defaults_and_loses_what_its_schema_does_not_know(api, things):
    made = api.ask(
        "POST", things, a_thing(things, more=1, open={"x": 1}, sizes={"a": 1}, parts=[{"id": "p", "more": 2}])
    )

    assert made.code == 201
    spec = {"kind": "one", "count": 3, "open": {"x": 1}, "sizes": {"a": 1}, "parts": [{"id": "p"}]}
    assert made.body["spec"] == spec
    said = made.headers.get_all("Warning")
    assert sorted(said) == ['299 - "unknown field \\"spec.more\\""', '299 - "unknown field \\"spec.parts[0].more\\""']


@pytest.mark.parametrize(
    ("spec", "field", "reason", "says"),
    [
        ({"kind": None}, "spec.kind", "Required", "Required value"),
        ({"kind": "three"}, "spec.kind", "NotSupported", 'Unsupported value: "three": supported values: "one", "two"'),
        ({"count": "1"}, "spec.count", "TypeInvalid", wrong_type("string", "integer")),
        ({"count": True}, "spec.count", "TypeInvalid", wrong_type("boolean", "integer")),
        ({"count": 0}, "spec.count", "Invalid", "Invalid value: 0: {} should be greater than or equal to 1"),
        ({"name": "A"}, "spec.name", "Invalid", "Invalid value: \"A\": {} should match '^[a-z]+$'"),
        ({"name": "abcdef"}, "spec.name", "TooLong", "Too long: may not be more than 5 bytes"),
        ({"either": 1.5}, "spec.either", "TypeInvalid", wrong_type("number", "integer,string")),
        ({"open": []}, "spec.open", "TypeInvalid", wrong_type("array", "object")),
        ({"sizes": {"a": "b"}}, "spec.sizes.a", "TypeInvalid", wrong_type("string", "integer")),
        ({"parts": [{}, {}, {}]}, "spec.parts", "TooMany", "Too many: 3: must have at most 2 items"),
        ({"parts": [{"id": 1}]}, "spec.parts[0].id", "TypeInvalid", wrong_type("integer", "string")),
    ],
)
def test_a_custom_object_that_does_not_fit_its_schema_is_refused(api, things, spec, field, reason, says):
    refused = api.ask("POST", things, a_thing(things, **spec))

    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    cause = {"reason": f"FieldValue{reason}", "message": says.format(f"{field} in body"), "field": field}
    assert cause in refused.body["details"]["causes"]


@pytest.mark.parametrize("spec", [{"either": 1}, {"either": "1"}, {"count": 1, "name": "abcde"}, {"kind": "two"}])
def test_a_custom_object_that_fits_is_taken(api, things, spec):
    assert api.ask("POST", things, a_thing(things, **spec)).code == 201


def test_an_immutable_field_is_set_once(api, things):
    """As MetalLB has it in the status of a ServiceL2Status."""
    api.ask("POST", things, a_thing(things))
    first = api.ask("PATCH", f"{things}/a/status", {"status": {"node": "n1", "links": ["x"]}}, MERGE)
    same = api.ask("PATCH", f"{things}/a/status", {"status": {"node": "n1", "links": ["y"]}}, MERGE)
    other = api.ask("PATCH", f"{things}/a/status", {"status": {"node": "n2"}}, MERGE)
    relabelled = api.ask("PATCH", f"{things}/a", {"metadata": {"labels": {"node": "n2"}}}, MERGE)

    assert (first.code, same.code, relabelled.code) == (200, 200, 200)
    assert (other.code, other.body["reason"]) == (422, "Invalid")
    says = 'Invalid value: "n2": Value is immutable'
    assert other.body["details"]["causes"] == [{"reason": "FieldValueInvalid", "message": says, "field": "status.node"}]
    assert relabelled.body["status"]["node"] == "n1"
    removed = api.ask("PATCH", f"{things}/a/status", {"status": {"node": None}}, MERGE)
    again = api.ask("PATCH", f"{things}/a/status", {"status": {"node": "n2"}}, MERGE)
    assert (removed.code, again.code) == (200, 200)  # a rule about the past is not about what was not there


def test_a_rule_that_is_not_checked_is_named():
    schema = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [
        {"rule": "self.a <\n self.b"}]}}}  # fmt: skip
    with the_double() as api:
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        made = api.ask("POST", definitions, a_definition("example.org", schema))

    assert made.code == 201
    assert made.headers["Warning"] == '299 - "the lab\'s API server does not check the rule: self.a < self.b"'


@pytest.mark.parametrize("number", range(5))
def test_a_server_that_stops_while_clients_connect_leaves_no_connection_open(number):
    many, ended = threading.Event(), threading.Event()

    def connect(url: str) -> None:
        address = urlsplit(url)
        with ExitStack() as connections, suppress(OSError):
            for count in itertools.count():
                connections.enter_context(socket.create_connection((address.hostname, address.port), 1))
                if count == 20 + number:
                    many.set()
                if ended.is_set():
                    return

    with running(Options(tls=False)) as server:
        caller = threading.Thread(target=connect, args=(server.url,))
        caller.start()
        assert many.wait(HUNG_S)
    ended.set()
    caller.join()
    gc.collect()  # pytest fails the test for what was not closed
