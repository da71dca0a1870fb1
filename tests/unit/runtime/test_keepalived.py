"""The running agent and a FIFO of the kernel, with this test in the place of keepalived."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from arpguard.config.model import AgentConfig, KeepalivedConfig
from arpguard.core.auditing import AuditBook
from arpguard.core.basis import Asked
from arpguard.core.keepalived import InstanceStates
from arpguard.model import Owner, OwnerKind, Vip
from arpguard.runtime.keepalived import Keepalived
from arpguard.runtime.waking import Alarm
from support.kube.scripted_server import until

VIP, OTHER = ip_address("198.51.100.50"), ip_address("198.51.100.51")
VIPS = {
    VIP: Vip(VIP, Owner(OwnerKind.KEEPALIVED, instance="VI_1")),
    OTHER: Vip(OTHER, Owner(OwnerKind.NODE, node="me")),
}
MASTER, BACKUP = (f'INSTANCE "VI_1" {state} 100\n'.encode() for state in ("MASTER", "BACKUP"))


class Node:
    """An agent's part that follows keepalived, and what it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.passes = Alarm()
        self.this = SimpleNamespace(name="me", keepalived=InstanceStates(), audits=AuditBook(), waits=False)
        self.part = Keepalived(cast("Any", self.this), self.passes)
        self.asked = Asked(AgentConfig(keepalived=KeepalivedConfig(path)), 1, VIPS)
        self.writer: int | None = None

    def owner(self) -> str:
        return self.part.follow(self.asked).vips[VIP].owner.node

    def opens(self) -> None:
        self.writer = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)

    def closes(self) -> None:
        if self.writer is not None:
            os.close(self.writer)
            self.writer = None

    def says(self, line: bytes) -> None:
        os.write(cast("int", self.writer), line)

    async def until_word(self, word: str) -> None:
        """Waits for passes that are asked for, as the agent does."""
        while self.this.keepalived.word("VI_1") != word:
            assert await self.passes.sleep_for(20), f"{word}, not {self.this.keepalived}"
            self.passes.clear()


def run(node: Node, story: Callable[[], Awaitable[None]]) -> None:
    """Tells a story while the part runs."""

    async def told() -> None:
        running = asyncio.create_task(node.part.run())
        try:
            await story()
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            node.closes()

    asyncio.run(told())


@pytest.fixture
def node(tmp_path) -> Node:
    return Node(tmp_path / "keepalived" / "states")


def test_a_vip_has_this_node_as_its_owner_while_its_instance_is_master(node):
    async def story() -> None:
        assert node.owner() == ""
        node.opens()
        node.says(BACKUP)
        await node.until_word("BACKUP")
        assert node.owner() == ""
        node.says(MASTER)
        await node.until_word("MASTER")
        assert node.owner() == "me"
        assert node.part.problems == []
        node.closes()
        await node.until_word("unknown")
        assert node.owner() == ""
        assert node.part.problems[0].startswith("keepalived: the state of VI_1 is unknown")

    run(node, story)


def test_the_first_pass_knows_what_is_in_the_fifo(node):
    async def story() -> None:
        node.path.parent.mkdir()
        os.mkfifo(node.path, 0o600)
        node.opens()
        node.says(MASTER)
        assert node.owner() == "me"

    run(node, story)


def test_vips_that_have_not_changed_are_the_same_objects(node):
    async def story() -> None:
        node.owner()
        node.opens()
        node.says(MASTER)
        await node.until_word("MASTER")
        first = node.part.follow(node.asked).vips
        assert node.part.follow(node.asked).vips is first
        again = node.part.follow(replace(node.asked, vips=dict(VIPS))).vips
        assert again is not first
        assert all(again[address] is first[address] for address in VIPS)
        assert first[OTHER] is VIPS[OTHER]

    run(node, story)


def test_without_such_vips_nothing_is_opened_and_made(node):
    async def story() -> None:
        asked = replace(node.asked, vips={OTHER: VIPS[OTHER]})
        assert node.part.follow(asked) is asked
        assert not node.path.parent.exists()

    run(node, story)


def test_when_no_vip_follows_any_more_the_fifo_is_closed_and_later_opened_again(node):
    async def story() -> None:
        node.owner()
        node.opens()
        node.says(MASTER)
        await node.until_word("MASTER")
        node.part.follow(replace(node.asked, vips={}))
        await until(lambda: not node.this.keepalived.states)
        assert node.part.problems == []
        assert node.owner() == "me", "the lines are still there"

    run(node, story)


def test_another_fifo_at_the_path_is_read_and_the_last_words_of_the_old_one_count(node):
    async def story() -> None:
        node.owner()
        node.opens()
        node.says(MASTER)
        await node.until_word("MASTER")
        node.path.unlink()
        node.closes()
        await until(node.path.exists)
        node.opens()
        await node.until_word("MASTER")
        node.says(BACKUP)
        await node.until_word("BACKUP")

    run(node, story)


def test_another_path_in_the_configuration_begins_anew(node):
    async def story() -> None:
        node.owner()
        node.opens()
        node.says(MASTER)
        await node.until_word("MASTER")
        other = replace(node.asked.config, keepalived=KeepalivedConfig(node.path.with_name("other")))
        node.asked = replace(node.asked, config=other)
        assert node.owner() == ""

    run(node, story)


def test_what_cannot_be_made_is_a_problem_until_it_can(node):
    async def story() -> None:
        node.path.parent.touch()
        assert node.owner() == ""
        (problem,) = node.part.problems
        assert f"cannot create or read {node.path}, or write to its folder (" in problem
        node.path.parent.unlink()
        await until(node.path.exists)
        node.opens()
        node.says(MASTER)
        await node.until_word("MASTER")

    run(node, story)


def test_one_that_others_may_write_to_is_a_problem(node):
    async def story() -> None:
        node.path.parent.mkdir()
        os.mkfifo(node.path)
        node.path.chmod(0o666)
        assert node.owner() == ""
        assert "users other than root may write to" in node.part.problems[0]

    run(node, story)


def test_an_agent_that_starts_after_a_reload_recalls_the_state(node):
    async def story() -> None:
        node.owner()
        node.opens()
        node.says(MASTER)
        await node.until_word("MASTER")

    run(node, story)
    after = Node(node.path)

    async def continued() -> None:
        after.opens()  # the reloaded keepalived, which says nothing
        after.owner()
        await after.until_word("MASTER")
        assert after.owner() == "me"

    run(after, continued)
