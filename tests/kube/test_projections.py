"""Objects of the API become values; what is wrong with them becomes text, and never an exception."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.core.cluster import ConfigMap, EndpointSlice, Lease, Node, Service
from arpguard.kube import projections
from arpguard.kube.errors import message_of
from arpguard.kube.projections import (
    KEPT,
    MAX_ITEMS,
    MAX_PROBLEMS,
    config_map,
    endpoint_slice,
    is_deleting,
    key_of,
    lease,
    node,
    service,
    version_of,
)

ALL = (service, endpoint_slice, node, lease, config_map)

SERVICE = {
    "metadata": {
        "namespace": "shop",
        "name": "web",
        "uid": "u-1",
        "resourceVersion": "7",
        "labels": {"b": "2", "a": "1"},
        "annotations": {
            "arpguard.io/owner": "elect",
            "arpguard.io/owned-by": "192.0.2.1=node-1",
            "kubectl.kubernetes.io/last-applied-configuration": "x" * 100_000,
        },
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {
        "type": "LoadBalancer",
        "externalIPs": ["192.0.2.1", "2001:db8::1", "192.0.2.1"],
        "loadBalancerClass": "arpguard.io/lb",
        "externalTrafficPolicy": "Local",
    },
    "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}, {"hostname": "lb.example"}]}},
}


def test_service_has_what_decisions_need():
    assert service(SERVICE) == Service(
        namespace="shop",
        name="web",
        uid="u-1",
        labels=(("a", "1"), ("b", "2")),
        annotations=(("arpguard.io/owner", "elect"),),
        owned_by="192.0.2.1=node-1",
        external_ips=(ip_address("192.0.2.1"), ip_address("2001:db8::1")),
        ingress_ips=(ip_address("192.0.2.2"),),
        load_balancer_class="arpguard.io/lb",
        local_only=True,
    )


def test_endpoint_slice_has_the_nodes_with_ready_endpoints():
    endpoints = [
        {"nodeName": "b", "conditions": {"ready": True}},
        {"nodeName": "a"},
        {"nodeName": "a", "conditions": {"ready": None}},
        {"nodeName": "c", "conditions": {"ready": False, "serving": True}},
        {"conditions": {"ready": True}},
    ]
    metadata = {"namespace": "shop", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}

    assert endpoint_slice({"metadata": metadata, "endpoints": endpoints}) == EndpointSlice(
        "shop", "web-1", "web", ("a", "b")
    )


def test_endpoint_slice_without_endpoints_or_service():
    assert endpoint_slice({"metadata": {"namespace": "s", "name": "n"}, "endpoints": None}) == EndpointSlice("s", "n")


def test_node_has_what_eligibility_needs():
    raw = {
        "metadata": {
            "name": "node-1",
            "uid": "u",
            "labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""},
        },
        "spec": {"unschedulable": True, "podCIDRs": ["10.1.0.0/24", "2001:db8:1::/64"]},
        "status": {
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
            "addresses": [
                {"type": "Hostname", "address": "node-1"},
                {"type": "InternalIP", "address": "192.0.2.11"},
                {"type": "ExternalIP", "address": "2001:db8::11"},
            ],
        },
    }

    assert node(raw) == Node(
        name="node-1",
        uid="u",
        ready=True,
        excluded=True,
        unschedulable=True,
        addresses=(ip_address("192.0.2.11"), ip_address("2001:db8::11")),
        pod_networks=(ip_network("10.1.0.0/24"), ip_network("2001:db8:1::/64")),
    )


@pytest.mark.parametrize("status", ["False", "Unknown", "true", None])
def test_node_is_ready_only_when_it_says_true(status):
    assert not node({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": status}]}}).ready


def test_node_without_conditions_is_not_ready():
    assert not node({"metadata": {"name": "n"}}).ready


def test_lease_has_what_a_replacement_needs():
    raw = {
        "metadata": {
            "namespace": "arpguard",
            "name": "node.a",
            "uid": "u",
            "resourceVersion": "12",
            "labels": {"x": "y"},
            "annotations": {"arpguard.io/epoch": "e", "other": "z"},
            "finalizers": ["arpguard.io/claim"],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 3, "leaseTransitions": 4, "renewTime": "whenever"},
    }

    assert lease(raw) == Lease(
        name="node.a",
        uid="u",
        version="12",
        holder="a",
        duration_s=3,
        transitions=4,
        annotations=(("arpguard.io/epoch", "e"),),
        deleting=True,
    )


def a_lease(holder: str) -> Lease:
    return lease({"metadata": {"name": "vip.192.0.2.1"}, "spec": {"holderIdentity": holder}})


def test_equal_names_of_many_objects_are_kept_once():
    one, other = (a_lease(f"node-{number // 2}") for number in range(2))
    assert one.holder is other.holder


def test_names_that_come_and_go_leave_a_bounded_rest():
    for number in range(3 * KEPT):
        a_lease(f"node-{number}")
    assert projections._kept.cache_info().currsize == KEPT


def test_time_of_a_service_is_not_kept_like_a_name():
    """Services come and go, each with another time."""
    projections._kept.cache_clear()
    kept = []
    for second in range(2):
        service({"metadata": {"namespace": "shop", "creationTimestamp": f"2026-11-30T15:16:0{second}Z"}})
        kept.append(projections._kept.cache_info().currsize)
    assert kept[0] == kept[1] > 0


def test_config_map_has_its_one_key():
    raw = {"metadata": {"namespace": "a", "name": "c", "uid": "u", "resourceVersion": "3"}, "data": {"config.yaml": ""}}

    assert config_map(raw) == ConfigMap("a", "c", "u", "")


@pytest.mark.parametrize("data", [None, {}, {"other": "x"}, {"config.yaml": 5}, 7])
def test_config_map_without_a_usable_key_has_none(data):
    assert config_map({"metadata": {"name": "c"}, "data": data}).text is None


# What hostile and broken objects say

SPOILT = {
    "externalIP that is none": (
        {"spec": {"externalIPs": ["300.1.1.1", "192.0.2.1"]}},
        "spec.externalIPs[0]: is not an IP",
    ),
    "externalIP with leading zeros": ({"spec": {"externalIPs": ["010.0.0.1", "192.0.2.1"]}}, "is not an IP"),
    "externalIP of a link": ({"spec": {"externalIPs": ["fe80::1%eth0", "192.0.2.1"]}}, "is not an IP"),
    "externalIP that is a number": (
        {"spec": {"externalIPs": [3232235777, "192.0.2.1"]}},
        "is not a string (3232235777)",
    ),
    "externalIP that is a network": ({"spec": {"externalIPs": ["192.0.2.0/24", "192.0.2.1"]}}, "is not an IP"),
    "externalIP of 100 kB": ({"spec": {"externalIPs": ["1" * 100_000, "192.0.2.1"]}}, "is not an IP"),
    "externalIP with control characters": ({"spec": {"externalIPs": ["\x1b[2J\n", "192.0.2.1"]}}, "is not an IP"),
    "externalIP with half a character": ({"spec": {"externalIPs": ["\ud800", "192.0.2.1"]}}, "is not a string"),
    "labels that are a list": (
        {"metadata": {"name": "web", "labels": []}, "spec": {"externalIPs": ["192.0.2.1"]}},
        "metadata.labels: is not an object",
    ),
    "label that is a number": (
        {"metadata": {"name": "web", "labels": {"a": 5}}, "spec": {"externalIPs": ["192.0.2.1"]}},
        "metadata.labels['a']: is not a string (5)",
    ),
    "annotation of a megabyte": (
        {
            "metadata": {"name": "web", "annotations": {"arpguard.io/owner": "x" * (1 << 20)}},
            "spec": {"externalIPs": ["192.0.2.1"]},
        },
        "has 1048576 characters",
    ),
    "status that is a text": ({"status": "x", "spec": {"externalIPs": ["192.0.2.1"]}}, "not an object ('x')"),
}


@pytest.mark.parametrize(("raw", "problem"), SPOILT.values(), ids=SPOILT.keys())
def test_what_is_wrong_is_said_and_the_rest_is_understood(raw, problem):
    found = service({"metadata": {"name": "web"}, **raw})

    assert found.name == "web"
    assert [str(ip) for ip in found.external_ips] == ["192.0.2.1"]
    assert len(found.problems) == 1
    assert problem in found.problems[0]
    assert len(found.problems[0]) < 200
    assert found.problems[0].isprintable()


@pytest.mark.parametrize(
    ("number", "problem"), [(1 << 31, "is not in 0..2147483647"), (True, "is not a whole number (True)")]
)
def test_number_that_makes_no_sense_counts_as_missing(number, problem):
    found = lease({"metadata": {"name": "node.a"}, "spec": {"leaseDurationSeconds": number}})

    assert (found.duration_s, found.problems) == (0, (f"spec.leaseDurationSeconds: {problem}",))


def test_names_that_are_too_long_are_none():
    found = service({"metadata": {"name": "x" * 254, "namespace": "n"}})

    assert (found.name, len(found.problems)) == ("", 1)
    assert key_of({"metadata": {"name": "x" * 254}}) is None


def test_problems_and_items_of_one_object_are_limited():
    found = service({"metadata": {"name": "web"}, "spec": {"externalIPs": ["x"] * 100_000}})

    assert len(found.problems) == MAX_PROBLEMS + 1
    assert found.problems[0] == f"spec.externalIPs: has 100000 items, more than {MAX_ITEMS}; ignoring the rest"
    assert found.problems[-1] == f"and {MAX_ITEMS - MAX_PROBLEMS + 1} more problems"


@pytest.mark.parametrize(
    "raw", [{}, {"metadata": None}, {"metadata": []}, {"metadata": {"name": None}}, {"metadata": 3}]
)
def test_objects_without_a_name_have_no_key(raw):
    assert key_of(raw) is None
    assert version_of(raw) == ""


@pytest.mark.parametrize("metadata", [{"name": "a\x1fb"}, {"name": "a", "namespace": "b\n"}])
def test_name_that_no_server_accepts_is_no_key(metadata):
    assert key_of({"metadata": metadata}) is None


def test_object_of_the_cluster_has_no_namespace():
    assert key_of({"metadata": {"name": "node-1"}}) == ("", "node-1")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["10.0.0.1", "True", "Ready"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = {
    "metadata": {
        "name": JSON,
        "namespace": JSON,
        "uid": JSON,
        "resourceVersion": JSON,
        "labels": JSON | st.dictionaries(st.text(max_size=4), JSON),
        "annotations": JSON | st.dictionaries(st.text(max_size=4).map("arpguard.io/".__add__), JSON),
        "finalizers": JSON | st.lists(JSON),
        "deletionTimestamp": JSON,
    },
    "spec": {
        "externalIPs": JSON | st.lists(JSON),
        "type": JSON,
        "podCIDRs": JSON | st.lists(JSON),
        "holderIdentity": JSON,
        "leaseDurationSeconds": JSON,
        "leaseTransitions": JSON,
    },
    "status": {
        "loadBalancer": JSON | st.fixed_dictionaries({"ingress": st.lists(st.fixed_dictionaries({"ip": JSON}) | JSON)}),
        "addresses": st.lists(st.fixed_dictionaries({"type": JSON, "address": JSON}) | JSON) | JSON,
        "conditions": st.lists(st.fixed_dictionaries({"type": JSON, "status": JSON}) | JSON) | JSON,
    },
}
OBJECT = st.fixed_dictionaries(
    {},
    optional={
        **{name: JSON | st.fixed_dictionaries({}, optional=fields) for name, fields in FIELDS.items()},
        "endpoints": JSON | st.lists(JSON | st.fixed_dictionaries({"nodeName": JSON, "conditions": JSON})),
        "data": JSON | st.fixed_dictionaries({"config.yaml": JSON}),
    },
)


@given(OBJECT)
def test_whatever_stands_in_an_object_it_is_read(raw):
    key_of(raw)
    version_of(raw)
    for project in ALL:
        found = project(raw)

        assert found == project(raw)
        assert hash(found) == hash(project(raw))
        problems = getattr(found, "problems", ())
        assert all(isinstance(problem, str) and problem.isprintable() for problem in problems)
        assert all(len(problem) < 1000 for problem in problems)


@pytest.mark.parametrize(("kind", "version"), [("IPv4", 4), ("IPv6", 6), ("FQDN", 0), (None, 0), (7, 0)])
def test_endpoint_slice_has_the_family_of_its_endpoints(kind, version):
    assert endpoint_slice({"metadata": {"namespace": "s", "name": "n"}, "addressType": kind}).version == version


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\u202ea", "\ufeff", "a/b", "a%2fb", "\ud800"])
@pytest.mark.parametrize("place", ["name", "namespace"])
def test_names_that_no_server_gives_are_none(place, name):
    """They would stand in the log, in Events, and on terminals."""
    key = key_of({"metadata": {"name": "web", "namespace": "shop", place: name}})

    assert key in ((None, ("", "web")) if place == "namespace" and name == "\ud800" else (None,))


def test_half_a_character_is_no_text():
    """No UTF-8 has it, so neither have messages nor Leases."""
    raw = {"metadata": {"name": "web", "uid": "\ud800", "labels": {"a": "\udfff", "b\ud800": "x", "c": "y"}}}

    found = service(raw)

    assert (found.uid, found.labels) == ("", (("c", "y"),))
    assert found.problems == (
        "metadata.uid: is not a string ('\\ud800')",
        "metadata.labels['a']: is not a string ('\\udfff')",
    )


@pytest.mark.parametrize("message", [{"a": 1}, ["x"], 5, None, ""])
def test_status_whose_message_is_no_text_has_none(message):
    assert message_of({"message": message, "reason": {"deep": [[]]}}) == "no message"
    assert message_of({"message": message, "reason": "Forbidden"}) == "Forbidden"


@pytest.mark.parametrize(
    ("raw", "deleting"),
    [
        ({}, False),
        ({"metadata": []}, False),
        ({"metadata": {"deletionTimestamp": None}}, False),
        ({"metadata": {"deletionTimestamp": 5}}, True),
    ],
)
def test_what_may_be_going_is_going(raw, deleting):
    assert is_deleting(raw) is deleting
