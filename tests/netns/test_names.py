"""Names of interfaces are bytes to the kernel: the agent goes on whatever they are."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from arpguard.dataplane.netlink import read_surroundings
from support.netns.cable import Pair, a_netns, a_pair
from support.netns.waiting import REPAIR_S, until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

NOT_UTF8 = os.fsdecode(b"\xff\xfe")
SHOWN = r"\xff\xfe"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("names") as made:
        yield made


def test_a_name_that_is_not_utf8_is_shown_escaped():
    with a_netns("names-only") as netns:
        netns.run("ip", "link", "add", NOT_UTF8, "type", "veth", "peer", "name", "other0")
        links = netns.call(lambda: asyncio.run(read_surroundings())).links
    assert {link.name for link in links} == {"lo", SHOWN, "other0"}


def test_an_interface_whose_name_is_not_utf8_is_guarded_by_a_running_agent(pair):
    agent = pair.agent('mode: enforce\ninterfaces: ["*"]\nvips: [{address: 192.0.2.50, owner: {node: node-1}}]\n')
    pair.node.netns.run("ip", "link", "add", NOT_UTF8, "type", "veth", "peer", "name", "other0")
    index, pin = pair.ifindex(NOT_UTF8), agent.pin_dir / "links"
    until(lambda: any(path.name.startswith(f"{index}-") for path in pin.iterdir()), 5 * REPAIR_S)

    def shown() -> bool:
        answer = pair.arpguard("status", "--address", agent.api)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return SHOWN in answer.stdout

    until(shown, what="the link in the status")
