"""The node that another announcer has chosen is found in the objects that it writes, whatever stands in them."""

import copy
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.config.model import AgentConfig
from arpguard.core.cluster import MARKS, SpeakerReport
from arpguard.core.following import MAX_HEARD, Following, Source
from arpguard.core.sourcing import Sourcing
from arpguard.kube.projections import held, key_of, l2_status, service
from arpguard.model import Owner, OwnerKind
from support.kube.recordings import OF, RECORDED, recorded

IP, SECOND_IP, IP6 = (ip_address(text) for text in ("192.0.2.40", "192.0.2.41", "2001:db8::40"))
WEB = ("shop", "web")


def with_class(path: str, name: str | None) -> dict:
    raw = recorded(path)
    raw["spec"].pop("loadBalancerClass", None)
    return {**raw, "spec": {**raw["spec"], **({"loadBalancerClass": name} if name else {})}}


def marked(path: str, **annotations: str) -> dict:
    """A Service with these annotations."""
    raw = recorded(path)
    raw["metadata"].setdefault("annotations", {}).update(annotations)
    return raw


class Cluster:
    """What a reflector of each kind would tell, from recorded objects."""

    def __init__(self, *objects: tuple[Source, str]):
        self.following = Following()
        for source, path in objects:
            self.put(source, recorded(path))

    def put(self, source: Source, raw: dict) -> frozenset:
        return self.following.put(source, key_of(raw), OF[source].project(raw))

    def delete(self, source: Source, path: str) -> frozenset:
        return self.following.put(source, key_of(recorded(path)), None)

    def ask(self, raw: dict | str, address=IP):
        return self.following.node_of(service(recorded(raw) if isinstance(raw, str) else raw), address)

    def node(self, raw: dict | str, address=IP) -> str:
        return self.ask(raw, address).node


def test_source_is_lacking_where_a_service_has_no_other():
    cluster = Cluster((Source.METALLB, "metallb/status"))
    named, unnamed = recorded("metallb/service"), with_class("cilium/service", "io.cilium/l2-announcer")
    unnamed["metadata"]["name"] = "api"
    cluster.ask(named)
    assert cluster.following.lacking([]) == frozenset()

    cluster.ask(unnamed)
    assert cluster.following.lacking([Source.METALLB]) == {Source.CILIUM}
    assert cluster.following.lacking([Source.CILIUM]) == frozenset()


def dispute(first: tuple[str, str], other: tuple[str, str]) -> str:
    """The problem with two objects that name different nodes."""
    return (
        f"{first[0]} names the node {first[1]}, and {other[0]} names {other[1]}; {first[1]} takes precedence: check "
        "the announcer on both nodes"
    )


HOST = "annotation kube-vip.io/vipHost of Service shop/web"
IPV4 = "annotation purelb.io/announcing-IPv4 of Service shop/web"
PURELB_TO_0_16 = (
    "in PureLB 0.15 and 0.16 it does not say which node announces the address: upgrade PureLB, or use `owner: elect` "
    "and turn PureLB's announcer off"
)
LOCK = "kube-vip's Lease for all Services kube-system/plndr-svcs-lock"
STATUS = "MetalLB's ServiceL2Status metallb-system/l2-gjzc2"
NEW_STATUS = "MetalLB's ServiceL2Status metallb-system/l2-vr4dz"
LEASE = "Cilium's Lease kube-system/cilium-l2announce-shop-web"


# Each announcer


@pytest.mark.parametrize(
    ("path", "objects", "node", "why"),
    [
        (
            "metallb/service",
            [(Source.METALLB, "metallb/status")],
            "worker-1",
            STATUS,
        ),
        (
            "cilium/service",
            [(Source.CILIUM, "cilium/lease")],
            "worker-1",
            LEASE,
        ),
        (
            "kube-vip/service",
            [],
            "worker-1",
            HOST,
        ),
        (
            "kube-vip/service-of-its-class",
            [(Source.KUBE_VIP, "kube-vip/lock")],
            "worker-3",
            LOCK,
        ),
        (
            "kube-vip/service",
            [(Source.KUBE_VIP_SERVICES, "kube-vip/lease-of-the-service"), (Source.KUBE_VIP, "kube-vip/lock")],
            "worker-1",
            "kube-vip's Lease for a Service shop/kubevip-web",
        ),
        ("purelb/service-0.9", [], "worker-1", IPV4),
        ("purelb/service-0.17", [], "worker-1", IPV4),
        (
            "openelb/service-0.5",
            [(Source.OPENELB, "openelb/lease")],
            "worker-1",
            "OpenELB's Lease openelb-system/openelb-speaker",
        ),
    ],
)
def test_node_is_found_in_what_the_announcer_writes(path, objects, node, why):
    found = Cluster(*objects).ask(path)

    assert (found.node, found.why, found.problems) == (node, why, ())


@pytest.mark.parametrize(
    "path",
    [
        "metallb/service",
        "cilium/service",
        "kube-vip/service-of-its-class",
        "purelb/service-remote",
        "openelb/service-0.5",
        "openelb/service-0.6",
    ],
)
def test_nobody_is_followed_who_is_not_named(path):
    found = Cluster().ask(path)

    assert (found.node, found.problems) == ("", ())
    assert found.why.startswith("no object of ")


def test_openelb_0_6_names_nobody_even_if_a_lease_of_0_5_was_left():
    assert Cluster((Source.OPENELB, "openelb/lease")).node("openelb/service-0.6") == ""


def test_openelb_answers_where_its_leader_is_and_not_where_the_annotation_says():
    cluster = Cluster((Source.OPENELB, "openelb/lease"))

    assert cluster.node("openelb/service-0.5") == "worker-1"
    assert recorded("openelb/service-0.5")["metadata"]["annotations"]["layer2.openelb.kubesphere.io/v1alpha1"] == (
        "worker-3"
    )


def test_purelb_names_a_node_for_each_address_and_family():
    cluster = Cluster()

    assert cluster.node("purelb/service-0.17", SECOND_IP) == "worker-2"
    assert cluster.node("purelb/service-0.17", IP6) == "worker-3"
    assert cluster.node("purelb/service-0.9", IP6) == "worker-2"
    assert cluster.node("purelb/service-0.17", ip_address("192.0.2.99")) == ""


def test_purelb_that_appends_is_read_from_the_end():
    found = Cluster().ask("purelb/service-0.16")

    assert found.node == "worker-3"
    assert found.problems == (f"{IPV4} names worker-3, worker-1 for 192.0.2.40, but {PURELB_TO_0_16}",)


def test_purelb_to_0_16_that_went_back_to_a_node_may_be_followed_wrongly_and_that_is_said_once():
    """From worker-1 to worker-2 and back: the text has the entry of worker-1 already."""
    entries = f"worker-1,eth0,{IP} worker-2,eth0,{IP}"
    found = Cluster().ask(marked("purelb/service-0.9", **{"purelb.io/announcing-IPv4": entries}))

    assert found.problems == (f"{IPV4} names worker-2, worker-1 for 192.0.2.40, but {PURELB_TO_0_16}",)


def test_purelb_to_0_16_that_leaves_an_entry_out_is_a_problem():
    """It looks for `worker-1,eth0,192.0.2.4`, and finds that in what it wrote for 192.0.2.40."""
    raw = marked("purelb/service-0.9", **{"purelb.io/announcing-IPv4": f"worker-1,eth0,{IP}"})
    found = Cluster().ask(raw, ip_address("192.0.2.4"))

    assert found.node == ""
    assert found.problems == (f"{IPV4} names no node for 192.0.2.4, but {PURELB_TO_0_16}",)
    assert Cluster().ask(raw).problems == ()


@pytest.mark.parametrize("entry", ["worker-1,eth0,1,192.0.2.40", "worker-1,eth0"])
def test_purelb_interface_may_have_a_comma(entry):
    assert Cluster().node(marked("purelb/service-0.9", **{"purelb.io/announcing-IPv4": entry})) == "worker-1"


def test_kube_vip_lease_has_the_name_that_the_service_asks_for():
    cluster = Cluster((Source.KUBE_VIP_SERVICES, "kube-vip/lease-of-that-name"))
    cluster.put(Source.KUBE_VIP_SERVICES, recorded("kube-vip/lease-of-the-service"))

    assert cluster.node("kube-vip/service-with-lease-name") == "worker-3"


def test_kube_vip_lease_name_without_a_namespace_is_in_that_of_the_service():
    lease = recorded("kube-vip/lease-of-that-name")
    lease["metadata"]["namespace"] = "shop"
    cluster = Cluster((Source.KUBE_VIP_SERVICES, "kube-vip/lease-of-the-service"))
    cluster.put(Source.KUBE_VIP_SERVICES, lease)

    assert cluster.node(marked("kube-vip/service", **{"kube-vip.io/leaseName": "shared"})) == "worker-3"


def test_kube_vip_lock_is_about_services_that_it_has_only():
    cluster = Cluster((Source.KUBE_VIP, "kube-vip/lock"))

    assert cluster.node("metallb/service") == ""


# Cilium's names


@pytest.mark.parametrize(
    ("namespace", "name"), [("shop", "eu-web-tls"), ("shop-eu", "web-tls"), ("shop-eu-web", "tls")]
)
def test_cilium_lease_is_of_every_service_whose_names_make_its_name(namespace, name):
    """In Cilium too: with these names there is one Lease, and its holder announces them all."""
    raw = recorded("cilium/service")
    raw["metadata"] |= {"namespace": namespace, "name": name}

    assert Cluster((Source.CILIUM, "cilium/lease-with-dashes")).node(raw) == "worker-2"


def test_cilium_lease_is_of_no_service_whose_name_it_begins_or_ends_with():
    cluster = Cluster((Source.CILIUM, "cilium/lease-with-dashes"))
    for namespace, name in (("shop", "eu-web"), ("shop", "eu"), ("eu", "web-tls"), ("shop", "eu-web-tls-2")):
        raw = recorded("cilium/service")
        raw["metadata"] |= {"namespace": namespace, "name": name}

        assert cluster.node(raw) == "", (namespace, name)


def test_services_whose_names_make_one_lease_move_together():
    cluster = Cluster()
    keys = {("shop", "eu-web-tls"), ("shop-eu", "web-tls")}
    for namespace, name in keys:
        raw = recorded("cilium/service")
        raw["metadata"] |= {"namespace": namespace, "name": name}
        cluster.ask(raw)

    assert cluster.put(Source.CILIUM, recorded("cilium/lease-with-dashes")) == keys


# Moves


def test_metallb_moves_by_deleting_one_status_and_creating_another():
    cluster = Cluster((Source.METALLB, "metallb/status"))
    assert cluster.node("metallb/service") == "worker-1"

    cluster.delete(Source.METALLB, "metallb/status")
    assert cluster.node("metallb/service") == ""
    cluster.put(Source.METALLB, recorded("metallb/status-of-the-new-node"))
    assert cluster.node("metallb/service") == "worker-2"


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_metallb_statuses_the_newer_one_is_followed_and_that_is_a_problem(order):
    paths = ["metallb/status", "metallb/status-of-the-new-node"][::order]
    found = Cluster(*[(Source.METALLB, path) for path in paths]).ask("metallb/service")

    assert found.node == "worker-2"
    assert found.problems == (dispute((NEW_STATUS, "worker-2"), (STATUS, "worker-1")),)


def test_metallb_status_counts_from_its_creation_before_it_is_filled_in():
    assert Cluster((Source.METALLB, "metallb/status-just-created")).node("metallb/service") == "worker-2"


def test_metallb_to_0_15_moves_by_the_label_of_an_object_whose_status_cannot_change():
    raw = recorded("metallb/status")
    raw["metadata"]["labels"]["metallb.io/node"] = "worker-2"
    cluster = Cluster()
    cluster.put(Source.METALLB, raw)

    assert cluster.node("metallb/service") == "worker-2"


def an_event(node: str, version: int, **changes: str) -> dict:
    raw = recorded("metallb/event")
    raw["metadata"] |= {"name": f"web.{node}", "resourceVersion": str(version)}
    raw["message"] = f'announcing from node "{node}" with protocol "layer2"'
    raw["involvedObject"] |= changes
    return raw


def test_metallb_event_that_was_written_last_counts_while_there_is_no_object():
    cluster = Cluster()
    cluster.put(Source.METALLB_EVENT, an_event("worker-2", 99999))
    cluster.put(Source.METALLB_EVENT, an_event("worker-1", 100000))
    found = cluster.ask("metallb/service")

    assert (found.node, found.problems) == ("worker-1", ())
    assert found.why == "MetalLB's Event shop/web.worker-1"
    assert cluster.following.unsettled == {WEB}


def test_metallb_object_outdates_the_events():
    cluster = Cluster()
    cluster.put(Source.METALLB_EVENT, an_event("worker-2", 7))
    cluster.put(Source.METALLB, recorded("metallb/status"))
    assert cluster.node("metallb/service") == "worker-1"
    assert cluster.following.unsettled == frozenset()

    cluster.delete(Source.METALLB, "metallb/status")
    assert cluster.node("metallb/service") == ""
    assert cluster.following.unsettled == {WEB}


def test_event_from_before_the_last_object_does_not_count():
    cluster = Cluster()
    cluster.ask("metallb/service")
    raw = recorded("metallb/status")
    raw["metadata"]["resourceVersion"] = "100"
    cluster.put(Source.METALLB, raw)
    cluster.delete(Source.METALLB, "metallb/status")
    cluster.put(Source.METALLB_EVENT, an_event("worker-2", 99))
    assert cluster.node("metallb/service") == ""

    cluster.put(Source.METALLB_EVENT, an_event("worker-3", 101))
    assert cluster.node("metallb/service") == "worker-3"


def disputed(version: int, node: str = "worker-2") -> dict:
    """The label is the leader's, the status that of the first one for ever."""
    raw = recorded("metallb/status")
    raw["metadata"]["labels"]["metallb.io/node"] = node
    raw["metadata"]["resourceVersion"] = str(version)
    return raw


@pytest.mark.parametrize("heard", [1, -1], ids=["the object is heard of first", "the Event is heard of first"])
@pytest.mark.parametrize(("version", "node"), [(98, "worker-2"), (101, "worker-1")])
def test_where_label_and_status_differ_the_speaker_that_began_last_is_followed(version, node, heard):
    """The first leader announces again and writes nothing, if the one between is dead and its label left."""
    cluster = Cluster()
    cluster.ask("metallb/service")
    events = [(Source.METALLB_EVENT, an_event(*each)) for each in (("worker-2", 99), ("worker-1", version))]
    for source, raw in [(Source.METALLB, disputed(100)), *events][::heard]:
        cluster.put(source, raw)
    found = cluster.ask("metallb/service")

    assert (found.node, found.problems) == (node, ())
    assert cluster.following.unsettled == {WEB}


def test_event_after_the_last_version_of_a_disputed_object_counts_where_the_labelled_speaker_has_none():
    """Its Event is from before another object, which nothing disputed, and which is gone."""
    cluster = Cluster()
    cluster.ask("metallb/service")
    cluster.put(Source.METALLB, disputed(100))
    assert cluster.node("metallb/service") == "worker-2"
    cluster.put(Source.METALLB_EVENT, an_event("worker-1", 101))
    assert cluster.node("metallb/service") == "worker-1"


def test_event_after_an_object_that_nothing_disputes_does_not_count():
    cluster = Cluster((Source.METALLB, "metallb/status"))
    cluster.put(Source.METALLB_EVENT, an_event("worker-2", 1 << 60))

    assert cluster.node("metallb/service") == "worker-1"
    assert cluster.following.unsettled == frozenset()


def test_event_counts_on_when_the_server_drops_it_after_an_hour():
    cluster = Cluster()
    cluster.ask("metallb/service")
    cluster.put(Source.METALLB, disputed(100))
    cluster.put(Source.METALLB_EVENT, an_event("worker-2", 99))
    cluster.put(Source.METALLB_EVENT, an_event("worker-1", 101))
    cluster.following.put(Source.METALLB_EVENT, key_of(an_event("worker-1", 101)), None)
    assert cluster.node("metallb/service") == "worker-1"

    cluster.put(Source.METALLB, disputed(102))  # the garbage collector, or worker-2 that tries again
    assert cluster.node("metallb/service") == "worker-1"

    cluster.put(Source.METALLB, disputed(103, "worker-3"))
    assert cluster.node("metallb/service") == "worker-3"
    cluster.put(Source.METALLB_EVENT, an_event("worker-3", 104))
    assert cluster.node("metallb/service") == "worker-3"


def test_event_of_before_is_no_news():
    cluster = Cluster()
    cluster.put(Source.METALLB_EVENT, an_event("worker-1", 101))
    cluster.put(Source.METALLB_EVENT, an_event("worker-2", 100))

    assert cluster.node("metallb/service") == "worker-1"


def test_of_each_speaker_one_event_is_remembered_however_often_it_starts_anew():
    cluster = Cluster()
    for version in range(101, 120):
        raw = an_event("worker-1", version)
        raw["metadata"]["name"] = f"web.{version}"
        cluster.put(Source.METALLB_EVENT, raw)
    found = cluster.ask("metallb/service")

    assert (found.node, found.why) == ("worker-1", "MetalLB's Event shop/web.119")
    assert len(cluster.following._placed[Source.METALLB_EVENT]) == 1


def reported(version: int, *, answers: bool) -> dict:
    return {WEB: SpeakerReport(f"{version:020}", answers=answers)}


def starting_speaker() -> Cluster:
    """worker-2 began to announce last and left its label, though worker-1 announces: the status is still its own."""
    cluster = Cluster()
    cluster.ask("metallb/service")
    cluster.put(Source.METALLB, disputed(102))
    for node, version in (("worker-1", 99), ("worker-3", 100), ("worker-2", 101)):
        cluster.put(Source.METALLB_EVENT, an_event(node, version))
    assert cluster.node("metallb/service") == "worker-2"
    return cluster


def test_nodes_are_named_by_events_else_by_label_and_last_by_the_status():
    cluster = starting_speaker()
    assert list(cluster.following.named(WEB)) == ["worker-2", "worker-3", "worker-1"]

    bare = Cluster()
    bare.ask("metallb/service")
    bare.put(Source.METALLB, disputed(102))
    assert bare.following.named(WEB) == {"worker-2": f"{102:020}", "worker-1": ""}


def test_where_the_announcer_is_reported_silent_the_node_named_before_is_followed():
    cluster = starting_speaker()
    assert cluster.following.hear("worker-2", reported(101, answers=False)) == {WEB}
    found = cluster.ask("metallb/service")
    assert (found.node, found.settled, found.problems) == ("worker-3", False, ())
    assert found.why == (
        "MetalLB's ServiceL2Status metallb-system/l2-gjzc2 names worker-2, but the agent on worker-2 reports "
        "no answer from the announcer there, so the agents still follow worker-3, which was named before"
    )

    cluster.following.hear("worker-3", reported(101, answers=False))
    assert cluster.node("metallb/service") == "worker-1"


def test_where_all_are_reported_silent_objects_are_followed():
    cluster = starting_speaker()
    for node in ("worker-3", "worker-2", "worker-1"):
        cluster.following.hear(node, reported(101, answers=False))
    assert cluster.node("metallb/service") == "worker-2"


def test_announcer_that_is_reported_to_answer_is_followed():
    cluster = starting_speaker()
    cluster.following.hear("worker-2", reported(101, answers=False))
    cluster.following.hear("worker-1", reported(101, answers=True))
    assert cluster.node("metallb/service") == "worker-1"


def test_report_that_is_taken_back_counts_no_more():
    cluster = starting_speaker()
    cluster.following.hear("worker-2", reported(101, answers=False))
    assert cluster.following.hear("worker-2", {}) == {WEB}
    assert cluster.node("metallb/service") == "worker-2"
    assert cluster.following.hear("worker-2", {}) == frozenset()


@pytest.mark.parametrize("answers", [True, False])
def test_report_from_before_the_last_word_of_the_announcer_does_not_count(answers):
    cluster = starting_speaker()
    node = "worker-1" if answers else "worker-2"
    cluster.following.hear(node, reported(100, answers=answers))
    assert cluster.node("metallb/service") == "worker-2"


def test_report_of_silence_counts_until_that_node_is_named_again():
    cluster = starting_speaker()
    cluster.following.hear("worker-2", reported(101, answers=False))
    cluster.put(Source.METALLB_EVENT, an_event("worker-3", 105))
    cluster.following.hear("worker-3", reported(105, answers=False))
    assert cluster.node("metallb/service") == "worker-1"

    cluster.put(Source.METALLB_EVENT, an_event("worker-2", 106))
    assert cluster.node("metallb/service") == "worker-2"


def test_report_of_a_node_that_nothing_names_does_not_count():
    cluster = starting_speaker()
    cluster.following.hear("worker-9", reported(200, answers=True))
    assert cluster.node("metallb/service") == "worker-2"


def test_no_report_counts_against_an_object_that_nothing_disputes():
    cluster = Cluster((Source.METALLB, "metallb/status"))
    cluster.ask("metallb/service")
    cluster.following.hear("worker-1", reported(1 << 60, answers=False))
    assert cluster.node("metallb/service") == "worker-1"


def test_no_report_counts_where_an_object_settles_who_announces():
    cluster = Cluster((Source.METALLB, "metallb/status"))
    other = disputed(200, "worker-2")
    other["metadata"] |= {"name": "l2-older", "creationTimestamp": "2020-01-01T00:00:00Z"}
    cluster.put(Source.METALLB, other)
    assert cluster.node("metallb/service") == "worker-1"
    cluster.following.hear("worker-1", reported(1 << 60, answers=False))
    assert cluster.node("metallb/service") == "worker-1"


def test_report_about_another_node_leaves_what_objects_say():
    """The labelled node has no Event, and its label may be newer than another's."""
    cluster = Cluster()
    cluster.ask("metallb/service")
    cluster.put(Source.METALLB, disputed(100))
    cluster.put(Source.METALLB_EVENT, an_event("worker-3", 99))
    assert cluster.node("metallb/service") == "worker-2"
    cluster.following.hear("worker-1", reported(99, answers=False))
    assert cluster.node("metallb/service") == "worker-2"


def test_report_may_come_before_the_service_is_followed():
    cluster = Cluster()
    assert cluster.following.hear("worker-2", reported(101, answers=False)) == frozenset()
    cluster.put(Source.METALLB, disputed(100))
    cluster.put(Source.METALLB_EVENT, an_event("worker-2", 101))
    assert cluster.node("metallb/service") == "worker-1"


def test_event_does_not_outlive_its_service():
    cluster = Cluster()
    cluster.put(Source.METALLB_EVENT, an_event("worker-1", 101))
    cluster.ask("metallb/service")
    cluster.following.leave([WEB])

    assert cluster.node("metallb/service") == ""


def test_event_of_a_service_of_that_name_that_is_gone_does_not_count():
    cluster = Cluster()
    cluster.put(Source.METALLB_EVENT, an_event("worker-2", 7, uid="other"))

    assert cluster.node("metallb/service") == ""


@pytest.mark.parametrize("protocol", ["bgp", 'layer2"x', ""])
def test_event_of_another_protocol_names_nobody(protocol):
    raw = an_event("worker-1", 7)
    raw["message"] = raw["message"].replace("layer2", protocol)

    assert OF[Source.METALLB_EVENT].project(raw).node == ""


def test_service_that_no_event_may_be_about_is_settled():
    cluster = Cluster()
    cluster.ask("cilium/service")

    assert cluster.following.unsettled == frozenset()


def test_lease_that_moves_is_followed_and_a_renewal_changes_nothing():
    cluster = Cluster((Source.CILIUM, "cilium/lease"))
    raw = recorded("cilium/lease")
    raw["metadata"]["resourceVersion"] = "999999"
    raw["spec"] |= {"renewTime": "2027-01-01T00:00:00.000000Z"}
    assert held(raw) == held(recorded("cilium/lease"))

    raw["spec"] |= {"holderIdentity": "worker-3", "leaseTransitions": 2}
    cluster.put(Source.CILIUM, raw)
    assert cluster.node("cilium/service") == "worker-3"


def test_lease_that_nobody_renews_names_its_holder_still():
    raw = recorded("cilium/lease")
    raw["spec"] |= {"renewTime": "2001-01-01T00:00:00.000000Z"}
    cluster = Cluster()
    cluster.put(Source.CILIUM, raw)

    assert cluster.node("cilium/service") == "worker-1"


def test_released_lease_names_nobody():
    assert Cluster((Source.CILIUM, "cilium/lease-released")).node("cilium/service") == ""


def test_kube_vip_lease_is_ahead_of_the_annotation_and_they_disagree_until_it_is_written():
    cluster = Cluster((Source.KUBE_VIP, "kube-vip/lock"))
    found = cluster.ask("kube-vip/service")

    assert found.node == "worker-3"
    assert found.problems == (dispute((LOCK, "worker-3"), (HOST, "worker-1")),)
    assert cluster.following.problems == (f"service shop/web: {found.problems[0]}",)

    after = marked("kube-vip/service", **{"kube-vip.io/vipHost": "worker-3"})
    assert cluster.ask(after).problems == ()
    assert cluster.following.problems == ()


def test_kube_vip_lease_of_the_service_that_was_released_gives_way_to_that_of_all():
    raw = recorded("kube-vip/lease-of-the-service")
    raw["spec"].pop("holderIdentity")
    cluster = Cluster((Source.KUBE_VIP, "kube-vip/lock"))
    cluster.put(Source.KUBE_VIP_SERVICES, raw)

    assert cluster.node("kube-vip/service") == "worker-3"


@pytest.mark.parametrize(
    ("source", "path", "about"),
    [
        (Source.METALLB, "metallb/status", "metallb/service"),
        (Source.CILIUM, "cilium/lease", "cilium/service"),
        (Source.KUBE_VIP, "kube-vip/lock", "kube-vip/service-of-its-class"),
        (Source.KUBE_VIP_SERVICES, "kube-vip/lease-of-the-service", "kube-vip/service-of-its-class"),
        (Source.OPENELB, "openelb/lease", "openelb/service-0.5"),
    ],
)
def test_change_tells_which_services_it_is_about_and_what_is_gone_is_not_followed(source, path, about):
    cluster = Cluster()
    asked = service(recorded(about))
    assert cluster.following.node_of(asked, IP).node == ""

    assert cluster.put(source, recorded(path)) == {WEB}
    assert cluster.following.node_of(asked, IP).node != ""
    assert cluster.delete(source, path) == {WEB}
    assert cluster.following.node_of(asked, IP).node == ""
    cluster.put(source, recorded(path))
    assert cluster.following.forget(source) == {WEB}
    assert cluster.following.node_of(asked, IP).node == ""


def test_change_about_other_services_is_about_none():
    cluster = Cluster()
    cluster.ask("cilium/service")

    assert cluster.put(Source.CILIUM, recorded("cilium/lease-with-dashes")) == frozenset()
    assert cluster.delete(Source.CILIUM, "cilium/lease") == frozenset()


def test_status_that_turns_to_another_service_leaves_the_first():
    cluster = Cluster((Source.METALLB, "metallb/status"))
    cluster.ask("metallb/service")
    raw = recorded("metallb/status")
    raw["metadata"]["labels"]["metallb.io/service-name"] = "other"

    assert cluster.put(Source.METALLB, raw) == {WEB}
    assert cluster.node("metallb/service") == ""


# Who may have a Service, and what is watched for it


@pytest.mark.parametrize(
    ("raw", "sources"),
    [
        (recorded("cilium/service"), {Source.CILIUM}),
        (with_class("cilium/service", None), {Source.CILIUM, Source.METALLB}),
        (recorded("metallb/service"), {Source.CILIUM, Source.METALLB}),
        (with_class("metallb/service", "example.com/metallb"), {Source.METALLB}),
        (recorded("kube-vip/service-of-its-class"), {Source.KUBE_VIP, Source.KUBE_VIP_SERVICES}),
        (
            recorded("kube-vip/service"),
            {Source.KUBE_VIP, Source.KUBE_VIP_SERVICES, Source.METALLB, Source.CILIUM},
        ),
        (
            with_class("kube-vip/service", "example.com/kube-vip"),
            {Source.KUBE_VIP, Source.KUBE_VIP_SERVICES, Source.METALLB},
        ),
        (recorded("purelb/service-0.9"), set()),
        (recorded("purelb/service-0.17"), set()),
        (with_class("purelb/service-0.9", "purelb.io/purelb"), set()),
        (recorded("openelb/service-0.5"), {Source.OPENELB}),
        (recorded("openelb/service-0.6"), set()),
    ],
)
def test_only_what_may_name_the_node_is_watched(raw, sources):
    following = Following()
    following.node_of(service(raw), IP)

    assert following.sources == sources


def test_object_is_followed_while_one_service_is_left_that_it_is_about():
    following = Following()
    lock = recorded("kube-vip/lock")
    first, second = recorded("kube-vip/service-of-its-class"), recorded("kube-vip/service-of-its-class")
    second["metadata"]["name"] = "second"
    for raw in (first, second):
        following.node_of(service(raw), IP)

    following.leave([key_of(first)])

    assert following.put(Source.KUBE_VIP, key_of(lock), held(lock)) == {key_of(second)}
    assert following.sources == {Source.KUBE_VIP, Source.KUBE_VIP_SERVICES}


def test_of_two_statuses_the_one_that_is_left_is_followed():
    cluster = Cluster((Source.METALLB, "metallb/status"), (Source.METALLB, "metallb/status-of-the-new-node"))
    cluster.delete(Source.METALLB, "metallb/status-of-the-new-node")
    found = cluster.ask("metallb/service")

    assert (found.node, found.why, found.problems) == ("worker-1", STATUS, ())


def test_nothing_is_watched_for_services_that_follow_no_longer():
    cluster = Cluster()
    cluster.ask("cilium/service")
    cluster.ask("kube-vip/service")
    assert cluster.following.sources == {Source.CILIUM, Source.KUBE_VIP, Source.KUBE_VIP_SERVICES, Source.METALLB}

    cluster.following.leave({WEB, ("no", "such")})
    assert cluster.following.sources == frozenset()
    assert cluster.put(Source.CILIUM, recorded("cilium/lease")) == frozenset()


def test_class_decides_against_what_others_left_on_the_service():
    raw = with_class("kube-vip/service", "io.cilium/l2-announcer")
    found = Cluster((Source.CILIUM, "cilium/lease"), (Source.KUBE_VIP, "kube-vip/lock")).ask(raw)

    assert (found.node, found.why, found.problems) == ("worker-1", LEASE, ())


def test_two_announcers_of_a_service_are_a_problem_and_one_is_followed():
    cluster = Cluster((Source.METALLB, "metallb/status-of-the-new-node"), (Source.CILIUM, "cilium/lease"))
    found = cluster.ask("kube-vip/service")

    assert (found.node, found.why) == ("worker-2", NEW_STATUS)
    assert found.problems == (
        dispute((NEW_STATUS, "worker-2"), (LEASE, "worker-1")),
        dispute((NEW_STATUS, "worker-2"), (HOST, "worker-1")),
    )


def test_announcers_that_agree_are_no_problem():
    cluster = Cluster((Source.METALLB, "metallb/status"), (Source.CILIUM, "cilium/lease"))

    assert cluster.ask("kube-vip/service").problems == ()


def test_vips_follow_from_node_to_node_and_what_follows_no_longer_is_not_watched():
    following, sourcing = Following(), Sourcing()
    config = AgentConfig(ranges=(ip_network("192.0.2.0/24"),))
    raw = marked("cilium/service", **{"arpguard.io/owner": "follow"})
    services = {WEB: service(raw)}

    def collect():
        collected = sourcing.collect(
            config, services, {}, {}, followed=lambda web, address: following.node_of(web, address).node
        )
        following.leave({WEB} - collected.follows)
        return collected.vips[IP].owner

    assert (collect(), following.sources) == (Owner(OwnerKind.FOLLOW), {Source.CILIUM})
    following.put(Source.CILIUM, ("kube-system", "x"), held(recorded("cilium/lease")))
    assert collect() == Owner(OwnerKind.FOLLOW, node="worker-1")
    moved = recorded("cilium/lease")
    moved["spec"]["holderIdentity"] = "worker-2"
    following.put(Source.CILIUM, ("kube-system", "x"), held(moved))
    assert collect() == Owner(OwnerKind.FOLLOW, node="worker-2")
    services[WEB] = service(recorded("cilium/service"))
    assert (collect().kind, following.sources) == (OwnerKind.ELECT, frozenset())


# What hostile and broken objects say


@pytest.mark.parametrize("host", ["Worker 1", "worker-1\n", "-a", "../x", "\x1b[2J", "x" * 4000, "wörker"])
def test_what_cannot_be_a_node_is_none(host):
    found = Cluster().ask(marked("kube-vip/service", **{"kube-vip.io/vipHost": host}))

    assert found.node == ""
    assert len(found.problems) == 1
    assert found.problems[0].isprintable()
    assert len(found.problems[0]) < 250
    assert "has an invalid node name" in found.problems[0]


@pytest.mark.parametrize(
    "text", ["", " ", ",", ",,", ",eth0,192.0.2.40", "worker-1", "worker-1,", "a,b,c,d", "worker-1,eth0,192.0.2.400"]
)
def test_purelb_annotation_that_makes_no_sense_names_nobody(text):
    found = Cluster().node(marked("purelb/service-0.9", **{"purelb.io/announcing-IPv4": text}))

    assert found == ("worker-1" if text == "worker-1," else "")


def test_object_that_is_spoilt_is_a_problem_of_the_services_it_is_about():
    raw = recorded("metallb/status")
    raw["metadata"]["labels"]["metallb.io/node"] = 5
    cluster = Cluster()
    cluster.put(Source.METALLB, raw)
    found = cluster.ask("metallb/service")

    assert found.node == "worker-1"  # its status says the same
    assert found.problems == (
        "MetalLB's ServiceL2Status metallb-system/l2-gjzc2: metadata.labels: is not a string (5)",
    )


def test_marks_that_are_no_text_are_left_out():
    raw = recorded("kube-vip/service")
    raw["metadata"]["annotations"] |= {"kube-vip.io/vipHost": 7, "kube-vip.io/leaseName": "x" * 5000}
    found = service(raw)

    assert found.marks == ()
    assert len(found.problems) == 2


def test_of_other_annotations_nothing_is_kept():
    found = service(recorded("kube-vip/service"))

    assert found.annotations == ()
    assert found.marks == (("kube-vip.io/vipHost", "worker-1"),)


PATHS = sorted(str(path.relative_to(RECORDED).with_suffix("")) for path in RECORDED.rglob("*.json"))
SPOILED = 20  # of them at a time
TEXT = st.text(max_size=6) | st.sampled_from(["worker-1", "worker-1,eth0", "a,b,192.0.2.40", "/", "a/b/c"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def _spoil(data, raw):
    """One value somewhere in an object, replaced by junk."""
    while isinstance(raw, dict) and raw and data.draw(st.integers(0, 5)):
        name = data.draw(st.sampled_from(sorted(raw)))
        if not isinstance(raw[name], dict) or not data.draw(st.integers(0, 3)):
            raw[name] = data.draw(JUNK)
            return
        raw = raw[name]


@given(st.data())
def test_whatever_stands_in_their_objects_an_answer_is_given(data):
    paths = data.draw(st.randoms(use_true_random=False)).sample(PATHS, SPOILED)
    objects = [copy.deepcopy(recorded(path)) for path in paths]
    for raw in objects:
        _spoil(data, raw)
    following = Following()
    for raw in objects:
        key = key_of(raw)
        for source in Source if key else ():
            following.put(source, key, OF[source].project(raw))
    marks = {name: data.draw(JUNK) for name in data.draw(st.sets(st.sampled_from(sorted(MARKS))))}
    for raw in filter(key_of, [*objects, {"metadata": {"name": "x", "namespace": "y", "annotations": marks}}]):
        asked = service(raw)
        for address in (IP, IP6):
            found = following.node_of(asked, address)
            assert found == following.node_of(service(copy.deepcopy(raw)), address)
    assert all(problem.isprintable() for problem in following.problems)


def test_both_projections_read_what_is_no_object_of_theirs():
    for project in (held, l2_status):
        assert project({}).about == ("", "")
        assert project({"metadata": {"labels": 3}, "spec": [], "status": "x"}).node == ""


def test_of_many_purelb_entries_the_newest_are_read():
    """A thousand addresses that were each looked for in 680 entries took seconds."""
    entries = [f"worker-{number},eth0,{IP}" for number in range(MAX_HEARD + 9)]
    found = Cluster().ask(marked("purelb/service-0.9", **{"purelb.io/announcing-IPv4": " ".join(entries)}))

    assert found.node == f"worker-{MAX_HEARD + 8}"
    assert len(found.problems) == 1
    assert f"and {MAX_HEARD - 5} more" in found.problems[0]
    old = [f"worker-1,eth0,{IP}", *[f"worker-2,eth0,{SECOND_IP}"] * MAX_HEARD]
    assert Cluster().node(marked("purelb/service-0.9", **{"purelb.io/announcing-IPv4": " ".join(old)})) == ""


def test_of_many_objects_about_a_service_the_newest_are_heard():
    cluster, name = Cluster(), "metallb/status"
    for number in range(MAX_HEARD + 20):
        raw = copy.deepcopy(recorded(name))
        raw["metadata"] |= {"name": f"l2-{number}", "creationTimestamp": f"2026-08-03T09:{number:02}:00Z"}
        raw["metadata"]["labels"]["metallb.io/node"] = f"worker-{number}"
        cluster.put(Source.METALLB, raw)

    found = cluster.ask("metallb/service")

    assert found.node == f"worker-{MAX_HEARD + 19}"
    assert len(found.problems) == MAX_HEARD - 1
