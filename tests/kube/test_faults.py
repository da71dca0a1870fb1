"""Faults that need no wire: old lists, and wall clocks that jump. docs/faults.md has the list."""

import time

import pytest

from arpguard.kube import writer
from support.kube.agent_side import a_side, vip, waited
from support.kube.scripted_server import in_loop, until

pytestmark = pytest.mark.usefixtures("segment")

A = vip(50)
YEAR_S = 365 * 86400


@in_loop
async def test_f7_nothing_is_asked_for_that_may_be_answered_from_the_past(scene):
    """That is a read with resourceVersion=0, which the server answers as of the beginning here."""
    scene.nodes("node-1")
    scene.publish("web", [A])
    scene.fault("node-1", stale=1)
    async with a_side(scene) as side:
        await until(lambda: side.kernel.owned() == {A}, 10)
    assert scene.count("node-1", "list") > 0
    assert scene.server.do(lambda it: it.counters.past["node-1"]) == 0


@pytest.mark.parametrize("jump_s", [YEAR_S, -YEAR_S])
@in_loop
async def test_f14_wall_clock_that_jumps_a_year_moves_no_vip_and_ends_no_lease(scene, monkeypatch, jump_s):
    """That of both agents and of the API server: renewTime and creationTimestamp too."""
    monkeypatch.setattr(writer, "time_ns", lambda: time.time_ns())  # noqa: PLW0108 - as it is then
    scene.nodes("node-1", "node-2")
    scene.publish("web", [A])
    async with a_side(scene, "node-1") as first, a_side(scene, "node-2") as second:
        await until(lambda: first.kernel.owned() | second.kernel.owned() == {A}, 10)
        owner = first if first.kernel.owned() else second
        claim, renewals = scene.claim(A), len(owner.kernel.fences)
        real, real_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: real() + jump_s)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + jump_s * 1_000_000_000)
        await waited(lambda: len(owner.kernel.fences) >= renewals + 8, "for more than a lease of renewals", 30)
        assert owner.kernel.owned() == {A}
        assert scene.claim(A)["resourceVersion"] == claim["resourceVersion"]
        assert {epoch for epoch, *_ in owner.kernel.fences[renewals:]} == {owner.kernel.entry(A).epoch}
        renewed = scene.lease(f"node.{owner.node}")["renewTime"]
        assert int(renewed[:4]) == time.gmtime(real() + jump_s).tm_year
