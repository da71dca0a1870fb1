"""Two agents with `--trace`: their files and the API server's journal show what happened, and break no rule."""

import json
import time
from dataclasses import replace

import pytest

from arpguard.clock import boot_ns
from arpguard_lab.apiserver import resources
from arpguard_lab.apiserver.control import journal_row
from support.kube.agent_side import a_side, vip
from support.kube.scripted_server import in_loop, until
from support.protocol.trace_files import lines_of, merged
from support.protocol.trace_rules import broken_rules

pytestmark = pytest.mark.usefixtures("segment")

VIPS = [vip(50), vip(51)]
NODES = ["node-1", "node-2"]


def a_trace(scene, files):
    changes = scene.server.do(lambda it: list(it.store.table(resources.LEASES).since(1)))
    return merged(files, map(journal_row, changes), boot_ns() - time.time_ns())


@in_loop
async def test_a_hand_over_is_in_the_traces_and_breaks_no_rule(scene):
    scene.nodes(*NODES)
    scene.publish("web", VIPS)
    files = [scene.folder / f"{node}.trace" for node in NODES]

    async with a_side(scene, NODES[0], trace=files[0]) as one:
        await until(lambda: one.kernel.owned() == set(VIPS), 15)
        async with a_side(scene, NODES[1], trace=files[1]) as other:
            links = one.surroundings.links
            one.surroundings = replace(one.surroundings, links=tuple(replace(link, up=False) for link in links))
            one.wanted.wake()
            await until(lambda: other.kernel.owned() == set(VIPS), 15)
            trace = a_trace(scene, files)

    assert list(broken_rules(trace)) == []
    events = {(line.get("node", ""), line["event"]) for line in trace}
    assert {("", "heartbeat stored"), ("", "claim stored")} <= events
    seen = ("started", "heartbeat sent", "heartbeat answered", "fence set", "claim sent", "claim answered")
    for event in (*seen, "entry put in", "claim seen", "heartbeat seen"):
        assert ("node-2", event) in events, event
    assert ("node-1", "entry drained") in events

    put_in = next(number for number, line in enumerate(trace) if line["event"] == "entry put in")
    vip_, node = trace[put_in]["effect"]["vip"], trace[put_in]["node"]
    told = [line for line in trace if not (line["event"] == "claim answered" and line["sent"]["vip"] == vip_)]
    assert (node, vip_) in {(each.node, each.vip) for each in broken_rules(told)}, "a checker that sees nothing"


@in_loop
async def test_without_the_option_there_is_no_trace(scene):
    scene.nodes(NODES[0])
    scene.publish("web", VIPS)

    async with a_side(scene, NODES[0]) as side:
        await until(lambda: side.kernel.owned() == set(VIPS), 15)
        assert type(side.membership.leases).__name__ == "Leases"
        assert type(side.membership._ownership).__name__ == "Ownership"


def test_half_a_line_of_an_agent_that_was_killed_is_left_out(tmp_path):
    path = tmp_path / "trace"
    path.write_text(json.dumps({"ns": 5, "event": "started"}) + '\n{"ns": 6, "eve')

    assert [line["at"] for line in lines_of(path)] == [5]
