"""Which VIPs there are, from where, and whose; what is refused, and what is said about it."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from arpguard.addresses import MacAddress
from arpguard.config.model import AgentConfig, ServicesConfig
from arpguard.core.admission import Avoided, avoided
from arpguard.core.cluster import EndpointSlice, Node, Service
from arpguard.core.sourcing import Sourcing, follow_nobody
from arpguard.core.telling import MAX_ALIKE, MAX_OF_NODES, MAX_PROBLEMS
from arpguard.model import InterfaceAddress, Link, Owner, OwnerKind, Surroundings, Vip
from arpguard.verdict import Mode

VIP, OTHER = ip_address("198.51.100.50"), ip_address("198.51.100.51")
VIP6 = ip_address("2001:db8::50")
CONFIG = AgentConfig(ranges=(ip_network("198.51.100.0/24"),))
NODES = {
    "n1": Node(
        "n1",
        addresses=(ip_address("198.51.100.1"), ip_address("2001:db8::1")),
        pod_networks=(ip_network("198.51.100.128/26"), ip_network("2001:db8:0:0:8000::/80")),
    ),
    "n2": Node("n2", addresses=(ip_address("198.51.100.2"),)),
}
ELECT = Owner(OwnerKind.ELECT)
NOTHING = Avoided()


def a_service(name="web", *addresses, labels=(), local_only=False, problems=(), **annotations):
    texts = tuple(sorted((f"arpguard.io/{key}", text) for key, text in annotations.items()))
    return Service(
        "shop",
        name,
        uid=f"uid-{name}",
        labels=labels,
        annotations=texts,
        external_ips=addresses or (VIP,),
        local_only=local_only,
        problems=problems,
    )


def a_slice(service, *nodes, name=""):
    return EndpointSlice("shop", name or f"{service}-1", service, nodes)


def by_key(*objects):
    return {(each.namespace, each.name): each for each in objects}


def collect(*services, config=CONFIG, slices=(), nodes=NODES, avoided=NOTHING, followed=follow_nobody):
    known = None if slices is None else by_key(*slices)
    return Sourcing().collect(config, by_key(*services), known, nodes, avoided, followed)


def reasons(collected):
    return [(notice.subject.name, notice.reason) for notice in collected.notices]


def test_service_brings_its_addresses_each_once():
    service = replace(a_service("web", VIP, OTHER), ingress_ips=(OTHER, ip_address("198.51.100.52")))

    collected = collect(service)

    assert set(collected.vips) == {VIP, OTHER, ip_address("198.51.100.52")}
    assert collected.vips[VIP] == Vip(VIP, ELECT, source="service shop/web")
    assert (collected.problems, collected.notices, collected.needs_slices) == ((), (), False)


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ("node/n1", Owner(OwnerKind.NODE, node="n1")),
        ("external", Owner(OwnerKind.EXTERNAL)),
        ("external/02:00:00:00:00:AA", Owner(OwnerKind.EXTERNAL, mac=MacAddress.parse("02:00:00:00:00:aa"))),
        ("elect", ELECT),
        ("follow", Owner(OwnerKind.FOLLOW)),
    ],
)
def test_annotation_names_the_owner(owner, expected):
    collected = collect(a_service(owner=owner))

    assert (collected.vips[VIP].owner, collected.problems) == (expected, ())


@pytest.mark.parametrize(
    "owner",
    [
        "",
        "me",
        "node",
        "node/",
        "node/UPPER",
        "external/",
        "external/nobody",
        "external/ff:ff:ff:ff:ff:ff",
        "elect/n1",
        "keepalived/VI_1",
    ],
)
def test_service_whose_owner_cannot_be_read_is_left_alone(owner):
    collected = collect(a_service(owner=owner))

    assert collected.vips == {}
    assert reasons(collected) == [("web", "BadAnnotation")]
    assert "arpguard.io/owner" in collected.problems[0]
    assert "node/NAME, external, external/MAC, elect or follow" in collected.problems[0]


def test_annotations_say_mode_interface_and_hold():
    vip = collect(a_service(mode="enforce", interface="eth1", hold="true")).vips[VIP]

    assert (vip.mode, vip.interface, vip.unfenced) == (Mode.ENFORCE, "eth1", True)


@pytest.mark.parametrize(
    ("name", "text"),
    [("mode", "on"), ("interface", "a name of many words"), ("interface", "a/b"), ("hold", "yes"), ("onwer", "elect")],
)
def test_other_annotation_that_cannot_be_read_counts_as_not_there(name, text):
    collected = collect(a_service(**{name: text}))

    assert collected.vips == {VIP: Vip(VIP, ELECT, source="service shop/web")}
    assert reasons(collected) == [("web", "BadAnnotation")]
    assert f"arpguard.io/{name}" in collected.problems[0]


OWNERS = "node/NAME, external, external/MAC, elect or follow"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (
            "owner",
            "me",
            f"must be {OWNERS}, not me; arpguard ignores this Service until that is corrected",
        ),
        ("mode", "on", "must be observe or enforce, not on"),
        ("interface", "a/b", "must be the name of an interface such as eth0, not a/b"),
        ("hold", "yes", "must be true or false, not yes"),
        ("onwer", "elect", "unknown key; did you mean 'owner'?"),
    ],
    ids=["owner", "mode", "interface", "hold", "unknown"],
)
def test_problem_of_an_annotation_names_it_its_value_and_what_is_allowed(name, text, problem):
    (found,) = collect(a_service(**{name: text})).problems

    assert found == f"service shop/web: annotation arpguard.io/{name}: {problem}"


def test_names_that_agents_write_are_no_annotation_of_the_user():
    config = replace(CONFIG, services=replace(CONFIG.services, owned_by=True))
    service = replace(a_service(), owned_by=f"{VIP}=node-1")
    collected = collect(service, config=config)

    assert (collected.problems, collected.notices) == ((), ())
    assert collected.vips == collect(a_service()).vips


def test_names_that_are_left_are_a_problem_with_its_remedy_but_no_event():
    collected = collect(replace(a_service(), owned_by=f"{VIP}=node-1"))

    (problem,) = collected.problems
    assert problem == (
        "service shop/web: annotation arpguard.io/owned-by may name a former owner, because services.owned_by is false"
        ": remove it with `kubectl -n shop annotate service web arpguard.io/owned-by-`"
    )
    assert collected.notices == ()


def test_hostile_annotation_is_shown_in_a_few_letters_that_can_be_printed():
    (found,) = collect(a_service(mode="\x1b" * 500)).problems

    assert found.isprintable()
    assert len(found) < 160


def test_configuration_says_who_owns_and_whether_to_hold_by_default():
    config = replace(CONFIG, services=ServicesConfig(owner=Owner(OwnerKind.FOLLOW), hold=True))

    vips = collect(a_service(), a_service("api", OTHER, owner="elect", hold="false"), config=config).vips

    assert (vips[VIP].owner.kind, vips[VIP].unfenced) == (OwnerKind.FOLLOW, True)
    assert (vips[OTHER].owner.kind, vips[OTHER].unfenced) == (OwnerKind.ELECT, False)


@pytest.mark.parametrize(
    ("services", "labels", "annotated", "is_vip"),
    [
        (ServicesConfig(selector=(("app", "web"), ("guard", "arp"))), (("app", "web"), ("guard", "arp")), False, True),
        (ServicesConfig(selector=(("app", "web"), ("guard", "arp"))), (("app", "web"),), False, False),
        (ServicesConfig(selector=(("app", "web"),)), (("app", "api"),), False, False),
        (ServicesConfig(selector=(("app", "web"),)), (), True, True),
        (ServicesConfig(enabled=False), (), False, False),
        (ServicesConfig(enabled=False), (), True, True),
    ],
)
def test_selector_chooses_services_and_an_owner_annotation_overrides_it(services, labels, annotated, is_vip):
    annotations = {"owner": "elect"} if annotated else {"mode": "enforce"}

    collected = collect(a_service(labels=labels, **annotations), config=replace(CONFIG, services=services))

    assert (VIP in collected.vips, collected.problems) == (is_vip, ())


# ---- refusals ----


@pytest.mark.parametrize(
    ("address", "reason", "words"),
    [
        (
            "198.51.100.1",
            "VIPIsNodeAddress",
            "198.51.100.1 is the address of node n1: guarding it would cut the node off",
        ),
        ("198.51.100.130", "VIPInPodNetwork", "is in a Pod network"),
        ("198.51.100.254", "VIPIsGateway", "is a gateway"),
        ("198.51.100.9", "VIPIsAPIServer", "is the API server's"),
        ("224.0.0.1", "VIPUnfit", "is a multicast address"),
        ("203.0.113.1", "VIPOutsideRanges", "is outside the configuration's `ranges`"),
    ],
)
def test_address_that_must_not_be_guarded_is_left_alone_and_reported(address, reason, words):
    avoided = Avoided(frozenset({ip_address("198.51.100.254")}), frozenset({ip_address("198.51.100.9")}))

    collected = collect(a_service("web", ip_address(address), VIP), avoided=avoided)

    assert list(collected.vips) == [VIP]
    assert reasons(collected) == [("web", reason)]
    assert collected.notices[0].subject.uid == "uid-web"
    assert words in collected.notices[0].note
    assert collected.problems == (f"service shop/web: {collected.notices[0].note}",)


def test_address_of_a_link_of_this_node_is_for_this_node_to_report():
    collected = collect(a_service(), avoided=Avoided(own=frozenset({VIP})))

    assert (collected.vips, collected.notices) == ({}, ())
    assert [notice.reason for notice in collected.own_notices] == ["VIPIsNodeAddress"]


def test_configured_vip_needs_no_range_but_is_refused_all_the_same():
    items = (
        Vip(ip_address("203.0.113.1"), ELECT),
        Vip(ip_address("198.51.100.1"), ELECT),
        Vip(VIP, Owner(OwnerKind.NODE, node="nobody")),
    )

    collected = collect(config=AgentConfig(vips=items))

    assert set(collected.vips) == {items[0].address, VIP}
    assert [problem.partition(": ")[0] for problem in collected.problems] == ["vips[1].address", "vips[2]"]
    assert "there is no node nobody" in collected.problems[1]


def test_service_of_both_families_brings_a_vip_of_each():
    config = replace(CONFIG, ranges=(*CONFIG.ranges, ip_network("2001:db8::/64")))

    collected = collect(a_service("web", VIP, VIP6, owner="node/n1"), config=config)

    assert {vip.owner for vip in collected.vips.values()} == {Owner(OwnerKind.NODE, node="n1")}
    assert (set(collected.vips), collected.problems) == ({VIP, VIP6}, ())


@pytest.mark.parametrize(
    ("address", "reason", "words"),
    [
        ("2001:db8::1", "VIPIsNodeAddress", "2001:db8::1 is the address of node n1"),
        ("2001:db8:0:0:8000::7", "VIPInPodNetwork", "is in a Pod network"),
        ("2001:db8::fe", "VIPIsGateway", "is a gateway"),
        ("2001:db8::9", "VIPIsAPIServer", "is the API server's"),
        ("fe80::1", "VIPUnfit", "fe80::1 is a link-local address"),
        ("ff02::1:ff00:50", "VIPUnfit", "is a multicast address"),
        ("::ffff:198.51.100.50", "VIPUnfit", "is an IPv4 address in IPv6 form"),
        ("::", "VIPUnfit", "is the unspecified address"),
        ("2001:db8:1::1", "VIPOutsideRanges", "is outside the configuration's `ranges`"),
    ],
)
def test_ipv6_address_that_must_not_be_guarded_is_left_alone_and_reported(address, reason, words):
    config = replace(CONFIG, ranges=(ip_network("2001:db8::/64"),))
    avoided = Avoided(
        frozenset({ip_address("2001:db8::fe"), ip_address("fe80::1")}), frozenset({ip_address("2001:db8::9")})
    )

    collected = collect(a_service("web", ip_address(address), VIP6), config=config, avoided=avoided)

    assert list(collected.vips) == [VIP6]
    assert reasons(collected) == [("web", reason)]
    assert words in collected.notices[0].note


def a_link(*addresses, **more):
    own = tuple(InterfaceAddress(each.ip, each.network) for each in map(ip_interface, addresses))
    return Link(2, "eth0", MacAddress(bytes(6)), up=True, addresses=own, **more)


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        (a_link("192.0.2.1/24", "192.0.2.2/24", "2001:db8::1/64", "2001:db8::2/64"), {"192.0.2.1", "2001:db8::1"}),
        (a_link("192.0.2.9/32", "2001:db8::9/128", "2001:db8::1/64", "fe80::1/64"), {"2001:db8::1"}),
        (a_link("fe80::1/64"), set()),
        (a_link("192.0.2.1/24", "2001:db8::1/64", loopback=True), set()),
        (a_link("2001:db8::1/64", no_arp=True), set()),
    ],
    ids=["both families", "host addresses", "link-local", "lo", "NOARP"],
)
def test_first_address_of_each_family_is_the_nodes_own(link, expected):
    assert avoided(Surroundings((link,))).own == {ip_address(text) for text in expected}


def test_without_ranges_services_are_one_problem_unless_they_ask_by_annotation():
    services = [a_service(f"web{n}", VIP + n) for n in range(3)]

    collected = collect(*services, a_service("api", OTHER + 9, owner="elect"), config=AgentConfig())

    assert collected.vips == {}
    assert collected.problems[0] == ("the agents guard none of the 3 addresses of Services, because `ranges` is empty")
    assert reasons(collected) == [("api", "VIPOutsideRanges")]


def test_problems_are_bounded():
    services = [
        a_service(f"web{n}", VIP + n, problems=("spec.externalIPs[0]: is not an IP address",)) for n in range(50)
    ]

    problems = collect(*services).problems

    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[0] == "service shop/web0: spec.externalIPs[0]: is not an IP address"
    assert problems[-1] == f"and {50 - MAX_PROBLEMS} more problems"


# ---- the same address from several sources ----


def test_first_source_by_precedence_then_name_has_the_say_and_the_others_hear_of_it():
    item = Vip(VIP, Owner(OwnerKind.EXTERNAL))
    selected, annotated = a_service("a"), a_service("b", owner="node/n1")
    later = a_service("c", owner="node/n2")

    alone = collect(selected, annotated, later)
    configured = collect(selected, annotated, later, config=replace(CONFIG, vips=(item,)))

    assert alone.vips[VIP].source == "service shop/b"
    assert reasons(alone) == [("c", "VIPConflictingSources"), ("a", "VIPConflictingSources")]
    assert alone.problems[0].startswith("service shop/c: service shop/b takes precedence for 198.51.100.50")
    assert configured.vips[VIP] is item
    assert len(configured.notices) == 3


@pytest.mark.parametrize("owner", ["node/n2", "external", "elect", "follow"])
def test_namespace_that_had_the_address_first_keeps_it_whatever_others_annotate(owner):
    victim = replace(a_service("web"), made="2026-01-01T00:00:00Z")
    younger = replace(a_service("aaa", owner="node/n1"), made="2026-03-01T00:00:00Z")
    thief = replace(a_service("aaa", owner=owner, mode="observe"), namespace="a-thief", made="2026-02-01T00:00:00Z")

    assert collect(victim, thief).vips == collect(victim).vips
    assert reasons(collect(victim, thief)) == [("aaa", "VIPConflictingSources")]
    assert collect(victim, thief, younger).vips[VIP].source == "service shop/aaa", "its own Services may have the say"
    assert collect(thief).vips[VIP].source == "service a-thief/aaa"


def test_services_that_share_an_address_and_agree_are_no_problem():
    collected = collect(a_service("a"), a_service("b"), a_service("c", owner="elect"))

    assert collected.vips[VIP].source == "service shop/c"
    assert (collected.problems, collected.notices) == ((), ())


@pytest.mark.parametrize("annotations", [{"mode": "observe"}, {"interface": "eth1"}, {"hold": "true"}])
def test_services_that_share_an_address_and_disagree_are_reported(annotations):
    assert reasons(collect(a_service("a"), a_service("b", **annotations))) == [("b", "VIPConflictingSources")]


# ---- externalTrafficPolicy: Local ----


def test_local_service_is_for_nodes_with_ready_endpoints():
    slices = [a_slice("web", "n1", name="one"), a_slice("web", "n2", name="two"), a_slice("other", "n3")]

    collected = collect(a_service(local_only=True), slices=slices)

    assert collected.vips[VIP].nodes == {"n1", "n2"}
    assert (collected.needs_slices, collected.undecided) == (True, frozenset())


def test_local_service_without_endpoints_is_for_nobody():
    assert collect(a_service(local_only=True)).vips[VIP].nodes == frozenset()


def test_local_service_is_undecided_before_slices_are_known():
    collected = collect(a_service(local_only=True), slices=None)

    assert (collected.vips[VIP].nodes, collected.undecided) == (None, {VIP})
    assert collected.needs_slices


@pytest.mark.parametrize("owner", ["node/n1", "external", "follow"])
def test_endpoints_are_asked_for_where_the_cluster_elects_only(owner):
    collected = collect(a_service(local_only=True, owner=owner), slices=None)

    assert (collected.vips[VIP].nodes, collected.undecided, collected.needs_slices) == (None, frozenset(), False)


def test_slices_are_not_needed_for_an_address_that_is_left_alone():
    assert not collect(a_service("web", ip_address("203.0.113.1"), local_only=True)).needs_slices


@pytest.mark.parametrize(
    ("endpoints", "expected", "reported"),
    [
        ({"a": ("n1", "n2"), "b": ("n2", "n3")}, {"n2"}, []),
        ({"a": ("n1",), "b": ()}, {"n1"}, []),
        ({"a": (), "b": ("n2",)}, {"n2"}, []),
        ({"a": (), "b": ()}, frozenset(), []),
        ({"a": ("n1",), "b": ("n2",)}, {"n1"}, [("b", "VIPWithoutCommonNode")]),
        ({"a": ("n1",), "b": None}, {"n1"}, []),
        ({"a": (), "b": None}, None, []),
    ],
)
def test_shared_address_is_for_nodes_that_serve_all_who_share_it(endpoints, expected, reported):
    services = [a_service(name, local_only=nodes is not None) for name, nodes in endpoints.items()]
    slices = [a_slice(name, *nodes) for name, nodes in endpoints.items() if nodes]

    collected = collect(*services, slices=slices)

    assert collected.vips[VIP].nodes == expected
    assert reasons(collected) == reported


# ---- both families ----

DUAL = replace(CONFIG, ranges=(*CONFIG.ranges, ip_network("2001:db8::/64")))
OTHER6 = ip_address("2001:db8::51")


def leads(collected):
    return {address: vip.lead for address, vip in collected.vips.items()}


@pytest.mark.parametrize("order", [(VIP, OTHER, VIP6, OTHER6), (VIP6, VIP, OTHER6, OTHER)], ids=["IPv4 first", "mixed"])
def test_ipv6_addresses_of_a_service_go_with_its_first_ipv4_one(order):
    collected = collect(a_service("web", *order), config=DUAL)

    assert leads(collected) == {VIP: None, OTHER: None, VIP6: VIP, OTHER6: VIP}


def test_first_ipv4_address_is_the_first_that_is_guarded():
    collected = collect(a_service("web", ip_address("203.0.113.1"), OTHER, VIP6), config=DUAL)

    assert leads(collected) == {OTHER: None, VIP6: OTHER}


@pytest.mark.parametrize("addresses", [(VIP6, OTHER6), (VIP, OTHER)], ids=["IPv6", "IPv4"])
def test_service_of_one_family_has_no_lead(addresses):
    assert set(leads(collect(a_service("web", *addresses), config=DUAL)).values()) == {None}


@pytest.mark.parametrize("owner", ["node/n1", "external", "follow"])
def test_lead_is_for_elections_only(owner):
    assert leads(collect(a_service("web", VIP, VIP6, owner=owner), config=DUAL))[VIP6] is None


@pytest.mark.parametrize("vips", [(), (Vip(VIP, ELECT),)], ids=["service", "item"])
@pytest.mark.parametrize("slices", [None, (replace(a_slice("b", "n2"), namespace="other"),)], ids=["unknown", "known"])
def test_service_of_another_namespace_does_not_choose_where_a_shared_address_is(vips, slices):
    first = replace(a_service("a"), made="2026-01-01T00:00:00Z")
    later = replace(a_service("b", VIP, local_only=True), namespace="other", made="2026-02-01T00:00:00Z")

    collected = collect(first, later, slices=slices, config=replace(CONFIG, vips=vips))

    assert collected.vips[VIP].nodes is None
    assert collected.undecided == frozenset()


def test_service_of_another_namespace_leads_no_ipv6_address():
    config = replace(CONFIG, ranges=(*CONFIG.ranges, ip_network("2001:db8::/64")))
    first = replace(a_service("a", VIP6), made="2026-01-01T00:00:00Z")
    later = replace(a_service("b", OTHER, VIP6), namespace="other", made="2026-02-01T00:00:00Z")

    collected = collect(first, later, config=config)

    assert collected.vips[VIP6].lead is None
    (problem,) = collected.problems
    assert f"also has {VIP6}, and decides its owner; this Service's {OTHER} may have another owner" in problem


def test_services_that_share_the_ipv4_address_all_go_with_it():
    services = [a_service("one", VIP, VIP6), a_service("two", VIP, OTHER6)]

    collected = collect(*services, config=DUAL)

    assert leads(collected) == {VIP: None, VIP6: VIP, OTHER6: VIP}
    assert reasons(collected) == []


def test_ipv6_address_that_is_shared_goes_with_the_first_services_and_the_other_hears_of_it():
    services = [a_service("one", VIP, VIP6), a_service("two", OTHER, VIP6)]

    collected = collect(*services, config=DUAL)

    assert leads(collected) == {VIP: None, OTHER: None, VIP6: VIP}
    assert reasons(collected) == [("two", "VIPPairDivided")]
    (problem,) = collected.problems
    assert (
        f"also has {VIP6}, and decides that the owner of {VIP} owns it; this Service's {OTHER} may have another owner"
        in problem
    )


def test_ipv6_address_goes_with_the_one_service_that_has_both_families():
    services = [a_service("one", VIP6), a_service("two", VIP, VIP6)]

    collected = collect(*services, config=DUAL)

    assert leads(collected) == {VIP: None, VIP6: VIP}
    assert reasons(collected) == []


def test_service_with_other_settings_leads_nothing_of_the_first():
    services = [a_service("one", VIP6), a_service("two", VIP, VIP6, mode="observe")]

    assert leads(collect(*services, config=DUAL))[VIP6] is None


def test_each_family_is_for_nodes_with_ready_endpoints_of_that_family():
    slices = [
        replace(a_slice("web", "n1", "n2", name="four"), version=4),
        replace(a_slice("web", "n2", name="six"), version=6),
    ]

    collected = collect(a_service("web", VIP, VIP6, local_only=True), config=DUAL, slices=slices)

    assert (collected.vips[VIP].nodes, collected.vips[VIP6].nodes) == ({"n1", "n2"}, {"n2"})


# ---- following ----


def test_followed_node_is_the_owner_and_changes_by_itself():
    sourcing, services, chosen = Sourcing(), by_key(a_service(owner="follow")), {VIP: "n1"}
    arguments = (CONFIG, services, {}, NODES, Avoided(), lambda _service, address: chosen.get(address))

    before = sourcing.collect(*arguments)
    chosen[VIP] = "n2"
    after = sourcing.collect(*arguments)
    chosen.clear()

    assert before.vips[VIP].owner == Owner(OwnerKind.FOLLOW, node="n1")
    assert before.follows == {("shop", "web")}
    assert after.vips[VIP].owner == Owner(OwnerKind.FOLLOW, node="n2")
    assert sourcing.collect(*arguments).vips[VIP].owner == Owner(OwnerKind.FOLLOW)


def test_what_was_given_out_stays_as_it_is_and_what_has_not_changed_is_the_same_object():
    sourcing, services = Sourcing(), by_key(a_service("a"), a_service("b", OTHER))
    before = sourcing.collect(CONFIG, services, {}, NODES)
    del services["shop", "a"]
    services["shop", "b"] = a_service("b", OTHER, labels=(("app", "web"),))

    after = sourcing.collect(CONFIG, services, {}, NODES)

    assert (set(before.vips), set(after.vips)) == ({VIP, OTHER}, {OTHER})
    assert after.vips[OTHER] is before.vips[OTHER]
    assert sourcing.collect(CONFIG, services, {}, NODES).vips is after.vips


def test_address_that_was_refused_is_a_vip_once_it_may_be():
    sourcing, services = Sourcing(), by_key(a_service("web", VIP, OTHER))
    avoided = [Avoided(gateways=frozenset(those)) for those in ({VIP}, {OTHER}, ())]

    found = [sourcing.collect(CONFIG, services, {}, NODES, each) for each in avoided]

    assert [set(collected.vips) for collected in found] == [{OTHER}, {VIP}, {VIP, OTHER}]
    assert [len(collected.problems) for collected in found] == [1, 1, 0]


def test_slice_that_goes_away_takes_its_nodes_with_it():
    sourcing, services = Sourcing(), by_key(a_service(local_only=True))
    one, two = a_slice("web", "n1", name="one"), a_slice("web", "n2", name="two")

    found = [
        sourcing.collect(CONFIG, services, by_key(*slices), NODES).vips[VIP].nodes
        for slices in ([one, two], [two], [], [one])
    ]

    assert found == [{"n1", "n2"}, {"n2"}, set(), {"n1"}]


def test_another_service_that_shares_an_address_with_the_same_settings_changes_nothing():
    sourcing, services = Sourcing(), by_key(a_service("a"))
    before = sourcing.collect(CONFIG, services, {}, NODES)
    services |= by_key(a_service("b"))

    after = sourcing.collect(CONFIG, services, {}, NODES)

    assert after.vips is before.vips
    assert reasons(after) == []


MANY = tuple(ip_address("198.51.0.0") + number for number in range(1023))


def quarrelling(count):
    """Services that want the same thousand addresses, each with another mode or owner."""
    owners = ("elect", "external", "node/n1", "node/n2")
    return [a_service(f"s{number:02}", *MANY, owner=owners[number % 4]) for number in range(count)]


def test_of_a_thousand_addresses_alike_some_are_told():
    """20 Services with 1,023 addresses each were 14,322 notices in each pass."""
    config = AgentConfig(ranges=(ip_network("198.51.0.0/16"),))
    collected = collect(*quarrelling(20), config=config)

    assert len(collected.vips) == len(MANY)
    assert len(collected.notices) == 15 * (MAX_ALIKE + 1)  # the five others have the settings of the first
    assert "1019 more of its addresses have this problem: VIPConflictingSources" in "".join(
        collect(*quarrelling(2), config=config).problems
    )
    notes = {notice.note for notice in collected.notices if notice.subject.name == "s01"}
    assert "more addresses of this Service have this problem: `arpguard explain ADDRESS` says why for each" in notes


def test_what_is_wrong_with_a_node_is_told_until_it_is_right():
    sourcing = Sourcing()
    wrong = NODES | {"n2": replace(NODES["n2"], problems=("status.addresses[0]: is not an IP address ('n2')",))}

    found = [sourcing.collect(CONFIG, {}, {}, nodes).problems for nodes in (NODES, wrong, wrong, NODES)]

    told = ("node n2: status.addresses[0]: is not an IP address ('n2')",)
    assert found == [(), told, told, ()]


def test_a_few_nodes_stand_for_all_that_are_wrong():
    """Services' problems come first, and are not crowded out."""
    nodes = {f"n{n}": Node(f"n{n}", problems=("status.addresses: is not a list (5)",)) for n in range(MAX_PROBLEMS)}

    problems = collect(a_service(mode="sleep"), nodes=nodes).problems

    assert "annotation arpguard.io/mode" in problems[0]
    assert problems[1] == "node n0: status.addresses: is not a list (5)"
    assert problems[1 + MAX_OF_NODES :] == (f"and {MAX_PROBLEMS - MAX_OF_NODES} more problems of Nodes",)


def test_what_is_told_is_made_once():
    """Not in each pass."""
    sourcing, services = Sourcing(), by_key(*quarrelling(2))
    config = AgentConfig(ranges=(ip_network("198.51.0.0/16"),))
    first, second = (sourcing.collect(config, services, {}, NODES, NOTHING) for _ in range(2))

    assert second.notices is first.notices
    assert second.problems is first.problems
    alone = sourcing.collect(config, dict([next(iter(services.items()))]), {}, NODES, NOTHING)
    assert (alone.problems, alone.notices) == ((), ())


def test_unknown_annotations_of_a_service_are_told_of_in_a_few_words():
    annotations = {f"a{number}": "x" for number in range(1000)}

    collected = collect(a_service("web", owner="elect", **annotations))

    assert len(collected.notices) == 5
    assert collected.problems[-1] == "service shop/web: and 996 more such annotations"


def test_wrong_annotations_are_told_of_before_unknown_ones():
    annotations = {f"a{number}": "x" for number in range(1000)}

    collected = collect(a_service("web", owner="me", mode="on", **annotations))

    assert [notice.note.partition(": ")[0] for notice in collected.notices[:2]] == [
        "annotation arpguard.io/mode",
        "annotation arpguard.io/owner",
    ]


def test_those_who_ask_for_an_address_are_named_up_to_a_number():
    sourcing = Sourcing()
    services = by_key(*(a_service(f"s{number}", owner="elect") for number in range(100)))
    sourcing.collect(CONFIG, services, {}, NODES, NOTHING)

    others = sourcing.origin(VIP).others
    assert (len(others), others[-1]) == (21, "and 79 more of them")


@pytest.mark.parametrize(
    ("own", "address", "what"),
    [
        ("198.51.100.1/24", "198.51.100.255", "broadcast"),
        ("198.51.100.1/25", "198.51.100.127", "broadcast"),
        ("2001:db8::1/64", "2001:db8::", "subnet-router anycast"),
    ],
)
def test_address_that_no_host_of_the_subnet_has_is_refused(own, address, what):
    here = ip_interface(own)
    link = Link(2, "eth0", MacAddress(bytes((2, 0, 0, 0, 0, 1))), up=True, addresses=(_own(here),))
    ranges = (ip_network("198.51.100.0/24"), ip_network("2001:db8::/64"))
    web = a_service("web", ip_address(address), VIP, owner="elect")
    collected = collect(web, config=AgentConfig(ranges=ranges), nodes={}, avoided=avoided(Surroundings(links=(link,))))

    assert set(collected.vips) == {VIP}
    (notice,) = collected.own_notices
    assert (
        notice.note == f"{address} is the {what} address of this node's subnet: choose an address that a host can own"
    )


@pytest.mark.parametrize(
    ("own", "address"), [("198.51.100.50/31", "198.51.100.51"), ("2001:db8::51/127", "2001:db8::50")]
)
def test_subnet_of_two_addresses_reserves_none(own, address):
    here = ip_interface(own)
    link = Link(2, "eth0", MacAddress(bytes((2, 0, 0, 0, 0, 1))), up=True, addresses=(_own(here),))

    assert ip_address(address) not in avoided(Surroundings(links=(link,))).reserved


def _own(interface):
    return InterfaceAddress(interface.ip, interface.network)
