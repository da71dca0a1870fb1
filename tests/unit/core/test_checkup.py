"""The doctor's checks on made-up nodes: what tests/netns/test_doctor.py cannot make, and the edges of the rest."""

import re
from dataclasses import replace
from ipaddress import ip_address, ip_interface

import pytest

from arpguard.addresses import MacAddress
from arpguard.config.files import parse_config
from arpguard.core.checkup import answering
from arpguard.core.checkup.findings import Finding, Grade, listed, shell, summed_up, worst
from arpguard.core.checkup.node import NEEDED
from arpguard.core.checkup.picture import MAX_ASKED, Picture, questions
from arpguard.core.checkup.snapshot import (
    AddressOnLink,
    AgentWord,
    AttachedProgram,
    ClusterView,
    Eip,
    Followable,
    Guard,
    KubeProxy,
    Machine,
    Rival,
    Snapshot,
    Unread,
    Wire,
)
from arpguard.core.checkup.sysctls import NAMES, Sysctls
from arpguard.core.checkup.table import CHECKS, examine
from arpguard.core.cluster import Node, Service
from arpguard.core.decisions import CONTESTED
from arpguard.model import EntryKey, InterfaceAddress, Link, Route, Surroundings, VipEntry
from arpguard.verdict import Kind, Mode

VIP, VIP6 = ip_address("192.0.2.50"), ip_address("2001:db8::50")
OWN = "192.0.2.1/24"
LO = Link(1, "lo", MacAddress(bytes(6)), up=True, loopback=True, ethernet=False)
MAC, OTHER = MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:02")


def on(link: Link, *texts: str) -> Link:
    found = [ip_interface(text) for text in texts]
    return replace(link, addresses=tuple(InterfaceAddress(each.ip, each.network) for each in found))


ETH0 = on(Link(2, "eth0", MAC, up=True), OWN)
ETH1 = on(Link(3, "eth1", OTHER, up=True), "192.0.2.2/24")
IPVS0 = Link(7, "kube-ipvs0", OTHER, up=False, kind="dummy", no_arp=True)
BOUND = on(LO, "127.0.0.1/8", f"{VIP}/32")


def sysctls(**values: int) -> Sysctls:
    """`arp_ignore=1` is eth0's, `all__arp_ignore=1` that of all; everything else is 0, as the kernel has it."""
    found = {(name, link): 0 for name in NAMES for link in ("all", "lo", "eth0", "eth1", "kube-ipvs0")}
    for key, value in values.items():
        link, _, setting = key.rpartition("__")
        family = "ipv6" if f"ipv6/{setting}" in NAMES else "ipv4"
        found[f"{family}/{setting}", link or "eth0"] = value
    return Sysctls(found)


def config(text: str):
    return parse_config(text, "test")


OF_OTHERS = config(f"vips: [{{address: {VIP}, owner: external}}]")


def picture(*links: Link, routes: tuple[Route, ...] = (), **fields) -> Picture:
    fields.setdefault("sysctls", sysctls())
    fields.setdefault("node", "node-1")
    return Picture(Snapshot(surroundings=Surroundings(links or (LO, ETH0), routes), **fields))


def said(name: str, scene: Picture) -> tuple[Finding, ...]:
    return next(result.findings for result in examine(scene) if result.check.name == name)


def grade(name: str, scene: Picture) -> str:
    return worst(finding.grade for finding in said(name, scene)).value


def guarded(kind: Kind = Kind.FOREIGN, mode: Mode | None = Mode.ENFORCE, link: Link = ETH0, **fields) -> dict:
    """A guard on a link, attached at both hooks, with an entry for the VIP."""
    entries = {EntryKey(link.ifindex, VIP): VipEntry(kind, **fields)}
    programs = tuple(
        AttachedProgram(link.ifindex, hook, 0, number, "p", ours=True, pin_dir="/pins")
        for number, hook in enumerate(("tcx ingress", "tcx egress"), 1)
    )
    return {"guards": (Guard("/pins", running=True, mode=mode, entries=entries),), "programs": programs}


# ---- the whole ---------------------------------------------------------------------------------------------------


def test_a_node_with_nothing_on_it_has_nothing_bad():
    grades = {result.check.name: result.grade for result in examine(picture())}
    assert not [name for name, found in grades.items() if found in (Grade.BAD, Grade.WARN)]
    assert list(grades) == [check.name for check in CHECKS]


def test_whatever_could_not_be_looked_at_is_unknown_with_its_reason_and_nothing_else_suffers():
    blind = Unread("hidden")
    machine = Machine(jited=blind, tcx=blind, clock=blind)
    scene = picture(
        BOUND, ETH0, sysctls=Sysctls(), guards=blind, programs=blind, cluster=blind, wire=blind, agent=blind,
        machine=machine,
    )  # fmt: skip
    for result in examine(scene):
        assert result.findings, result.check.name
    for name in ("agent", "one-agent", "foreign-programs", "vip-on-wire", "vip-claimed", "kube-proxy", "tcx", "clock"):
        assert said(name, scene)[0].grade is Grade.UNKNOWN, name
        assert "hidden" in said(name, scene)[0].seen
    assert grade("vip-bound", scene) == "bad"  # a sysctl that cannot be read is taken for the kernel's default


@pytest.mark.parametrize(("mode", "words"), [(Mode.ENFORCE, "(eth0)"), (Mode.OBSERVE, "(eth0, only observed)")])
def test_an_owner_that_only_observes_is_not_said_to_answer(mode, words):
    (finding,) = said("vip-bound", picture(LO, ETH0, **guarded(Kind.OWNED, mode)))
    assert f"this node answers {words}" in finding.seen


def test_every_bad_or_careful_finding_says_what_to_do():
    scenes = [
        picture(BOUND, ETH0),
        picture(BOUND, ETH0, ETH1, sysctls=sysctls(arp_ignore=8, accept_local=1, drop_gratuitous_arp=1, proxy_arp=1)),
        picture(machine=Machine("5.4.0", jited=False, tcx=False, bpffs=False)),
        picture(machine=Machine(clock="hpet")),
        picture(config=config("interfaces: [eth9]"), source="f"),
    ]
    for scene in scenes:
        for result in examine(scene):
            for finding in result.findings:
                if finding.grade in (Grade.BAD, Grade.WARN):
                    assert finding.fix, finding


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("vip-leaks", {}),
        ("arp-ignore", {"sysctls": sysctls(arp_ignore=8)}),
        ("lvs-dr-loop", {"sysctls": sysctls(accept_local=1)}),
        ("same-segment", {}),
        ("rp-filter", {"sysctls": sysctls(rp_filter=1), "routes": (Route(ip_interface("192.0.2.0/24").network, 3),)}),
        ("takeovers", {"sysctls": sysctls(drop_gratuitous_arp=1)}),
        ("proxy-arp", {"sysctls": sysctls(proxy_arp=1)}),
    ],
)
def test_a_setting_that_is_not_well_is_not_called_well_as_well(name, fields):
    grades = {finding.grade for finding in said(name, picture(BOUND, ETH0, ETH1, **fields))}
    assert len(grades & {Grade.BAD, Grade.WARN}) == 1
    assert Grade.OK not in grades


def test_findings_of_a_check_come_with_the_worst_first():
    scene = picture(
        on(LO, f"{VIP}/32", "192.0.2.51/32"), ETH0, **guarded(),
        wire=Wire({AddressOnLink(VIP, 2): (), AddressOnLink(ip_address("192.0.2.51"), 2): (MAC, OTHER)}),
    )  # fmt: skip
    order = [finding.grade for finding in said("vip-on-wire", scene)]
    assert order == sorted(order, key=list(Grade).index, reverse=True)
    assert order[0] is Grade.BAD


@pytest.mark.parametrize(
    ("grades", "expected"),
    [
        ([], Grade.SKIP),
        ([Grade.SKIP, Grade.OK], Grade.OK),
        ([Grade.OK, Grade.UNKNOWN], Grade.UNKNOWN),
        ([Grade.UNKNOWN, Grade.WARN], Grade.WARN),
        ([Grade.BAD, Grade.WARN], Grade.BAD),
    ],
)
def test_the_worst_grade_counts(grades, expected):
    assert worst(grades) is expected


def test_lists_are_cut_where_that_is_shorter():
    assert listed(range(6), 5) == "0, 1, 2, 3, 4, 5"
    assert listed(range(7), 5) == "0, 1, 2, 3, 4 and 2 more"
    assert [finding.seen for finding in summed_up([], "nothing")] == ["nothing"]


# ---- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("common", "own", "expected"), [(0, 0, 0), (1, 0, 1), (0, 2, 2), (2, 1, 2), (None, 1, 1), (1, None, None)]
)
def test_the_larger_value_of_all_and_the_link_counts(common, own, expected):
    values = {("ipv4/arp_ignore", "all"): common, ("ipv4/arp_ignore", "eth0"): own}
    found = Sysctls({key: value for key, value in values.items() if value is not None})
    assert found.effective("ipv4/arp_ignore", "eth0") == expected


def test_settings_of_a_link_alone_are_not_combined():
    found = Sysctls({("ipv6/disable_ipv6", "all"): 1, ("ipv6/disable_ipv6", "eth0"): 0})
    assert found.effective("ipv6/disable_ipv6", "eth0") == 0


def test_lowering_a_setting_lowers_that_of_all_too():
    assert sysctls(all__accept_local=1, accept_local=1).set("ipv4/accept_local", "eth0", 0) == (
        "sysctl -w net.ipv4.conf.all.accept_local=0",
        "sysctl -w net.ipv4.conf.eth0.accept_local=0",
    )
    assert sysctls(all__accept_local=1).set("ipv4/accept_local", "eth0", 0) == (
        "sysctl -w net.ipv4.conf.all.accept_local=0",
    )


@pytest.mark.parametrize(
    ("link", "key"),
    [
        ("eth0.100", "net/ipv4/conf/eth0.100/arp_ignore=1"),
        ("a$(id)", "'net.ipv4.conf.a$(id).arp_ignore=1'"),
        ("a'b", """'net.ipv4.conf.a'"'"'b.arp_ignore=1'"""),
    ],
)
def test_names_of_links_are_safe_in_commands(link, key):
    assert Sysctls().set("ipv4/arp_ignore", link, 1) == (f"sysctl -w {key}",)


def test_words_of_a_command_are_quoted():
    assert shell("kubectl", "-n", "a b") == "kubectl -n 'a b'"


# ---- who answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "ignore", "answers"),
    [
        (BOUND, 0, True),
        (BOUND, 1, False),
        (BOUND, 2, False),
        (BOUND, 3, True),
        (BOUND, 4, True),
        (BOUND, 8, False),
        (on(ETH0, OWN, f"{VIP}/32"), 1, True),
        (on(ETH0, OWN, f"{VIP}/32"), 2, True),
        (on(ETH0, "198.51.100.1/24", f"{VIP}/32"), 2, False),
    ],
)
def test_kernel_answers_as_arp_ignore_says(link, ignore, answers):
    eth0 = link if link.name == "eth0" else ETH0
    around = Surroundings((link, eth0) if link is not eth0 else (eth0,))
    found = answering.kernel_answers(VIP, eth0, around, sysctls(arp_ignore=ignore), frozenset())
    assert found is answers


def test_arp_ignore_3_spares_what_is_of_this_host_only():
    around = Surroundings((BOUND, ETH0))
    assert not answering.kernel_answers(VIP, ETH0, around, sysctls(arp_ignore=3), frozenset({VIP}))


def test_an_ipv6_address_is_answered_for_on_its_own_link_only():
    lo, eth0 = on(LO, f"{VIP6}/128"), on(ETH0, "2001:db8::1/64")
    around = Surroundings((lo, eth0))
    assert not answering.kernel_answers(VIP6, eth0, around, sysctls(), frozenset())
    both = on(ETH0, "2001:db8::1/64", f"{VIP6}/128")
    assert answering.kernel_answers(VIP6, both, Surroundings((both,)), sysctls(arp_ignore=8), frozenset())
    assert grade("vip-bound", picture(lo, eth0)) == "ok"


def test_an_ipv6_address_that_was_found_taken_is_not_answered_for():
    eth0 = on(ETH0, "2001:db8::1/64", f"{VIP6}/128")
    first, second = eth0.addresses
    refused = replace(eth0, addresses=(first, replace(second, usable=False)))
    assert not answering.kernel_answers(VIP6, refused, Surroundings((refused,)), sysctls(), frozenset())


def test_a_network_that_is_routed_onto_the_segment_is_asked_for_there():
    routed = replace(ETH0, on_link=(ip_interface("198.51.100.0/24").network,))
    lo = on(LO, "198.51.100.9/32")
    assert grade("vip-bound", picture(lo, routed)) == "bad"
    assert picture(lo, ETH0).vips == {}


@pytest.mark.parametrize(
    ("forwarding", "route_to", "answers"), [(1, 3, True), (0, 3, False), (1, 2, False), (1, 0, False)]
)
def test_proxy_arp_answers_for_what_is_forwarded_to_another_link(forwarding, route_to, answers):
    route = Route(ip_interface(f"{VIP}/32").network, route_to)
    around = Surroundings((ETH0, ETH1), (route,))
    found = answering.kernel_answers(VIP, ETH0, around, sysctls(proxy_arp=1, forwarding=forwarding), frozenset())
    assert found is answers


# ---- VIPs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "bad"),
        ({"sysctls": sysctls(arp_ignore=1)}, "ok"),
        (guarded(), "ok"),
        (guarded(Kind.OWNED), "ok"),
        (guarded(mode=Mode.OBSERVE), "warn"),
        (guarded(mode=None), "warn"),
        ({**guarded(), "programs": ()}, "bad"),
        ({**guarded(), "programs": guarded()["programs"][:1]}, "bad"),
        (guarded(link=ETH1), "bad"),
        ({**guarded(), "programs": tuple(replace(p, ours=False) for p in guarded()["programs"])}, "bad"),
    ],
    ids=[
        "no guard",
        "arp_ignore",
        "guarded",
        "owned",
        "observed",
        "and have no mode",
        "pinned, not attached",
        "ingress only",
        "another link",
        "others' programs",
    ],
)
def test_a_vip_on_lo(fields, expected):
    assert grade("vip-bound", picture(BOUND, ETH0, **fields)) == expected


def test_a_mode_of_the_vip_overrides_that_of_the_node():
    assert grade("vip-bound", picture(BOUND, ETH0, **guarded(mode=Mode.OBSERVE) | _own_mode(Mode.ENFORCE))) == "ok"


def _own_mode(mode: Mode) -> dict:
    entries = {EntryKey(2, VIP): VipEntry(Kind.FOREIGN, mode=mode)}
    return {"guards": (Guard("/pins", running=True, mode=Mode.OBSERVE, entries=entries),)}


def test_this_nodes_own_and_cluster_addresses_are_no_vips():
    links = (on(LO, "127.0.0.1/8", "10.96.0.1/32", "169.254.20.10/32"), on(ETH0, OWN, "fe80::1/64"))
    assert picture(*links).vips == {}


def test_a_host_address_on_a_nic_is_a_vip_beside_its_subnet_and_an_address_else():
    assert list(picture(LO, on(ETH0, OWN, f"{VIP}/32")).vips) == [VIP]
    assert picture(LO, on(ETH0, f"{VIP}/32")).vips == {}


def test_addresses_of_tunnels_and_the_edges_of_a_subnet_are_no_vips():
    flannel = on(Link(8, "flannel.1", OTHER, up=True, kind="vxlan"), "10.244.0.0/32")
    bridge = on(Link(9, "cni0", OTHER, up=True, kind="bridge"), "10.244.0.1/24")
    tunnel = on(Link(10, "tunl0", OTHER, up=True, no_arp=True, ethernet=False), "192.0.2.0/32", "192.0.2.255/32")
    assert picture(LO, ETH0, flannel, bridge, tunnel).vips == {}
    assert list(picture(on(LO, "192.0.2.8/32"), on(ETH0, "192.0.2.8/31")).vips) == []
    assert list(picture(on(LO, "192.0.2.9/32"), on(ETH0, "192.0.2.8/31")).vips) == [ip_address("192.0.2.9")]


def test_a_vip_on_the_nic_of_a_node_that_is_not_said_to_have_it():
    nic = on(ETH0, OWN, f"{VIP}/32")
    mine = config(f"vips: [{{address: {VIP}, owner: {{node: node-1}}}}]")
    assert grade("vip-bound", picture(LO, nic)) == "warn"
    assert grade("vip-bound", picture(LO, nic, config=mine)) == "warn"
    assert grade("vip-bound", picture(LO, nic, config=OF_OTHERS)) == "bad"
    startable = picture(LO, nic, config=mine, source="f", start="go")
    assert said("vip-bound", startable)[0].commands == ("go",)


def test_the_agent_is_the_fix_where_its_configuration_has_the_vip():
    start = "nohup arpguard agent --config f &"
    scene = picture(BOUND, ETH0, config=OF_OTHERS, source="f", start=start)
    assert said("vip-bound", scene)[0].commands == (start,)
    assert said("vip-leaks", scene)[0].commands == (start,)
    other = picture(BOUND, ETH0, config=config("vips: []"), source="f", start=start)
    assert said("vip-bound", other)[0].commands == (
        "sysctl -w net.ipv4.conf.eth0.arp_ignore=1",
        "sysctl -w net.ipv4.conf.eth0.arp_announce=2",
    )


def test_addresses_of_services_that_nobody_on_the_segment_asks_for_are_left_out_of_kube_ipvs():
    asked = on(IPVS0, "10.96.0.1/32", "10.96.0.10/32")
    assert grade("kube-ipvs", picture(LO, asked, ETH0)) == "ok"
    found = said("kube-ipvs", picture(LO, on(IPVS0, "10.96.0.1/32", f"{VIP}/32"), ETH0))[0]
    assert found.grade is Grade.BAD
    assert found.seen == f"addresses: 2 (in a link's subnet: 1); unguarded: {VIP}"


@pytest.mark.parametrize(
    ("announce", "vip", "leaks"),
    [(0, VIP, True), (1, VIP, True), (2, VIP, False), (1, ip_address("198.51.100.9"), False), (0, VIP6, False)],
)
def test_arp_announce(announce, vip, leaks):
    assert answering.leaks(vip, ETH0, sysctls(arp_announce=announce)) is leaks


def test_a_vip_does_not_leak_past_the_guard_nor_from_its_own_link():
    assert grade("vip-leaks", picture(BOUND, ETH0)) == "bad"
    assert grade("vip-leaks", picture(BOUND, ETH0, **guarded())) == "ok"
    assert grade("vip-leaks", picture(BOUND, ETH0, **guarded(mode=Mode.OBSERVE))) == "bad"
    assert grade("vip-leaks", picture(LO, on(ETH0, OWN, f"{VIP}/32"))) == "ok"


def test_a_vip_does_not_leak_from_its_owner():
    assert grade("vip-leaks", picture(BOUND, ETH0, **guarded(Kind.OWNED, mode=Mode.OBSERVE))) == "ok"


@pytest.mark.parametrize("kind", [Kind.FOREIGN, Kind.OWNED])
def test_the_fix_for_a_guarded_vip_that_is_only_observed_is_to_enforce(kind):
    scene = picture(BOUND, ETH0, wire=heard(OTHER), **guarded(kind, mode=Mode.OBSERVE))
    enforce = "set `mode: enforce` once `arpguard vips` shows the owners that you expect"

    (found,) = said("vip-on-wire", scene)
    assert found.grade is Grade.BAD
    assert found.fix.partition(";")[0] == enforce
    if kind is Kind.OWNED:
        assert not found.commands
    else:
        assert said("vip-leaks", scene)[0].fix.startswith(enforce)


def test_vips_are_told_in_the_order_of_their_addresses():
    addresses = [ip_address(text) for text in ("2001:db8::2", "192.0.2.52", "192.0.2.51", "2001:db8::1")]
    entries = {EntryKey(ETH0.ifindex, address): VipEntry(Kind.FOREIGN) for address in addresses}
    scene = picture(LO, ETH0, guards=(Guard("/pins", running=True, mode=Mode.ENFORCE, entries=entries),))

    assert list(map(str, scene.vips)) == ["192.0.2.51", "192.0.2.52", "2001:db8::1", "2001:db8::2"]


# ---- the cluster -------------------------------------------------------------------------------------------------


def cluster(*services: Service, proxy: KubeProxy | None = None, **nodes: str) -> ClusterView:
    found = {name: Node(name, addresses=(ip_address(text),)) for name, text in nodes.items()}
    by_key = {(each.namespace, each.name): each for each in services}
    return ClusterView(by_key, found, frozenset({ip_address("192.0.2.9")}), proxy or Unread("no ConfigMap"))


def a_service(*texts: str, ingress: tuple[str, ...] = ()) -> Service:
    return Service(
        "shop", "db", external_ips=tuple(map(ip_address, texts)), ingress_ips=tuple(map(ip_address, ingress))
    )


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("192.0.2.1", "is the address of node"),
        ("192.0.2.2", "is the address of node node2"),
        ("192.0.2.9", "is the API server's address"),
        ("192.0.2.254", "is a gateway"),
    ],
)
def test_an_external_ip_that_is_somebodys(address, told):
    gateway = Route(ip_interface("0.0.0.0/0").network, 2, via=ip_address("192.0.2.254"))
    view = cluster(a_service("192.0.2.7", address), node1="192.0.2.1", node2="192.0.2.2")
    found = said("vip-refused", picture(LO, ETH0, routes=(gateway,), cluster=view))
    assert [finding.grade for finding in found] == [Grade.BAD]
    assert told in found[0].seen
    assert f'"path":"/spec/externalIPs/1","value":"{address}"' in found[0].commands[0]
    assert ip_address(address) not in picture(LO, ETH0, routes=(gateway,), cluster=view).vips


def test_several_addresses_are_taken_from_the_end():
    view = cluster(a_service("192.0.2.1", "192.0.2.7", "224.0.0.1", "192.0.2.2"), node1="192.0.2.1", node2="192.0.2.2")
    commands = [finding.commands[0] for finding in said("vip-refused", picture(cluster=view))]
    assert [re.findall(r"externalIPs/(\d)", command)[0] for command in commands] == ["3", "2", "0"]


def test_a_load_balancers_address_is_not_taken_from_the_service_by_a_command():
    view = cluster(a_service(ingress=("192.0.2.1",)), node1="192.0.2.1")
    assert said("vip-refused", picture(cluster=view))[0].commands == ()


def test_a_vip_of_the_configuration_that_is_this_nodes_address():
    own = config("vips: [{address: 192.0.2.1, owner: external}]")
    found = said("vip-refused", picture(config=own, source="config.yaml"))
    assert [finding.grade for finding in found] == [Grade.BAD]
    assert "config.yaml" in found[0].fix


@pytest.mark.parametrize(
    ("proxy", "fields", "expected"),
    [
        (KubeProxy(""), {}, "ok"),
        (KubeProxy("nftables"), {}, "ok"),
        (KubeProxy("ipvs"), {}, "bad"),
        (KubeProxy("ipvs"), guarded(), "ok"),
        (KubeProxy("ipvs"), guarded(mode=Mode.OBSERVE), "bad"),
        (KubeProxy("ipvs", strict_arp=True), {"sysctls": sysctls(all__arp_ignore=1)}, "ok"),
        (KubeProxy("ipvs", strict_arp=True), {}, "bad"),
        (KubeProxy("ipvs", strict_arp=True), {"sysctls": Sysctls()}, "ok"),
    ],
)
def test_kube_proxy(proxy, fields, expected):
    assert grade("kube-proxy", picture(cluster=cluster(a_service(str(VIP)), proxy=proxy), **fields)) == expected


LEASES = Followable("Cilium's Lease", "403: allow the verb 'list'")
STATUSES = Followable("MetalLB's ServiceL2Status")
FOLLOW = config("ranges: [192.0.2.0/24]\nservices: {owner: follow}")


@pytest.mark.parametrize(
    ("announcers", "settings", "expected", "seen"),
    [
        ((LEASES,), config("{}"), "skip", "no VIP follows another announcer"),
        ((STATUSES,), FOLLOW, "ok", "read: MetalLB's ServiceL2Status"),
        (
            (STATUSES, LEASES),
            FOLLOW,
            "ok",
            "read: MetalLB's ServiceL2Status; not read: Cilium's Lease (403: allow the verb 'list')",
        ),
        ((LEASES,), FOLLOW, "bad", "not read: Cilium's Lease (403: allow the verb 'list')"),
    ],
)
def test_announcers_that_vips_follow(announcers, settings, expected, seen):
    view = replace(cluster(a_service(ingress=(str(VIP),))), announcers=announcers)
    scene = picture(cluster=view, config=settings, source="config.yaml")

    assert [(finding.grade.value, finding.seen) for finding in said("announcers", scene)] == [(expected, seen)]


FAST, AUTO = (config(f"lease: {{vouching: {text}}}") for text in ("{profile: fast}", "auto"))
SAYS = AgentWord("node-1", problems=("link down", "vouching: no node vouches for this node"))
SILENT = AgentWord("node-1")
REFUSED = AgentWord("node-1", lacks_right=True)
UNASKED = config("{}")


@pytest.mark.parametrize(
    ("settings", "word", "virtual", "expected"),
    [
        (config("lease: {vouching: off}"), SAYS, True, [("skip", "lease.vouching is off")]),
        (UNASKED, SILENT, True, [("skip", "the doctor does not know the cluster: no API server")]),
        (UNASKED, Unread("hidden"), True, [("skip", "the doctor does not know the cluster: no API server")]),
        (UNASKED, SAYS, True, [("bad", "no node vouches for this node")]),
        (
            UNASKED,
            REFUSED,
            True,
            [("skip", "the agent has no right to the Secret of vouching, so no node vouches for this one")],
        ),
        (AUTO, SILENT, True, [("ok", "the agent reports no problem with vouching")]),
        (AUTO, Unread("hidden"), True, [("unknown", "hidden")]),
        (AUTO, SAYS, None, [("bad", "no node vouches for this node")]),
        (FAST, SILENT, None, [("ok", "the agent reports no problem with vouching")]),
        (FAST, SILENT, True, [("warn", "lease.vouching.profile is fast on a virtual machine")]),
        (
            FAST,
            Unread("hidden"),
            True,
            [("warn", "lease.vouching.profile is fast on a virtual machine"), ("unknown", "hidden")],
        ),
    ],
)
def test_what_keeps_nodes_from_vouching(settings, word, virtual, expected):
    scene = picture(config=settings, agent=word, machine=Machine(virtual=virtual), cluster=Unread("no API server"))

    assert [(finding.grade.value, finding.seen) for finding in said("vouching", scene)] == expected
    assert all(finding.fix for finding in said("vouching", scene) if finding.grade in (Grade.BAD, Grade.WARN))


def test_in_a_cluster_nobody_has_to_ask_for_vouching():
    scene = picture(config=UNASKED, agent=SILENT, cluster=cluster())
    assert [finding.grade.value for finding in said("vouching", scene)] == ["ok"]


def test_problem_of_vouching_is_told_once():
    scene = picture(**guarded(), agent=SAYS, config=AUTO)
    assert [finding.seen for finding in said("agent", scene)] == ["link down"]


# ---- the wire ----------------------------------------------------------------------------------------------------


def heard(*macs: MacAddress, **nodes: MacAddress) -> Wire:
    return Wire(
        {
            AddressOnLink(VIP, 2): macs,
            **{AddressOnLink(ip_address(f"192.0.2.{n[4:]}"), 2): (m,) for n, m in nodes.items()},
        }
    )


@pytest.mark.parametrize(
    ("macs", "fields", "expected"),
    [
        ((), {}, "warn"),
        ((OTHER,), {}, "bad"),
        ((OTHER,), {"sysctls": sysctls(arp_ignore=1)}, "ok"),
        ((), {"sysctls": sysctls(arp_ignore=1)}, "warn"),
        ((), guarded(Kind.OWNED), "ok"),
        ((OTHER,), guarded(Kind.OWNED), "bad"),
        ((OTHER,), guarded(Kind.FOREIGN), "ok"),
        ((OTHER,), guarded(Kind.FOREIGN, owner_mac=OTHER), "ok"),
        ((OTHER,), guarded(Kind.FOREIGN, owner_mac=MAC), "bad"),
        ((OTHER, MAC), guarded(Kind.FOREIGN), "bad"),
    ],
    ids=str,
)
def test_who_answers_on_the_wire(macs, fields, expected):
    scene = picture(BOUND, ETH0, wire=heard(*macs), **fields)
    if not macs and not fields:
        expected = "ok"  # this node, alone: vip-bound tells of it
    assert grade("vip-on-wire", scene) == expected


OF_THIS_NODE = {"config": config(f"vips: [{{address: {VIP}, owner: {{node: node-1}}}}]")}


@pytest.mark.parametrize(
    "fields",
    [guarded(Kind.OWNED, mode=Mode.OBSERVE), guarded(Kind.OWNED, mode=Mode.OBSERVE) | OF_THIS_NODE, OF_THIS_NODE],
    ids=["only observed", "of this node, only observed", "of this node, without a guard"],
)
def test_another_host_that_alone_answers_for_a_vip_of_this_node_is_bad(fields):
    found = said("vip-on-wire", picture(BOUND, ETH0, sysctls=sysctls(arp_ignore=1), wire=heard(OTHER), **fields))[0]

    assert found.grade is Grade.BAD
    assert found.seen.endswith(f"but the owner is this node's eth0 ({MAC})")


def test_another_link_of_this_node_may_answer_for_a_vip_of_this_node():
    quiet = sysctls(arp_ignore=1)
    scene = picture(BOUND, ETH0, ETH1, sysctls=quiet, wire=heard(ETH1.mac), **OF_THIS_NODE)
    assert all("but the owner is" not in finding.seen for finding in said("vip-on-wire", scene))


def test_another_program_may_answer_for_a_vip_that_is_delegated_to_it():
    config_of = config(f"vips: [{{address: {VIP}, owner: {{node: node-1, delegated: true}}}}]")
    scene = picture(BOUND, ETH0, sysctls=sysctls(arp_ignore=1), wire=heard(OTHER), config=config_of)
    assert grade("vip-on-wire", scene) == "ok"


@pytest.mark.parametrize(
    ("owner", "fix"),
    [
        (None, "give the VIP an owner"),
        ("{node: node-2}", "its owner is the node node-2: check whether the agent runs there"),
        ("external", "its owner is a host outside the cluster"),
        ("elect", "the cluster elects its owner: `arpguard explain`"),
        ("{node: node-1}", "start the guard"),
    ],
)
def test_a_vip_that_nobody_answers_for_needs_an_owner_only_if_it_has_none(owner, fix):
    said_so = {"config": config(f"vips: [{{address: {VIP}, owner: {owner}}}]")} if owner else {}
    start = "arpguard agent" if owner == "{node: node-1}" else ""
    quiet = sysctls(arp_ignore=1)
    found = said("vip-on-wire", picture(BOUND, ETH0, sysctls=quiet, wire=heard(), start=start, **said_so))[0]
    assert found.grade is Grade.WARN
    assert found.fix.startswith(fix)
    assert found.commands == ((start,) if start else ())


def test_an_announcer_that_chose_nobody_yet_is_named_as_the_cause():
    view, quiet = cluster(a_service(str(VIP)), node1="192.0.2.1"), sysctls(arp_ignore=1)
    scene = picture(BOUND, ETH0, config=FOLLOW, sysctls=quiet, cluster=view, wire=heard())
    found = said("vip-on-wire", scene)[0]
    assert "check whether that announcer runs" in found.fix


def test_a_stranger_is_told_from_a_node_by_the_nodes_macs():
    quiet = sysctls(arp_ignore=1)
    view = cluster(a_service(str(VIP)), node1="192.0.2.1", node2="192.0.2.2")
    known = picture(BOUND, ETH0, sysctls=quiet, cluster=view, wire=heard(OTHER, node2=OTHER))
    stranger = picture(BOUND, ETH0, sysctls=quiet, cluster=view, wire=heard(OTHER, node2=MAC))
    assert grade("vip-on-wire", known) == "ok"
    assert "node2 (02:00:00:00:00:02)" in said("vip-on-wire", known)[0].seen
    assert grade("vip-on-wire", stranger) == "bad"
    finding = said("vip-on-wire", stranger)[0]
    assert "the annotation `arpguard.io/owner: external` on Service shop/db" in finding.fix
    assert finding.commands == ()  # whoever is on the segment can answer: a script must not give the VIP away
    service = replace(a_service(str(VIP)), annotations=(("arpguard.io/owner", "external"),))
    annotated = cluster(service, node1="192.0.2.1", node2="192.0.2.2")
    told = picture(BOUND, ETH0, sysctls=quiet, cluster=annotated, wire=heard(OTHER, node2=MAC))
    assert grade("vip-on-wire", told) == "ok"


def test_an_address_that_no_service_has_may_be_a_strangers_and_an_elected_one_not():
    quiet, view = sysctls(arp_ignore=1), cluster(node1="192.0.2.1")
    elected = config(f"vips: [{{address: {VIP}, owner: elect}}]")
    assert grade("vip-on-wire", picture(BOUND, ETH0, sysctls=quiet, cluster=view, wire=heard(OTHER))) == "ok"
    told = {"cluster": view, "wire": heard(OTHER), "sysctls": quiet}
    assert grade("vip-on-wire", picture(BOUND, ETH0, config=OF_OTHERS, **told)) == "ok"
    assert grade("vip-on-wire", picture(BOUND, ETH0, config=elected, **told)) == "bad"
    assert grade("vip-on-wire", picture(BOUND, ETH0, config=elected, **told | {"cluster": cluster()})) == "ok"


def test_an_external_owner_may_answer_and_only_with_its_own_mac():
    quiet, answered = sysctls(arp_ignore=1), heard(OTHER)
    pinned = config(f'vips: [{{address: {VIP}, owner: {{external: "{MAC}"}}}}]')
    assert grade("vip-on-wire", picture(config=OF_OTHERS, sysctls=quiet, wire=answered)) == "ok"
    assert grade("vip-on-wire", picture(config=pinned, sysctls=quiet, wire=answered)) == "bad"
    assert grade("vip-on-wire", picture(config=pinned, sysctls=quiet, wire=heard(MAC))) == "ok"


def test_another_link_of_this_node_that_answers_too_is_named():
    found = said("vip-on-wire", picture(BOUND, ETH0, ETH1, wire=heard(ETH1.mac)))[0]
    assert found.grade is Grade.BAD
    assert found.seen == "answered on eth0 by this node, this node's eth1 (02:00:00:00:00:02)"


def test_a_vrrp_router_is_known_by_its_mac():
    vrrp = MacAddress.parse("00:00:5e:00:01:07")
    found = said("vip-on-wire", picture(config=OF_OTHERS, wire=heard(vrrp)))[0]
    assert "VRRP router 7 (00:00:5e:00:01:07)" in found.seen


def test_questions_are_bounded_and_say_what_they_leave_out():
    many = [f"192.0.2.{number}/32" for number in range(10, 110)]
    asked, left_out = questions(picture(on(LO, *many), ETH0))
    assert (len(asked), left_out) == (MAX_ASKED, 100 - MAX_ASKED)
    scene = picture(on(LO, *many), ETH0, wire=Wire(left_out=left_out))
    assert any(f"{left_out} more VIPs" in finding.seen for finding in said("vip-on-wire", scene))


def test_vips_and_other_nodes_are_asked_for_and_not_this_node():
    view = cluster(a_service(str(VIP)), node1="192.0.2.1", node2="192.0.2.2", far="203.0.113.1")
    asked, _ = questions(picture(cluster=view))
    assert {str(question.address) for question in asked} == {"192.0.2.50", "192.0.2.2"}


def test_a_link_that_cannot_be_heard_on_is_unknown():
    scene = picture(BOUND, ETH0, wire=Wire(unheard={2: "the kernel refuses raw sockets"}))
    assert said("vip-on-wire", scene)[0] == Finding(
        Grade.UNKNOWN, "could not ask on this link: the kernel refuses raw sockets", "eth0"
    )


@pytest.mark.parametrize(("ago_s", "expected"), [(5.0, "bad"), (3600.0, "warn")])
def test_claims_that_the_agent_heard(ago_s, expected):
    claim = Rival(str(VIP), "eth0", "00:00:5e:00:01:07", "VRRP router 7", 3, ago_s=ago_s)
    scene = picture(agent=AgentWord("node-1", claims=(claim,)))
    assert grade("vip-claimed", scene) == expected
    assert "(VRRP router 7), reports: 3" in said("vip-claimed", scene)[0].seen
    assert "switch" in said("vip-claimed", scene)[0].fix


def rival(mac: str, vip: object = VIP, **changes) -> Rival:
    return Rival(str(vip), "eth0", mac, "outside", 2, **changes)


STRANGERS = [f"02:00:00:00:00:9{number}" for number in range(4)]


def test_claims_of_one_vip_are_one_finding_that_names_each_mac():
    claims = (*(rival(mac, ago_s=5.0) for mac in STRANGERS), rival(STRANGERS[0], "192.0.2.51", ago_s=3600.0))
    first, second = said("vip-claimed", picture(agent=AgentWord("node-1", claims=claims)))

    assert (first.about, first.grade) == (str(VIP), Grade.BAD)
    assert first.seen.startswith("claimed on eth0 by ")
    assert [f"{mac} (outside), reports: 2, the last one 5 s ago" for mac in STRANGERS] == first.seen.split(" by ")[
        1
    ].split("; ")
    assert (second.about, second.grade) == ("192.0.2.51", Grade.WARN)


@pytest.mark.parametrize(
    ("problem", "ago_s", "repeated"),
    [
        (CONTESTED.format(vip=VIP), 5.0, False),
        (f"audit: {STRANGERS[0]} (a host outside the cluster) answers for {VIP}, and so does another host", 5.0, False),
        (
            f"audit: {STRANGERS[0]} (a host outside the cluster) answers for {VIP}, and so does another host",
            3600.0,
            True,
        ),
        (f"audit: {STRANGERS[1]} (a host outside the cluster) answers for {VIP}, and so does another host", 5.0, True),
        (CONTESTED.format(vip="192.0.2.51"), 5.0, True),
        (f"audit: {STRANGERS[0]} answers for {VIP}1 and 192.0.2.5, and so does another host", 5.0, True),
        (f"audit: {STRANGERS[0]} answers for 192.0.2.5, {VIP}, and so does another host", 5.0, False),
        (f"audit: no host answers for {VIP}, though node-2 should", 5.0, True),
    ],
)
def test_the_agent_check_does_not_repeat_a_problem_that_the_check_of_claims_shows(problem, ago_s, repeated):
    word = AgentWord("node-1", (problem,), (rival(STRANGERS[0], ago_s=ago_s),))

    shown = [finding.seen for finding in said("agent", picture(**guarded(), agent=word))]
    assert (problem in shown) is repeated


def test_claims_of_a_node_of_the_cluster_are_told_apart():
    claim = Rival(str(VIP), "eth0", "02:00:00:00:00:02", "node-2 (cluster node)", of_node=True)
    found = said("vip-claimed", picture(agent=AgentWord("node-1", claims=(claim,))))[0]
    assert "two nodes of this cluster" in found.why


# ---- settings on links -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("links", "fields", "expected"),
    [
        ((BOUND, ETH0), {"sysctls": sysctls(accept_local=1)}, "bad"),
        ((BOUND, ETH0), {"sysctls": sysctls(all__accept_local=1)}, "bad"),
        ((LO, on(ETH0, OWN, f"{VIP}/32")), {"sysctls": sysctls(accept_local=1)}, "ok"),
        ((LO, ETH0), {"sysctls": sysctls(accept_local=1)}, "ok"),
        ((LO, ETH0), {"sysctls": sysctls(accept_local=1, forwarding=1), "config": OF_OTHERS}, "ok"),
    ],
    ids=["on lo", "by all", "on the NIC: the director", "no VIP", "no route to it"],
)
def test_accept_local(links, fields, expected):
    assert grade("lvs-dr-loop", picture(*links, **fields)) == expected


def test_arp_ignore_in_vain_is_told_where_it_would_matter():
    lo = sysctls(lo__arp_ignore=1)
    assert grade("arp-ignore", picture(BOUND, ETH0, sysctls=lo)) == "warn"
    assert grade("arp-ignore", picture(BOUND, ETH0, sysctls=lo, **guarded())) == "ok"
    assert grade("arp-ignore", picture(BOUND, ETH0, sysctls=sysctls(lo__arp_ignore=1, arp_ignore=1))) == "ok"
    assert grade("arp-ignore", picture(LO, on(ETH0, OWN, f"{VIP}/32"), sysctls=lo)) == "ok"


@pytest.mark.parametrize(
    ("links", "ignore", "kind", "expected"),
    [
        ((BOUND, ETH0), 0, Kind.DELEGATED, "ok"),
        ((BOUND, ETH0), 1, Kind.DELEGATED, "bad"),
        ((BOUND, ETH0), 1, Kind.FOREIGN, "ok"),
        ((LO, ETH0), 1, Kind.DELEGATED, "ok"),
        ((LO, on(ETH0, OWN, f"{VIP}/32")), 1, Kind.DELEGATED, "ok"),
    ],
    ids=["answered", "not answered", "another's", "not bound", "bound on the link"],
)
def test_what_is_left_to_the_kernel_has_to_be_answered_by_it(links, ignore, kind, expected):
    """A VIP with `delegated: true` that the kernel, with arp_ignore, says nothing about."""
    scene = picture(*links, sysctls=sysctls(arp_ignore=ignore), **guarded(kind))
    assert grade("arp-ignore", scene) == expected


@pytest.mark.parametrize(
    ("forwarding", "words"), [(1, f"no device here has {VIP}"), (0, "if this node forwards packets")]
)
def test_packets_go_round_at_once_where_the_vip_is_not_bound_and_packets_are_forwarded(forwarding, words):
    route = Route(ip_interface("192.0.2.0/24").network, 2)
    settings = sysctls(accept_local=1, rp_filter=1, forwarding=forwarding)
    found = said("lvs-dr-loop", picture(routes=(route,), sysctls=settings, config=OF_OTHERS))[0]
    assert found.grade is Grade.BAD
    assert found.why.startswith(words)
    assert found.commands == ("sysctl -w net.ipv4.conf.eth0.accept_local=0",)


@pytest.mark.parametrize(
    ("second", "settings", "expected"),
    [
        (ETH1, {}, "warn"),
        (ETH1, {"all__arp_filter": 1}, "ok"),
        (ETH1, {"arp_filter": 1}, "warn"),
        (ETH1, {"all__arp_ignore": 1}, "ok"),
        (replace(ETH1, up=False), {}, "ok"),
        (replace(ETH1, kind="macvlan", parent=2), {}, "ok"),
        (replace(ETH1, master=9), {}, "ok"),
        (on(ETH1, "198.51.100.1/24"), {}, "ok"),
    ],
)
def test_two_links_on_one_segment(second, settings, expected):
    assert grade("same-segment", picture(LO, ETH0, second, sysctls=sysctls(**settings))) == expected


def test_a_second_link_beside_the_guarded_one_answers_past_the_guard():
    assert grade("same-segment", picture(BOUND, ETH0, ETH1, **guarded())) == "bad"
    assert grade("vip-bound", picture(BOUND, ETH0, ETH1, **guarded())) == "bad"


@pytest.mark.parametrize(("value", "ifindex", "expected"), [(1, 3, "bad"), (2, 3, "ok"), (1, 2, "ok"), (0, 3, "ok")])
def test_strict_reverse_path_filter(value, ifindex, expected):
    way_back = Route(ip_interface("192.0.2.0/24").network, ifindex)
    scene = picture(LO, ETH0, on(ETH1, "198.51.100.1/24"), routes=(way_back,), sysctls=sysctls(rp_filter=value))
    assert grade("rp-filter", scene) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, "warn"), ({"suppress_frag_ndisc": 1}, "ok"), ({"suppress_frag_ndisc": 1, "disable_ipv6": 1}, "bad")],
)
def test_ipv6_settings_where_an_ipv6_vip_may_be_asked_for(settings, expected):
    lo, eth0 = on(LO, f"{VIP6}/128"), on(ETH0, OWN, "2001:db8::1/64")
    assert grade("ipv6", picture(lo, eth0, sysctls=sysctls(**settings))) == expected
    assert grade("ipv6", picture(sysctls=sysctls(disable_ipv6=1))) == "skip"


def test_unsolicited_advertisements_that_are_dropped():
    assert grade("takeovers", picture(sysctls=sysctls(drop_unsolicited_na=1), config=OF_OTHERS)) == "bad"


# ---- links and programs ------------------------------------------------------------------------------------------


def test_a_link_that_is_down_is_told():
    scene = picture(LO, replace(ETH0, up=False), config=config("interfaces: [eth0]"), source="f")
    assert grade("interfaces", scene) == "warn"


def test_without_a_configuration_and_a_vip_no_link_is_missed():
    assert grade("interfaces", picture(LO)) == "ok"
    assert grade("interfaces", picture(LO, source="f")) == "bad"


@pytest.mark.parametrize(
    ("says", "links", "expected"),
    [
        ("eth0", (LO, ETH0), "ok"),
        ("lo", (BOUND, ETH0), "warn"),
        (Unread("Network is unreachable"), (LO, ETH0), "unknown"),
    ],
)
def test_can_reach(says, links, expected):
    reach = config(f"interfaces: ['can_reach:{VIP}']")
    route = Route(ip_interface("192.0.2.0/24").network, 2)
    assert grade("can-reach", picture(*links, routes=(route,), config=reach, kernel_routes={VIP: says})) == expected
    if says == "lo":
        assert grade("can-reach", picture(*links, config=reach, kernel_routes={VIP: says})) == "bad"


@pytest.mark.parametrize(
    ("says", "gateway", "expected", "commands"),
    [
        ("eth0", True, "ok", ()),
        (
            "lo",
            True,
            "bad",
            ("""kubectl patch eip p --type=merge -p '{"spec":{"interface":"can_reach:192.0.2.254"}}'""",),
        ),
        ("lo", False, "bad", ()),
        (Unread("unreachable"), True, "unknown", ()),
    ],
)
def test_can_reach_of_openelb(says, gateway, expected, commands):
    default = Route(ip_interface("0.0.0.0/0").network, 2, via=ip_address("192.0.2.254"))
    view = replace(cluster(), eips=(Eip("p", VIP),))
    scene = picture(BOUND, ETH0, routes=(default,) if gateway else (), cluster=view, kernel_routes={VIP: says})
    found = said("can-reach", scene)[0]
    assert (found.grade.value, found.about, found.commands) == (expected, "Eip p", commands)


def test_eips_that_cannot_be_read_are_unknown():
    view = replace(cluster(), eips=Unread("cannot list eips: 403"))
    assert "403" in said("can-reach", picture(cluster=view))[0].seen


def _programs(*rows: tuple[str, int, bool]) -> tuple[AttachedProgram, ...]:
    return tuple(AttachedProgram(2, hook, place, 10 + place, "x", ours=ours) for hook, place, ours in rows)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("tcx ingress", 0, False)], "ok"),
        ([("tcx ingress", 0, True), ("tcx ingress", 1, False)], "ok"),
        ([("tcx ingress", 0, False), ("tcx ingress", 1, True)], "bad"),
        ([("tcx egress", 0, False), ("tcx egress", 1, True)], "bad"),
        ([("tcx ingress", 0, False), ("clsact ingress", 0, True)], "bad"),
        ([("clsact ingress", 0, False), ("tcx ingress", 0, True)], "ok"),
        ([("xdp", 0, False), ("tcx ingress", 0, True)], "ok"),
        ([("tcx egress", 0, False), ("tcx ingress", 0, True)], "ok"),
    ],
)
def test_programs_of_others(rows, expected):
    scene = picture(config=OF_OTHERS, programs=_programs(*rows))
    assert grade("foreign-programs", scene) == expected


@pytest.mark.parametrize(
    ("guards", "expected", "commands"),
    [
        ((), "ok", ()),
        ((Guard("/pins"),), "ok", ()),
        ((Guard("/sys/fs/bpf/arpguard"), Guard("/pins", running=False)), "bad", ("arpguard cleanup --pin-dir /pins",)),
        ((Guard("/sys/fs/bpf/arpguard"), Guard("/pins", running=True)), "bad", ()),
    ],
)
def test_two_guards(guards, expected, commands):
    found = said("one-agent", picture(guards=guards))[0]
    assert (found.grade.value, found.commands) == (expected, commands)


def test_two_guards_programs_at_one_hook():
    twice = _programs(("tcx ingress", 0, True), ("tcx ingress", 1, True))
    assert grade("one-agent", picture(config=OF_OTHERS, programs=twice)) == "bad"


@pytest.mark.parametrize(
    ("link", "expected", "told"),
    [
        (replace(ETH0, kind="veth"), "warn", "unless the veth's peer runs native XDP"),
        (replace(ETH0, kind="bridge"), "warn", "no native XDP"),
        (replace(ETH0, kind="bond"), "warn", "XDP sees frames on the bond's ports"),
        (ETH0, "ok", "eth0"),
    ],
)
def test_native_xdp(link, expected, told):
    found = said("xdp", picture(LO, link, config=config("{datapath: xdp, interfaces: [eth0]}")))[0]
    assert found.grade.value == expected
    assert told in found.seen
    strips = Machine(strips_tags=frozenset({"eth0"}))
    scene = picture(LO, ETH0, config=config("{datapath: xdp, interfaces: [eth0]}"), machine=strips)
    assert "VLAN tags" in said("xdp", scene)[0].seen
    taken = picture(
        LO, ETH0, config=config("{datapath: xdp, interfaces: [eth0]}"), programs=_programs(("xdp", 0, False))
    )
    assert "another XDP program" in said("xdp", taken)[0].seen


# ---- the machine -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "machine", "expected"),
    [
        ("kernel", Machine(release="5.14.0-1"), "bad"),
        ("kernel", Machine(release="5.15.0"), "ok"),
        ("kernel", Machine(release="odd"), "ok"),
        ("kernel", Machine(release="6.1.0", jited=False), "warn"),
        ("tcx", Machine(tcx=False), "warn"),
        ("bpffs", Machine(bpffs=False), "warn"),
        ("capabilities", Machine(), "unknown"),
        ("capabilities", Machine(capabilities=frozenset({"CAP_BPF"})), "bad"),
        ("capabilities", Machine(capabilities=frozenset(NEEDED)), "ok"),
        ("clock", Machine(clock="hpet"), "warn"),
        ("clock", Machine(clock="arch_sys_counter"), "ok"),
    ],
)
def test_machine(check, machine, expected):
    assert grade(check, picture(machine=machine)) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "skip"),
        ({"source": "f", "start": "go"}, "bad"),
        (guarded(), "ok"),
        ({**guarded(), "guards": (replace(guarded()["guards"][0], running=False),)}, "warn"),
        (guarded(mode=None), "bad"),
        ({**guarded(), "agent": AgentWord("node-1", problems=("link down",))}, "bad"),
    ],
    ids=["nothing", "configured only", "runs", "stopped", "never told", "has a problem"],
)
def test_agent(fields, expected):
    assert grade("agent", picture(**fields)) == expected


# ---- the fixes ---------------------------------------------------------------------------------------------------


def test_what_is_answered_by_proxy_arp_is_mended_by_turning_that_off():
    route = Route(ip_interface(f"{VIP}/32").network, 3)
    settings = sysctls(proxy_arp=1, forwarding=1, arp_ignore=1, arp_announce=2)
    scene = picture(LO, ETH0, ETH1, routes=(route,), sysctls=settings, config=OF_OTHERS)
    found = said("vip-bound", scene)[0]
    assert "(proxy_arp)" in found.seen
    assert found.fix == "turn proxy_arp off"
    assert found.commands == ("sysctl -w net.ipv4.conf.eth0.proxy_arp=0",)
    assert grade("proxy-arp", scene) == "bad"


def test_proxy_arp_that_takes_no_vip_is_only_told():
    settings = sysctls(proxy_arp=1, forwarding=1)
    route = Route(ip_interface(f"{VIP}/32").network, 3)
    bound, covered = picture(BOUND, ETH0, sysctls=settings), {**guarded(), "config": OF_OTHERS, "routes": (route,)}
    assert grade("proxy-arp", bound) == "warn"
    assert grade("proxy-arp", picture(LO, ETH0, ETH1, sysctls=settings, **covered)) == "warn"


def test_a_node_that_answers_beside_others_is_silenced_unless_it_is_the_owner():
    scene = picture(BOUND, ETH0, wire=heard(OTHER))
    assert said("vip-on-wire", scene)[0].commands == said("vip-bound", scene)[0].commands != ()
    owner = picture(BOUND, ETH0, wire=heard(OTHER), **guarded(Kind.OWNED))
    assert said("vip-on-wire", owner)[0].commands == ()
    mine = config(f"vips: [{{address: {VIP}, owner: {{node: node-1}}}}]")
    unguarded = picture(BOUND, ETH0, wire=heard(OTHER), config=mine, source="f")
    assert said("vip-on-wire", unguarded)[0].commands == ()
    startable = picture(BOUND, ETH0, wire=heard(OTHER), config=mine, source="f", start="go")
    assert said("vip-on-wire", startable)[0].commands == ("go",)
    observed = picture(BOUND, ETH0, wire=heard(OTHER), **guarded(mode=Mode.OBSERVE))
    assert said("vip-on-wire", observed)[0].commands != ()


def test_an_address_of_another_host_is_taken_off_the_link_and_one_of_nobody_known_is_not():
    nic = on(ETH0, OWN, f"{VIP}/32")
    others = said("vip-bound", picture(LO, nic, config=OF_OTHERS))[0]
    assert others.commands == (f"ip addr del {VIP}/32 dev eth0",)
    assert said("vip-on-wire", picture(LO, nic, wire=heard(OTHER)))[0].commands == ()
    start = picture(LO, nic, config=OF_OTHERS, source="f", start="go")
    assert said("vip-bound", start)[0].commands == ("go",)


def test_ipvs_without_addresses_is_told_before_it_hurts():
    assert grade("kube-proxy", picture(cluster=cluster(proxy=KubeProxy("ipvs")))) == "warn"


@pytest.mark.parametrize("parent_first", [True, False])
def test_a_macvlan_and_its_parent_are_one_segment(parent_first):
    macvlan = replace(ETH1, kind="macvlan", parent=2)
    links = (ETH0, macvlan) if parent_first else (macvlan, ETH0)
    assert grade("same-segment", picture(LO, *links)) == "ok"


def test_two_guarded_links_on_one_segment_answer_for_their_own_addresses_only():
    entries = {EntryKey(link.ifindex, VIP): VipEntry(Kind.FOREIGN) for link in (ETH0, ETH1)}
    programs = tuple(
        AttachedProgram(link.ifindex, hook, 0, link.ifindex, ours=True, pin_dir="/pins")
        for link in (ETH0, ETH1)
        for hook in ("tcx ingress", "tcx egress")
    )
    guards = (Guard("/pins", running=True, mode=Mode.ENFORCE, entries=entries),)
    scene = picture(BOUND, ETH0, ETH1, guards=guards, programs=programs)
    assert grade("vip-bound", scene) == "ok"
    assert grade("same-segment", scene) == "warn"


@pytest.mark.parametrize("address", ["192.0.2.8/31", "2001:db8::1/64", "192.0.2.8/32"])
def test_links_without_an_ipv4_subnet_have_no_way_back_to_check(address):
    way_back = Route(ip_interface("0.0.0.0/0").network, 2)
    scene = picture(LO, ETH0, on(ETH1, address), routes=(way_back,), sysctls=sysctls(eth1__rp_filter=1))
    assert grade("rp-filter", scene) == "ok"


def test_a_selector_that_names_nothing_is_told_with_its_configuration():
    found = said("interfaces", picture(config=config("interfaces: [eth9, eth0]"), source="ConfigMap a/b"))[0]
    assert (found.about, found.fix) == ("eth9", "correct `interfaces:` in ConfigMap a/b")
    assert found.seen == "there is no such interface; name one of eth0"


def test_a_vip_of_another_node_is_of_others_and_one_of_this_node_is_not():
    text = "vips: [{address: 192.0.2.50, owner: {node: NODE}}, {address: 192.0.2.51, owner: elect}]"
    scene = picture(config=config(text.replace("NODE", "node-2")))
    assert scene.is_of_others(VIP)
    assert scene.is_of_others(ip_address("192.0.2.51"))
    assert not picture(config=config(text.replace("NODE", "node-1"))).is_of_others(VIP)
    assert not scene.is_of_others(ip_address("192.0.2.52"))
