"""Which multicast groups are listened to: the kernel's own list says so."""

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from ipaddress import IPv6Address

import pytest

from arpguard.dataplane.groups import Groups
from arpguard.errors import DataPlaneError
from arpguard.model import EntryKey, GroupMembership, Link, NodeState, VipEntry
from arpguard.runtime.kernel.listening import Listening
from arpguard.runtime.waking import Alarm
from arpguard.verdict import VIP_KINDS, Kind, Mode
from arpguard.wire.ndp import solicited_node
from support.netns.cable import Pair, a_pair, address, address6, groups_of, speak_ipv6

pytestmark = pytest.mark.netns

VIP, VIP6, OTHER6 = address(50), address6(50), address6(51)
SHARING6 = VIP6 + (1 << 24)  # the low 24 bits are those of VIP6
GROUP, OTHER_GROUP = solicited_node(VIP6), solicited_node(OTHER6)
MANY = 3000
OWNED, FOREIGN = VipEntry(Kind.OWNED), VipEntry(Kind.FOREIGN)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with a_pair("groups") as made:
        speak_ipv6(made.node, made.client)
        yield made


def listened_to(pair: Pair) -> set[IPv6Address]:
    """What of the groups here is listened to on the node."""
    return {GROUP, OTHER_GROUP} & groups_of(pair.node.netns).keys()


def inside(pair: Pair, work):
    """Runs a function in the node's namespace, and sees that it leaves no socket behind."""

    def run():
        sockets = len(os.listdir("/proc/self/fd"))
        result = work()
        assert len(os.listdir("/proc/self/fd")) == sockets
        return result

    return pair.node.netns.call(run)


@contextmanager
def some_groups(pair: Pair) -> Iterator[tuple[Groups, GroupMembership]]:
    groups = Groups()
    try:
        yield groups, GroupMembership(pair.ifindex(), GROUP)
    finally:
        groups.close()


def test_group_is_listened_to_from_joining_to_leaving(pair):
    def work():
        with some_groups(pair) as (groups, here):
            groups.join(here)
            groups.join(here)
            during = groups_of(pair.node.netns).get(GROUP)
            groups.leave(here)
            groups.leave(here)
            return during, listened_to(pair)

    assert inside(pair, work) == (1, set())


def test_nothing_is_left_while_it_cannot_be_read_what_is_forgotten(pair):
    """As when too many files are open."""

    def work():
        with some_groups(pair) as (groups, here):
            groups.join(here)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
            try:
                groups.leave_forgotten()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            return groups.joined == {here}

    assert inside(pair, work)


def test_closing_leaves_all(pair):
    def work():
        with some_groups(pair) as (groups, here):
            groups.join(here)
            groups.join(here._replace(group=OTHER_GROUP))
            before = listened_to(pair)
        return before, listened_to(pair), groups.joined

    assert inside(pair, work) == ({GROUP, OTHER_GROUP}, set(), frozenset())


def test_more_groups_than_a_socket_takes_are_spread_and_room_is_used_again(pair):
    many, others = ([solicited_node(VIP6 + number + start) for number in range(MANY)] for start in (0, MANY))

    def work():
        with some_groups(pair) as (groups, here):
            for group in many:
                groups.join(here._replace(group=group))
            joined, sockets = groups_of(pair.node.netns).keys() & set(many), len(groups._ears)
            again = set()
            for group, other in zip(many, others, strict=True):
                groups.leave(here._replace(group=group))
                groups.join(here._replace(group=other))
                again.add(len(groups._ears))
            for other in others:
                groups.leave(here._replace(group=other))
            return len(joined), sockets, again, len(groups._ears)

    joined, sockets, again, left = inside(pair, work)

    assert joined == MANY
    assert sockets > 1
    assert max(again) == sockets
    assert left == 0


def test_link_that_cannot_is_refused_in_words(pair):
    def work():
        with some_groups(pair) as (groups, here):
            with pytest.raises(DataPlaneError, match=f"cannot join multicast group {GROUP} \\(No such device\\)"):
                groups.join(here._replace(ifindex=9999))
            return groups.joined

    assert inside(pair, work) == frozenset()


def test_what_the_kernel_forgot_can_be_joined_anew(pair):
    """Below the smallest MTU of IPv6 a link has no groups; the socket still counts as a member then."""

    def work():
        with some_groups(pair) as (groups, here):
            groups.join(here)
            pair.node.netns.run("ip", "link", "set", "eth0", "mtu", "1000")
            pair.node.netns.run("ip", "link", "set", "eth0", "mtu", "1500")
            forgotten = listened_to(pair)
            groups.leave_forgotten()
            left = groups.joined
            groups.join(here)
            groups.leave_forgotten()
            return forgotten, left, groups.joined == {here}, listened_to(pair)

    assert inside(pair, work) == (set(), frozenset(), True, {GROUP})


def test_membership_on_a_link_that_is_gone_is_left(pair):
    def work():
        with some_groups(pair) as (groups, here):
            groups.join(here)
            pair.node.netns.run("ip", "link", "del", "eth0")
            groups.leave_forgotten()
            return groups.joined

    assert inside(pair, work) == frozenset()


# ---- which groups ----


class Kernel:
    """What a node's kernel has."""

    def __init__(self) -> None:
        self.entries: dict[EntryKey, VipEntry] = {}
        self.state = NodeState()


def following(pair: Pair, *entries) -> list[set[IPv6Address]]:
    """What is listened to after each of the steps, which are entries by VIP."""

    async def follow():
        seen = []
        kernel = Kernel()
        with closing(Listening(kernel, Alarm())) as listening:
            for each in entries:
                kernel.entries = {EntryKey(pair.ifindex(), vip): entry for vip, entry in each.items()}
                await listening.follow()
                seen.append(listened_to(pair))
        return seen

    return inside(pair, lambda: asyncio.run(follow()))


def test_groups_of_owned_vips_are_followed(pair):
    assert following(
        pair,
        {VIP6: OWNED},
        {VIP6: OWNED, OTHER6: OWNED},
        {VIP6: FOREIGN, OTHER6: OWNED},
        {},
    ) == [{GROUP}, {GROUP, OTHER_GROUP}, {OTHER_GROUP}, set()]


@pytest.mark.parametrize("kind", [kind for kind in VIP_KINDS if kind is not Kind.OWNED])
def test_groups_of_other_vips_are_not(pair, kind):
    assert following(pair, {VIP6: VipEntry(kind)}) == [set()]


def test_ipv4_has_no_groups(pair):
    before = groups_of(pair.node.netns)

    following(pair, {VIP: OWNED})

    assert groups_of(pair.node.netns) == before


def test_group_that_two_vips_share_is_left_with_the_last(pair):
    assert following(
        pair,
        {VIP6: OWNED, SHARING6: OWNED},
        {SHARING6: OWNED},
        {},
    ) == [{GROUP}, {GROUP}, set()]


def test_node_that_only_observes_listens_too(pair):
    assert following(pair, {VIP6: replace(OWNED, mode=Mode.OBSERVE)}) == [{GROUP}]


def test_what_is_in_the_way_is_a_problem_until_it_is_solved(pair):
    """As a NIC that takes no IPv6; also one that is lost and comes back is listened on again."""

    async def work():
        seen, kernel, wanted = [], Kernel(), Alarm()
        with closing(Listening(kernel, wanted)) as listening:
            for mtu, told in ((1500, 1500), (1000, 1000), (1000, 1000), (1500, 1000), (1500, 1500)):
                pair.node.netns.run("ip", "link", "set", "eth0", "mtu", str(mtu))
                link = Link(pair.ifindex(), "eth0", pair.node.mac, up=True, mtu=told)
                kernel.entries, kernel.state.links = {EntryKey(link.ifindex, VIP6): OWNED}, (link,)
                wanted.clear()
                await listening.follow()
                seen.append((listened_to(pair), wanted.woken, listening.problems))
        return seen

    problem = (
        f"eth0: cannot join multicast group {GROUP} (Invalid argument); a switch with MLD snooping may withhold "
        "solicitations for IPv6 VIPs from this node; check that IPv6 is enabled on the interface, and that its MTU is "
        "at least 1280"
    )
    assert inside(pair, lambda: asyncio.run(work())) == [
        ({GROUP}, False, ()),
        (set(), True, (problem,)),
        (set(), False, (problem,)),
        ({GROUP}, True, ()),
        ({GROUP}, False, ()),
    ]


def test_vip_that_is_about_to_be_announced_is_listened_for_at_once(pair):
    def work():
        with closing(Listening(Kernel(), Alarm())) as listening:
            listening.hear(EntryKey(pair.ifindex(), VIP6))
            listening.hear(EntryKey(pair.ifindex(), VIP))
            listening.hear(EntryKey(9999, OTHER6))
            return listened_to(pair)

    assert inside(pair, work) == {GROUP}
