"""Many VIPs at once on a server that takes few writes: no node loses its lease, and no claim stays."""

from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

from support.kube.agent_side import CONFIG, LEASES, a_side, vip, waited
from support.kube.scripted_server import in_loop, until
from support.processes import waited_ns

pytestmark = pytest.mark.usefixtures("segment")

OLD, MANY = [vip(50), vip(51), vip(52)], [vip(60 + number) for number in range(90)]
NODES = ("node-1", "node-2", "node-3")
SLOW = CONFIG.replace("duration: 3s, renew: 500ms, margin: 1s", "duration: 6s, renew: 2s, margin: 2s")
WRITES_PER_S, QUEUE = 25.0, 40
PATIENCE_S = 60.0


@pytest.fixture
def one(scene):
    scene.nodes(*NODES)
    scene.publish("old", OLD)
    return scene


def _claims(scene) -> set[str]:
    return {item["metadata"]["name"] for item in scene.get(LEASES)["items"] if item["metadata"]["name"][:4] == "vip."}


def _silent_ns(fences) -> list[int]:
    """For how long each fence had passed before it was moved on; ends of an epoch count too."""
    return [after[3] - before[1] for before, after in pairwise(fences) if before[1] and after[3] > before[1]]


@in_loop
async def test_a_burst_on_a_slow_server_costs_no_node_its_lease_and_leaves_no_claim(one):
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(a_side(one, node, config=SLOW)) for node in NODES]
        await until(lambda: set().union(*(side.kernel.owned() for side in sides)) == set(OLD), PATIENCE_S)
        began, before_ns = [len(side.kernel.fences) - 1 for side in sides], waited_ns()
        one.server.do(lambda it: it.pace(WRITES_PER_S, QUEUE))

        one.publish("many", MANY)
        await until(lambda: set().union(*(side.kernel.owned() for side in sides)) == {*OLD, *MANY}, PATIENCE_S)
        one.delete("/api/v1/namespaces/shop/services/many")
        old = {f"vip.{address}" for address in OLD}
        await waited(lambda: _claims(one) == old, "for the claims to go", PATIENCE_S)

        owed_ns = waited_ns() - before_ns  # all agents run in this thread
        silent = [_silent_ns(side.kernel.fences[since:]) for side, since in zip(sides, began, strict=True)]
        assert sum(map(sum, silent)) <= owed_ns
        assert [side.renewals.lost for side in sides] == ["", "", ""]
        assert set().union(*(side.kernel.owned() for side in sides)) == set(OLD)


@in_loop
async def test_a_vip_that_is_gone_takes_two_writes(one):
    async with a_side(one, config=SLOW) as side:
        await until(lambda: side.kernel.owned() == set(OLD), PATIENCE_S)
        before = side.writes["claim", "applied"]
        one.delete("/api/v1/namespaces/shop/services/old")
        await waited(lambda: _claims(one) == set(), "for the claims to go", PATIENCE_S)

        await until(lambda: side.writes["claim", "applied"] - before >= 2 * len(OLD))
        assert side.writes["claim", "applied"] - before == 2 * len(OLD)
