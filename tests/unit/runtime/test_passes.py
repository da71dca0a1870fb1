"""What a pass reads before it decides: links and routes, as the kernel tells of changes, and at each edit."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from arpguard.config.files import parse_config
from arpguard.core.basis import Asked
from arpguard.errors import DataPlaneError
from arpguard.model import Surroundings
from arpguard.runtime import linkwatch, passes
from arpguard.runtime.early import EarlyFile
from arpguard.runtime.linkwatch import LinkWatch
from arpguard.runtime.passes import Passes, Upkeep
from arpguard.runtime.waking import Alarm
from support.kube.scripted_server import until


class Scene:
    """A pass's surroundings: `reads` counts how often links and routes were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = 0
        monkeypatch.setattr(linkwatch, "read_surroundings", self._read)
        self.links = LinkWatch(Alarm())
        self.settings = SimpleNamespace(in_force=SimpleNamespace(generation=1), problems=list)
        plane = SimpleNamespace(ask=self._ask, passed=lambda: None, state=object())  # in a cluster
        kernel = SimpleNamespace(update=lambda *_: True, knows_less=False, state=SimpleNamespace(links=()))
        pinned, node = (
            SimpleNamespace(was_told=False, has_others=False),
            SimpleNamespace(surroundings=None, waits=False),
        )
        settings: Any = self.settings
        settings.awaited = False
        parts = cast("Any", (node, settings, pinned, plane, kernel))
        self.keepalived: Any = SimpleNamespace(follow=lambda asked: asked, problems=[])
        self.node, self.pinned, self.kernel = node, pinned, cast("Any", kernel)
        self.passes = Passes(*parts, self.links, self.keepalived, EarlyFile(None), ())

    async def _read(self) -> Surroundings:
        self.reads += 1
        return Surroundings()

    async def _ask(self, _surroundings: Surroundings) -> Asked:
        return Asked(cast("Any", None), 1, {}, problems=[])

    def make(self) -> int:
        """Makes a pass; says how often links and routes were read for it."""
        before = self.reads
        asyncio.run(self.passes.make(whole=False))
        return self.reads - before


@pytest.fixture
def scene(monkeypatch) -> Scene:
    return Scene(monkeypatch)


def test_problems_of_a_pass_that_changes_nothing_know_that_it_does_not(scene):
    seen = []
    scene.kernel.wait = lambda _problems: seen.append(scene.node.waits)
    scene.settings.awaited = scene.pinned.was_told = True
    scene.make()
    scene.settings.awaited = False
    scene.make()
    assert (seen, scene.node.waits) == ([True], False)


@pytest.mark.parametrize(("name", "told"), [("node-7", 1), ("vm", 0)], ids=["a node among others", "a problem"])
def test_that_no_vip_names_this_node_is_told_here_unless_it_is_a_problem(scene, name, told, monkeypatch, caplog):
    """A problem is logged once as what it is."""
    monkeypatch.setattr(passes.memory, "freeze", lambda: None)
    scene.passes._plane.state = None
    scene.node.name, scene.settings.named_by_host, scene.settings.started_ns = name, True, 0
    scene.settings.config = parse_config("vips: [{address: 192.0.2.1, owner: {node: node-1}}]")
    scene.kernel.state, scene.pinned.warm = SimpleNamespace(links=(), entries=()), False
    scene.pinned.discard_others = lambda: None
    scene.passes._is_complete = True
    with caplog.at_level("INFO"):
        scene.passes.say_when_ready()

    lines = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith("ready: ") for line in lines) == 1
    assert sum("no VIP names this node" in line for line in lines) == told


def test_routes_are_not_read_while_nothing_changes(scene):
    assert [scene.make() for _ in range(3)] == [1, 0, 0]


def test_an_edit_is_decided_by_the_routes_of_that_moment(scene):
    """The kernel may not have told of them yet, and what is guarded by the old ones would stay so."""
    scene.make()
    scene.settings.in_force.generation = 2
    assert [scene.make() for _ in range(2)] == [1, 0]


def test_what_could_not_be_read_at_an_edit_is_read_by_the_next_pass(scene, monkeypatch):
    scene.make()
    scene.settings.in_force.generation = 2

    async def refuse() -> Surroundings:
        raise DataPlaneError("no netlink")

    with monkeypatch.context() as refusing:
        refusing.setattr(linkwatch, "read_surroundings", refuse)
        with pytest.raises(DataPlaneError, match="no netlink"):
            scene.make()
    assert scene.make() == 1


def test_what_a_failed_pass_did_not_come_to_is_done_in_the_next_round(monkeypatch):
    monkeypatch.setattr(passes, "AUDIT_INTERVAL_S", 0.001)
    monkeypatch.setattr(passes, "SHARE", 1e-9)  # no whole pass is due soon
    made: list[bool] = []

    async def make(*, whole: bool) -> None:
        made.append(whole)
        if not whole:
            raise DataPlaneError("the kernel refuses")

    async def nothing() -> None: ...

    async def run() -> None:
        wanted = Alarm()
        parts = (
            SimpleNamespace(make=make, keep_attached=nothing, say_when_ready=lambda: None),
            SimpleNamespace(changed=False),
            SimpleNamespace(is_touched=lambda: False, log_problems=lambda: None),
            SimpleNamespace(keep=lambda: None),
        )
        upkeep = Upkeep(*cast("Any", parts), wanted, ())
        running = asyncio.create_task(upkeep.run())
        await until(lambda: made and not upkeep._whole.is_due)
        made.clear()
        wanted.wake()
        await until(lambda: len(made) > 1)
        running.cancel()

    asyncio.run(run())
    assert made[:2] == [False, True]
