"""Why an entry is what it is, word for word."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.claimwords import Candidate
from arpguard.core.desired import primary_addresses, wanted_entries
from arpguard.core.explaining import Viewpoint, explain_ownership, fences_left, is_owner, need_fences, summary
from arpguard.core.keepalived import InstanceStates, VrrpState
from arpguard.model import (
    EntryKey,
    Grants,
    InterfaceAddress,
    Link,
    NodeControl,
    Owner,
    OwnerKind,
    RangeKey,
    Route,
    Surroundings,
    Vip,
    VipEntry,
)
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind, Mode

VIP, FAR = ip_address("192.0.2.50"), ip_address("203.0.113.50")
SOURCE = "vips[0] in /etc/arpguard/config.yaml"
NOW_NS = 1000 * NS_PER_S
PINNED = MacAddress.parse("02:00:00:00:00:aa")


def a_link(ifindex: int, name: str, *addresses: str) -> Link:
    own = tuple(InterfaceAddress(ip_interface(text).ip, ip_interface(text).network) for text in addresses)
    return Link(ifindex, name, MacAddress(bytes((2, 0, 0, 0, 0, ifindex))), up=True, addresses=own)


LO = Link(1, "lo", MacAddress(bytes(6)), up=True, loopback=True)
VIP6 = ip_address("2001:db8::50")
ETH0, ETH1 = a_link(2, "eth0", "192.0.2.1/24"), a_link(3, "eth1", "198.51.100.1/24")
DOWN = replace(ETH0, up=False)
POOL = RangeKey(2, ip_network("192.0.2.0/24"))
DEFAULT = Route(ip_network("0.0.0.0/0"), 3)
HERE, THERE = Owner(OwnerKind.NODE, node="me"), Owner(OwnerKind.NODE, node="other")


def a_control(mode: Mode = Mode.ENFORCE, **changes: int) -> NodeControl:
    return NodeControl(mode, generation=1, **changes)


def a_scene(link=ETH0, guarded=(ETH0,), bound=(), control=None, routes=(DEFAULT,)) -> Viewpoint:
    lo = a_link(1, "lo", *(f"{address}/32" for address in bound))
    return Viewpoint("me", link, guarded, Surroundings((lo, *guarded), routes), control or a_control(), NOW_NS)


def explain(owner: Owner | None, scene: Viewpoint, address=VIP, mode=Mode.INHERIT, entry: VipEntry | None = None):
    """With the entry that the agent would write, unless the test has another one."""
    vip = Vip(address, owner, mode) if owner else None
    vips = [vip] if vip else []
    primaries = primary_addresses(scene.guarded, [each.address for each in vips])
    wanted = wanted_entries(vips, scene.guarded, scene.surroundings.routes, primaries, scene.node, {})
    found = entry or wanted.get(EntryKey(scene.link.ifindex, address))
    return explain_ownership(address, SOURCE if vip else "/etc/arpguard/config.yaml", vip, found, scene)


MADE = f"{SOURCE} makes {VIP} a VIP with the owner "
STILL = (
    "keepalived says that VI_1 is BACKUP on me, but the agent does not yet know everything that it has to guard: "
    "until then, this node treats the VIP as it did before the agent started"
)
FOREIGN = "another node or another link of this node answers, so this link is silent"
ENFORCED = "the mode is enforce (the node's)"
HOLD = "the owner is fixed, so the right to answer does not expire (no fence)"
SUBNET = "me is this node; it answers on eth0: the VIP is in the subnet of eth0"
BOUND = f"{VIP} is bound on lo of this node: "
OWNED = "so the kernel's entry on eth0 is owned: this node answers"
BOTH = (ETH0, ETH1)

STEPS = [
    pytest.param(HERE, a_scene(), {}, [MADE + "me", SUBNET, OWNED, ENFORCED, HOLD], id="owner here"),
    pytest.param(
        THERE,
        a_scene(),
        {},
        [
            MADE + "other",
            f"so the kernel's entry on eth0 is foreign: {FOREIGN}",
            ENFORCED,
        ],
        id="owner elsewhere",
    ),
    pytest.param(
        Owner(OwnerKind.EXTERNAL),
        a_scene(),
        {},
        [
            MADE + "external",
            "so the kernel's entry on eth0 is external: a host outside the cluster answers, and this node is silent",
            ENFORCED,
        ],
        id="owner outside the cluster",
    ),
    pytest.param(
        Owner(OwnerKind.EXTERNAL, mac=PINNED),
        a_scene(control=a_control(Mode.OBSERVE)),
        {},
        [
            MADE + f"external {PINNED}",
            "so the kernel's entry on eth0 is external: a host outside the cluster answers, and this node is silent",
            "the mode is observe (the node's)",
        ],
        id="owner outside, with a MAC, observed",
    ),
    pytest.param(
        Owner(OwnerKind.ELECT),
        a_scene(),
        {},
        [
            MADE + "elect",
            "so the kernel's entry on eth0 is unclaimed: no node owns it, so this node is silent",
            ENFORCED,
        ],
        id="to be elected",
    ),
    pytest.param(
        Owner(OwnerKind.KEEPALIVED, instance="VI_1"),
        replace(a_scene(), keepalived=InstanceStates({"VI_1": VrrpState.BACKUP})),
        {},
        [
            MADE + "keepalived VI_1",
            "keepalived says that VI_1 is BACKUP on me, so this node is silent",
            f"so the kernel's entry on eth0 is foreign: {FOREIGN}",
            ENFORCED,
        ],
        id="keepalived, backup",
    ),
    pytest.param(
        Owner(OwnerKind.KEEPALIVED, instance="VI_1"),
        replace(a_scene(), keepalived=InstanceStates({"VI_1": VrrpState.BACKUP}), waits=True),
        {},
        [
            MADE + "keepalived VI_1",
            STILL,
            f"so the kernel's entry on eth0 is foreign: {FOREIGN}",
            ENFORCED,
        ],
        id="keepalived, while the agent waits",
    ),
    pytest.param(
        Owner(OwnerKind.KEEPALIVED, instance="VI_1", node="me"),
        replace(a_scene(), keepalived=InstanceStates({"VI_1": VrrpState.MASTER})),
        {},
        [
            MADE + "keepalived VI_1",
            "keepalived runs on me and says that VI_1 is MASTER, so the guard there passes answers for the VIP",
            SUBNET,
            (
                "so the kernel's entry on eth0 is delegated: another program on this node answers, and the guard "
                "passes its answers"
            ),
            ENFORCED,
        ],
        id="keepalived, master",
    ),
    pytest.param(
        Owner(OwnerKind.NODE, node="me", delegated=True),
        a_scene(bound=[VIP]),
        {},
        [
            MADE + "me (delegated)",
            SUBNET,
            BOUND + "the kernel answers for it",
            (
                "so the kernel's entry on eth0 is delegated: another program on this node answers, and the guard "
                "passes its answers"
            ),
            ENFORCED,
        ],
        id="delegated, bound on lo",
    ),
    pytest.param(
        None,
        a_scene(),
        {},
        [
            f"nothing in /etc/arpguard/config.yaml makes {VIP} a VIP",
            "so the kernel has no entry for it on eth0, and every frame about the address passes",
        ],
        id="no VIP",
    ),
    pytest.param(
        None,
        replace(a_scene(bound=[VIP]), around=(POOL, VipEntry(Kind.CLOSED))),
        {},
        [
            f"nothing in /etc/arpguard/config.yaml makes {VIP} a VIP",
            BOUND + "without the guard the kernel would answer for it",
            (
                "so the kernel has no entry for it on eth0, and 192.0.2.0/24 is closed there (unknown: suppress): "
                "this node is silent"
            ),
            "the mode is enforce (the node's)",
        ],
        id="no VIP, in a closed range, bound on lo",
    ),
    pytest.param(
        None,
        replace(a_scene(), around=(POOL, VipEntry(Kind.OPEN))),
        {},
        [
            f"nothing in /etc/arpguard/config.yaml makes {VIP} a VIP",
            (
                "so the kernel has no entry for it on eth0, and 192.0.2.0/24 is an exception in a closed range: every "
                "frame about the address passes"
            ),
        ],
        id="no VIP, an exception in a closed range",
    ),
    pytest.param(
        None,
        a_scene(bound=[VIP]),
        {},
        [
            f"nothing in /etc/arpguard/config.yaml makes {VIP} a VIP",
            BOUND + "the kernel answers for it",
            "so the kernel has no entry for it on eth0, and every frame about the address passes",
        ],
        id="no VIP, bound on lo",
    ),
    pytest.param(
        THERE,
        a_scene(bound=[VIP]),
        {},
        [
            MADE + "other",
            BOUND + "without the guard the kernel would answer for it",
            f"so the kernel's entry on eth0 is foreign: {FOREIGN}",
            ENFORCED,
        ],
        id="owner elsewhere, bound on lo",
    ),
    pytest.param(
        HERE,
        a_scene(link=ETH1, guarded=BOTH),
        {},
        [
            MADE + "me",
            "me is this node; it answers on eth0, and not on eth1: the VIP is in the subnet of eth0",
            f"so the kernel's entry on eth1 is foreign: {FOREIGN}",
            ENFORCED,
        ],
        id="two links, asked about the other one",
    ),
    pytest.param(
        HERE,
        a_scene(guarded=BOTH),
        {"address": FAR},
        [
            f"{SOURCE} makes {FAR} a VIP with the owner me",
            (
                "me is this node; it answers on eth1, and not on eth0: "
                "no link has the VIP's subnet, and the routes lead through eth1"
            ),
            f"so the kernel's entry on eth0 is foreign: {FOREIGN}",
            ENFORCED,
        ],
        id="two links, the routes decide",
    ),
    pytest.param(
        HERE,
        a_scene(routes=()),
        {"address": FAR},
        [
            f"{SOURCE} makes {FAR} a VIP with the owner me",
            "me is this node; it answers on eth0: no other link is guarded",
            OWNED,
            ENFORCED,
            HOLD,
        ],
        id="one link, in no subnet",
    ),
    pytest.param(
        HERE,
        a_scene(link=DOWN, guarded=(DOWN,)),
        {},
        [MADE + "me", SUBNET, "eth0 is down: no frame arrives or leaves there now", OWNED, ENFORCED, HOLD],
        id="the link is down",
    ),
    pytest.param(
        None,
        a_scene(link=DOWN, guarded=(DOWN,), bound=[VIP]),
        {},
        [
            f"nothing in /etc/arpguard/config.yaml makes {VIP} a VIP",
            BOUND + "the kernel answers for it",
            "eth0 is down: no frame arrives or leaves there now",
            "so the kernel has no entry for it on eth0, and every frame about the address passes",
        ],
        id="no VIP, the link is down",
    ),
    pytest.param(
        HERE,
        a_scene(control=a_control(Mode.OBSERVE)),
        {"mode": Mode.ENFORCE},
        [MADE + "me", SUBNET, OWNED, "the mode is enforce (the VIP's own)", HOLD],
        id="a mode of its own",
    ),
    pytest.param(
        HERE,
        a_scene(control=a_control(fence_ns=NOW_NS + 1_234_567_890, lease_ns=3 * NS_PER_S)),
        {"entry": VipEntry(Kind.OWNED)},
        [MADE + "me", SUBNET, OWNED, ENFORCED, "the fence expires in 1.235 s, unless this node renews its lease"],
        id="a fence ahead",
    ),
    pytest.param(
        HERE,
        a_scene(control=a_control(fence_ns=NOW_NS, lease_ns=3 * NS_PER_S)),
        {"entry": VipEntry(Kind.OWNED)},
        [
            MADE + "me",
            SUBNET,
            OWNED,
            ENFORCED,
            "the fence has expired: this node does not answer until it renews its lease",
        ],
        id="fenced",
    ),
    pytest.param(
        HERE,
        a_scene(control=a_control(epoch=4)),
        {"entry": VipEntry(Kind.OWNED, unfenced=True, epoch=3)},
        [
            MADE + "me",
            SUBNET,
            OWNED,
            ENFORCED,
            "the entry is from epoch 3, but this node is in epoch 4, so it does not answer",
            HOLD,
        ],
        id="stale epoch",
    ),
    pytest.param(
        THERE,
        a_scene(control=a_control(epoch=4)),
        {"entry": VipEntry(Kind.FOREIGN, epoch=3)},
        [
            MADE + "other",
            f"so the kernel's entry on eth0 is foreign: {FOREIGN}",
            ENFORCED,
        ],
        id="the epoch of what is not owned does not matter",
    ),
]


@pytest.mark.parametrize(("owner", "scene", "more", "steps"), STEPS)
def test_steps_lead_from_the_source_to_the_kernels_entry(owner, scene, more, steps):
    assert list(explain(owner, scene, **more).steps) == steps


def test_address_of_the_node_itself_is_listed_and_refused():
    own = ip_address("192.0.2.1")
    found = explain_ownership(own, SOURCE, Vip(own, Owner(OwnerKind.EXTERNAL)), None, a_scene())

    assert found.steps[0] == (
        f"{SOURCE} lists this address, but 192.0.2.1 is the address of this node: guarding it would cut the node off; "
        "choose an address that no host has"
    )
    assert found.steps[1:] == (
        "192.0.2.1 is bound on eth0 of this node: the kernel answers for it",
        "so the kernel has no entry for it on eth0, and every frame about the address passes",
    )
    assert found.candidates == ()


def test_without_an_agent_no_source_is_named():
    steps = explain_ownership(VIP, "", None, None, a_scene()).steps

    assert steps[0] == "only a running agent knows which object makes 192.0.2.50 a VIP"


@pytest.mark.parametrize(
    ("owner", "candidates"),
    [
        (HERE, [Candidate("me", eligible=True, chosen=True, why="named as the owner")]),
        (
            THERE,
            [
                Candidate("other", eligible=True, chosen=True, why="named as the owner"),
                Candidate("me", eligible=False, chosen=False, why="other is named as the owner"),
            ],
        ),
        (
            Owner(OwnerKind.EXTERNAL),
            [Candidate("me", eligible=False, chosen=False, why="the owner is a host outside the cluster")],
        ),
        (
            Owner(OwnerKind.ELECT),
            [Candidate("me", eligible=False, chosen=False, why="an election needs Kubernetes")],
        ),
        (None, []),
    ],
    ids=["here", "elsewhere", "external", "elect", "no VIP"],
)
def test_candidates_are_who_might_answer_and_why(owner, candidates):
    assert list(explain(owner, a_scene()).candidates) == candidates


AHEAD = a_control(fence_ns=NOW_NS + NS_PER_S, lease_ns=3 * NS_PER_S)
FENCES = [
    pytest.param(VipEntry(Kind.OWNED), AHEAD, NS_PER_S, "owned, this node answers", id="ahead"),
    pytest.param(
        VipEntry(Kind.OWNED),
        a_control(fence_ns=NOW_NS, lease_ns=3 * NS_PER_S),
        0,
        "owned, but the fence has expired: this node is silent",
        id="passed just now",
    ),
    pytest.param(
        VipEntry(Kind.OWNED),
        a_control(fence_ns=NOW_NS + 3 * NS_PER_S + 1, lease_ns=3 * NS_PER_S),
        0,
        "owned, but the fence has expired: this node is silent",
        id="further ahead than a lease lasts",
    ),
    pytest.param(
        VipEntry(Kind.OWNED),
        a_control(fence_ns=NOW_NS + 3 * NS_PER_S, lease_ns=3 * NS_PER_S),
        3 * NS_PER_S,
        "owned, this node answers",
        id="exactly a lease ahead",
    ),
    pytest.param(
        VipEntry(Kind.OWNED, unfenced=True, epoch=3),
        a_control(epoch=4),
        None,
        "owned, but the entry is from another epoch of this node: this node is silent",
        id="stale epoch",
    ),
    pytest.param(VipEntry(Kind.OWNED, unfenced=True), a_control(), None, "owned, this node answers", id="not needed"),
    pytest.param(
        VipEntry(Kind.FOREIGN),
        a_control(),
        None,
        f"foreign, {FOREIGN}",
        id="foreign",
    ),
    pytest.param(
        VipEntry(Kind.FOREIGN, mode=Mode.OBSERVE),
        a_control(),
        None,
        f"foreign, {FOREIGN}; in observe mode, so every frame passes",
        id="observed",
    ),
    pytest.param(None, AHEAD, None, "not guarded: the kernel and other programs answer freely", id="no entry"),
]


@pytest.mark.parametrize(("entry", "control", "left", "words"), FENCES)
def test_fence_and_summary_are_what_the_program_would_reckon(entry, control, left, words):
    entries = [VipEntry(Kind.FOREIGN), *([entry] if entry else [])]
    fences = fences_left(control, Grants(), NOW_NS)

    assert need_fences(entries) is (left is not None)
    assert left in (None, fences.api_ns)
    assert explain_ownership(VIP, SOURCE, None, entry, a_scene(control=control)).fence_left_ns == left
    assert summary(entry, a_scene(control=control)) == words
    assert (entry is not None and is_owner(entry, control, fences)) == words.endswith("owned, this node answers")


def test_owner_is_also_the_node_of_another_program_that_answers():
    assert is_owner(VipEntry(Kind.DELEGATED), a_control(), fences_left(a_control(), Grants(), NOW_NS))


BOUND = replace(AHEAD, term=7)
SILENT = "owned, but the voucher's fence has expired: this node is silent"
WAITS = "the voucher's fence has expired: this node does not answer until its voucher hears from it again"
AFTER_BOTH = "the fence expires in 1.000 s, and the voucher's fence in 0.550 s, unless they are renewed"
AFTER_ONE = "the fence expires in 1.000 s, unless this node renews its lease"
OWNED, HELD = VipEntry(Kind.OWNED), VipEntry(Kind.OWNED, unfenced=True)


def granted(left_ns: int, term: int = 7) -> Grants:
    return Grants(NOW_NS + left_ns, term, window_ns=NS_PER_S)


VOUCHERS = [
    pytest.param(OWNED, BOUND, granted(550_000_000), 550_000_000, "owned, this node answers", AFTER_BOTH, id="ahead"),
    pytest.param(OWNED, BOUND, granted(0), 0, SILENT, WAITS, id="passed"),
    pytest.param(OWNED, BOUND, granted(NS_PER_S + 1), 0, SILENT, WAITS, id="too far ahead"),
    pytest.param(OWNED, BOUND, granted(0, term=8), None, "owned, this node answers", AFTER_ONE, id="another term"),
    pytest.param(OWNED, AHEAD, granted(0, term=0), None, "owned, this node answers", AFTER_ONE, id="no term"),
    pytest.param(HELD, BOUND, granted(0), None, "owned, this node answers", None, id="held"),
    pytest.param(
        OWNED,
        replace(BOUND, fence_ns=0),
        granted(5),
        5,
        "owned, but the fence has expired: this node is silent",
        "the fence has expired: this node does not answer until it renews its lease",
        id="first fence passed",
    ),
]


@pytest.mark.parametrize(("entry", "control", "grants", "left", "words", "step"), VOUCHERS)
def test_vouchers_fence_is_what_the_program_would_reckon(entry, control, grants, left, words, step):
    scene = replace(a_scene(control=control), grants=grants)
    facts = explain_ownership(VIP, SOURCE, None, entry, scene)

    assert facts.voucher_left_ns == left
    assert summary(entry, scene) == words
    assert step is None or facts.steps[-1] == step
    assert is_owner(entry, control, fences_left(control, grants, NOW_NS)) == words.endswith("owned, this node answers")


@pytest.mark.parametrize(
    ("where", "owner", "step"),
    [
        ("eth0", THERE, "eth0 of this node: without the guard the kernel would answer for it"),
        ("eth0", None, "eth0 of this node: the kernel answers for it"),
        (
            "lo",
            THERE,
            "lo of this node: the kernel answers for an IPv6 address only on the link that has it, so not on eth0",
        ),
    ],
)
def test_kernel_answers_for_ipv6_addresses_of_the_same_link_only(where, owner, step):
    """ndisc_recv_ns() looks for the target on the link that the solicitation came in on; arp_rcv() does not."""
    eth0, lo = a_link(2, "eth0", "2001:db8::1/64"), a_link(1, "lo")
    own = InterfaceAddress(VIP6, ip_network(f"{VIP6}/128"))
    eth0, lo = (replace(link, addresses=(*link.addresses, *[own][: link.name == where])) for link in (eth0, lo))
    scene = Viewpoint("me", eth0, (eth0,), Surroundings((lo, eth0)), a_control(), NOW_NS)

    assert f"{VIP6} is bound on {step}" in explain(owner, scene, VIP6).steps


@pytest.mark.parametrize(
    ("kind", "mode", "said"),
    [
        (Kind.CLOSED, Mode.ENFORCE, "not a VIP, but its range is closed: this node is silent"),
        (
            Kind.CLOSED,
            Mode.OBSERVE,
            "not a VIP, but its range is closed: this node is silent; in observe mode, so every frame passes",
        ),
        (Kind.OPEN, Mode.ENFORCE, "not guarded: the kernel and other programs answer freely"),
    ],
)
def test_summary_of_an_address_without_an_entry_is_that_of_its_range(kind, mode, said):
    assert summary(None, replace(a_scene(control=a_control(mode)), around=(POOL, VipEntry(kind)))) == said
