"""`arpguard explain` says beforehand what the wire then shows."""

import json
from collections.abc import Iterator

import pytest

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame
from support.netns.agents import said
from support.netns.cable import Pair, a_pair, address
from support.netns.waiting import until
from support.netns.wire import a_wire

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

OWNED, FOREIGN, DELEGATED, OBSERVED, FREE, MARK = (address(number) for number in (50, 51, 52, 53, 60, 61))
CONFIG = f"""
mode: enforce
interfaces: [eth0]
vips:
  - {{address: {OWNED}, owner: {{node: node-1}}}}
  - {{address: {FOREIGN}, owner: {{node: node-2}}}}
  - {{address: {DELEGATED}, owner: {{node: node-1, delegated: true}}}}
  - {{address: {OBSERVED}, owner: {{node: node-2}}, mode: observe}}
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Every address is on lo, so that the kernel answers whatever reaches it; MARK proves that it listens."""
    with a_pair("explain") as made:
        made.node.netns.batch(
            [f"addr add {vip}/32 dev lo" for vip in (OWNED, FOREIGN, DELEGATED, OBSERVED, FREE, MARK)]
        )
        agent = made.agent(CONFIG)
        until(lambda: said(agent, "announced:") >= 3, what="the last announcement of the start")
        yield made


def explained(pair: Pair, vip: object) -> tuple[int, dict[str, dict]]:
    done = pair.arpguard("explain", str(vip), "-o", "json", "--address", pair.agents[0].api)
    (story,) = json.loads(done.stdout)["links"]
    return done.returncode, {frame["operation"].removeprefix("OPERATION_"): frame for frame in story["frames"]}


@pytest.mark.parametrize("vip", [OWNED, FOREIGN, DELEGATED, OBSERVED, FREE], ids=str)
@pytest.mark.parametrize("operation", ["REQUEST", "PROBE"])
def test_answer_on_the_wire_is_what_was_explained(pair, vip, operation):
    frame = explained(pair, vip)[1][operation]
    with a_wire(pair.client) as wire:
        heard = wire.exchange([bytes.fromhex(frame["frame"]["hex"])], MARK)
    answers = [reply for reply in heard if reply[12:14] == b"\x08\x06" and reply[28:32] == vip.packed]

    if frame["verdict"] == "VERDICT_ANSWER":
        assert [answer.hex() for answer in answers] == [frame["result"]["hex"]]
    else:
        assert len(answers) == (0 if frame["fate"] == "FATE_DROPPED" else 1), frame


def test_what_this_node_may_not_say_is_explained_and_does_not_leave(pair):
    code, frames = explained(pair, FOREIGN)
    announcement = build_frame(
        ArpPacket(ArpOp.REQUEST, pair.node.mac, FOREIGN, ZERO_MAC, FOREIGN), BROADCAST_MAC, pair.node.mac
    )

    assert code == 0
    assert frames["OUT_ANNOUNCEMENT"]["frame"]["hex"] == announcement.hex()
    assert frames["OUT_ANNOUNCEMENT"]["fate"] == "FATE_DROPPED"
    assert frames["OUT_REQUEST"]["result"]["text"] == f"who-has 192.0.0.8 tell {pair.node.address}"


def test_explaining_counts_nothing(pair):
    def counters() -> str:
        return pair.arpguard("vips", "-o", "json", "--pin-dir", str(pair.agents[0].pin_dir)).stdout

    before = counters()
    assert str(OWNED) in before
    explained(pair, OWNED)

    assert counters() == before


@pytest.mark.parametrize("source", ["agent", "pins"])
def test_unguarded_address_exits_1_and_says_so(pair, source):
    agent = pair.agents[0]
    whom = ["--address", agent.api] if source == "agent" else ["--pin-dir", str(agent.pin_dir)]
    done = pair.arpguard("explain", str(FREE), *whom)

    assert done.returncode == 1
    assert done.stdout.startswith(f"{FREE} on eth0: not guarded")


@pytest.mark.parametrize("vip", [OWNED, FOREIGN, DELEGATED, OBSERVED, FREE], ids=str)
def test_every_explanation_fits_100_columns_with_nothing_cut_off(pair, vip):
    done = pair.arpguard("explain", str(vip), "--address", pair.agents[0].api)

    assert max(map(len, done.stdout.splitlines())) <= 100, done.stdout
    assert "…" not in done.stdout
