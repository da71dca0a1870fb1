"""Services with addresses of both families: one node answers for both, whatever happens, and each is claimed safely."""

from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address, ip_interface

import pytest

from arpguard.kube.claims import lease_name
from arpguard.model import InterfaceAddress, Surroundings
from arpguard_lab.cluster import objects
from support.kube.agent_side import CONFIG, Side, a_link, a_side, number_of, vip, waited
from support.kube.scripted_server import in_loop, until

pytestmark = pytest.mark.usefixtures("segment")

DUAL = CONFIG.replace("ranges: [192.0.2.0/24]", "ranges: [192.0.2.0/24, '2001:db8::/64']")
NODES = ("node-1", "node-2", "node-3")
SOON_S = 90.0  # a node that was too busy to take what goes with its lead is asked again after 30 s


def six(number: int):
    return ip_address(f"2001:db8::{number}")


PAIRS = [(vip(number), six(number)) for number in range(50, 56)]


def links(node: str, *families: int) -> Surroundings:
    """The node's link with addresses of these families."""
    link = a_link(number_of(node))
    own = ip_interface(f"2001:db8::{number_of(node)}/64")
    addresses = {4: link.addresses, 6: (InterfaceAddress(own.ip, own.network),)}
    return Surroundings(links=(replace(link, addresses=tuple(each for one in families for each in addresses[one])),))


@asynccontextmanager
async def nodes(scene, *names: str, families=(4, 6)):
    """Agents on nodes with both families, by name."""
    if not names:
        yield {}
        return
    surroundings = links(names[0], *families)
    async with (
        a_side(scene, names[0], config=DUAL, surroundings=surroundings) as side,
        nodes(scene, *names[1:], families=families) as others,
    ):
        yield {names[0]: side, **others}


@pytest.fixture
def cluster(scene):
    scene.nodes(*NODES)
    for number, pair in enumerate(PAIRS):
        scene.publish(f"web-{number}", pair)
    return scene


def owners(sides: dict[str, Side], address) -> list[str]:
    return [name for name, side in sides.items() if address in side.kernel.owned()]


def together(sides: dict[str, Side]) -> bool:
    """Whether each pair has one owner, in the kernel."""
    return all(owners(sides, four) == owners(sides, six_) and len(owners(sides, four)) == 1 for four, six_ in PAIRS)


async def until_together(scene, sides: dict[str, Side], also: Callable[[], bool] = lambda: True) -> None:
    def as_it_stands() -> str:
        lines = [
            f"{address}: claimed by {holder or 'nobody'}, in the kernels of {owners(sides, address)}"
            for address, holder in holders(scene).items()
        ]
        lines += [f"{name}: {side.membership.wishes}" for name, side in sides.items() if side.joined]
        return "\n".join(lines)

    await until(lambda: together(sides) and also(), SOON_S, as_it_stands)


def holders(scene) -> dict:
    return {address: scene.lease(lease_name(address)).get("holderIdentity", "") for pair in PAIRS for address in pair}


@in_loop
async def test_both_families_of_a_service_have_one_owner_and_two_claims(cluster):
    async with nodes(cluster, *NODES) as sides:
        await until_together(cluster, sides)

        claim = cluster.lease("vip.2001-0db8-0000-0000-0000-0000-0000-0050")
        assert claim["annotations"]["arpguard.io/vip"] == "2001:db8::50"
        assert claim["holderIdentity"] == cluster.claim(PAIRS[0][0])["holderIdentity"]


@in_loop
async def test_cordoned_node_hands_both_over(cluster):
    async with nodes(cluster, *NODES) as sides:
        await until_together(cluster, sides)
        (left,) = owners(sides, PAIRS[0][0])
        body = objects.node(left, vip(number_of(left)))
        cluster.put({**body, "spec": {"unschedulable": True}})

        await until_together(cluster, sides, lambda: not sides[left].kernel.owned())


@in_loop
async def test_node_that_loses_one_family_hands_both_over(cluster):
    async with nodes(cluster, *NODES) as sides:
        await until_together(cluster, sides)
        (left,) = owners(sides, PAIRS[0][0])
        sides[left].surroundings = links(left, 4)
        sides[left].wanted.wake()

        await until_together(cluster, sides, lambda: not sides[left].kernel.owned())


@in_loop
async def test_node_that_dies_is_replaced_by_one_for_both(cluster):
    async with nodes(cluster, *NODES[:2]) as sides:
        async with nodes(cluster, NODES[2]) as third:
            await until_together(cluster, sides | third)
        await waited(lambda: NODES[2] not in holders(cluster).values(), seconds=SOON_S)

        await until_together(cluster, sides)


@in_loop
async def test_second_family_that_is_added_comes_to_the_owner_of_the_first(cluster):
    for number, (four, _) in enumerate(PAIRS):
        cluster.publish(f"web-{number}", [four])
    async with nodes(cluster, *NODES) as sides:
        await until(lambda: all(owners(sides, four) for four, _ in PAIRS), SOON_S)
        before = {four: owners(sides, four) for four, _ in PAIRS}
        for number, pair in enumerate(PAIRS):
            cluster.publish(f"web-{number}", pair)

        await until_together(cluster, sides)
        assert {four: owners(sides, four) for four, _ in PAIRS} == before
        transitions = {cluster.lease(lease_name(each)).get("leaseTransitions") or 0 for _, each in PAIRS}
        assert transitions == {0}, "straight to it"


@in_loop
async def test_families_on_different_nodes_are_elected_by_themselves_and_that_is_told(cluster):
    async with nodes(cluster, "node-1", families=(4,)) as one, nodes(cluster, "node-2", families=(6,)) as two:
        sides = one | two
        await until(lambda: all(owners(sides, four) == ["node-1"] for four, _ in PAIRS), SOON_S)
        await until(lambda: all(owners(sides, each) == ["node-2"] for _, each in PAIRS), SOON_S)
        four, other = PAIRS[0]

        await until(lambda: one["node-1"].says(f"no node is eligible to own both {four} and {other}"), SOON_S)
        await waited(lambda: len(cluster.events("FamiliesApart")) == len(PAIRS), seconds=SOON_S)
