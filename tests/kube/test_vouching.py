"""Agents that vouch for each other: what their heartbeats say, and what their vouchers' processes are told.

A double replaces the voucher's process: each test says what came of its pings. The lab runs the real process.
"""

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from ipaddress import ip_interface

import pytest

from arpguard.clock import boot_ns
from arpguard.core import leasetimes
from arpguard.core.leasetimes import BOUND_NS
from arpguard.core.ownership.records import Heartbeat
from arpguard.core.vouching.state import VouchingState
from arpguard.core.vouching.trials import TRIAL_VARIABLE
from arpguard.model import Grants, InterfaceAddress, Surroundings
from arpguard.runtime.voucher.messages import Phase
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.wire.vouching import term_number
from support.kube.agent_side import CONFIG, CONFIGMAP, Scene, Side, a_side, vip, waited
from support.kube.scripted_server import in_loop, until
from support.kube.voucher_side import Voucher

pytestmark = pytest.mark.usefixtures("segment")

VOUCHING = CONFIG.replace("vouching: off", "vouching: {profile: default}")
ONE, TWO = "node-1", "node-2"


@pytest.fixture
def two(scene: Scene, monkeypatch):
    monkeypatch.setenv(TRIAL_VARIABLE, "0")
    scene.nodes(ONE, TWO)
    scene.publish("web", [vip(50)])
    return scene


def annotations(scene: Scene, node: str) -> dict:
    """Those of a heartbeat."""
    return scene.lease(f"node.{node}").get("annotations", {})


def note(scene: Scene, node: str, name: str) -> dict:
    """What a heartbeat says in an annotation."""
    return json.loads(annotations(scene, node).get(f"arpguard.io/{name}", "{}"))


def named(scene: Scene, node: str) -> dict:
    vouchers = note(scene, node, "vouchers").get("vouchers")
    return vouchers[0] if vouchers else {}


async def _vouched(scene: Scene, *nodes: str) -> None:
    await waited(lambda: all(named(scene, node) for node in nodes), f"{nodes} name vouchers", 20)


async def _bound(scene: Scene, node: str, kernel: Voucher) -> None:
    """Its voucher grants for long, and its heartbeat says so."""
    await waited(lambda: kernel.value.term == term_number(named(scene, node)["term"]), "its kernel has the term")
    kernel.granted = Grants(boot_ns() + 60 * NS_PER_S, kernel.value.term, 60 * NS_PER_S)
    await waited(lambda: note(scene, node, "vouchers").get("bound"), "it says bound")


async def _is(condition: Callable[[], object]) -> None:
    await until(condition, 20)


@in_loop
async def test_nobody_vouches_where_it_is_not_switched_on(two):
    kernels = Voucher(), Voucher()
    async with a_side(two, ONE, kernels[0]) as one, a_side(two, TWO, kernels[1]) as other:
        await _is(lambda: one.joined and other.joined and kernels[0].owned() | kernels[1].owned())
        for node, kernel in zip((ONE, TWO), kernels, strict=True):
            assert not {"arpguard.io/vouchers", "arpguard.io/vouching"} & annotations(two, node).keys()
            assert kernel.processes == []
            assert (kernel.value.term, kernel.value.ethertype, kernel.terms) == (0, 0, {})
        assert two.get("/api/v1/namespaces/arpguard/secrets")["items"] == []


@pytest.mark.parametrize(
    ("config", "also"),
    [
        pytest.param(VOUCHING.replace("enforce", "observe"), VOUCHING, id="observes"),
        pytest.param(VOUCHING.replace("[192.0.2.0/24]", "[]"), VOUCHING.replace("[192.0.2.0/24]", "[]"), id="no VIPs"),
        pytest.param(VOUCHING, None, id="alone"),
    ],
)
@in_loop
async def test_node_that_can_have_no_voucher_neither_reads_the_secret_nor_misses_one(two, config, also):
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(a_side(two, ONE, Voucher(), config=config))]
        if also:
            sides.append(await stack.enter_async_context(a_side(two, TWO, Voucher(), config=also)))
        await _is(lambda: all(side.joined and side.kube.state.complete for side in sides))
        await asyncio.sleep(2)  # several renewals
        assert two.count(ONE, resource="secrets") == 0
        assert not _state(sides[0]).expected


@in_loop
async def test_node_that_may_have_a_voucher_misses_it_until_it_is_bound(two):
    kernels = Voucher(), Voucher()
    kernels[1].is_heard = False  # no trial goes well
    async with a_side(two, ONE, kernels[0], config=VOUCHING) as one, a_side(two, TWO, kernels[1], config=VOUCHING):
        await _is(lambda: _state(one) is not None and _state(one).expected)
        assert not _state(one).bound


@in_loop
async def test_two_nodes_name_each_other_and_their_kernels_have_the_keys_of_the_processes(two):
    kernels = Voucher(), Voucher()
    async with a_side(two, ONE, kernels[0], config=VOUCHING), a_side(two, TWO, kernels[1], config=VOUCHING):
        await _vouched(two, ONE, TWO)
        assert (named(two, ONE)["node"], named(two, TWO)["node"]) == (TWO, ONE)
        assert (named(two, ONE)["dNs"], named(two, ONE)["mNs"]) == (1000 * NS_PER_MS, 400 * NS_PER_MS)

        for node, mine, other in ((ONE, *kernels), (TWO, *reversed(kernels))):
            number = term_number(named(two, node)["term"])
            await _is(lambda number=number, other=other: number in other.processes[0].adopted)
            command = other.processes[0].adopted[number]
            assert (mine.value.term, mine.value.ethertype) == (number, 0x88B5)
            assert mine.terms[2].key == command.key
            assert (command.ifname, command.mac[-1], command.term.d_ns) == ("lab0", int(node[-1]), 1000 * NS_PER_MS)
            assert mine.terms[2].window_ns == 600 * NS_PER_MS


@in_loop
async def test_a_node_that_is_bound_says_so_and_has_a_long_lease(two):
    kernels = Voucher(), Voucher()
    async with a_side(two, ONE, kernels[0], config=VOUCHING), a_side(two, TWO, kernels[1], config=VOUCHING):
        await _vouched(two, ONE)
        await _bound(two, ONE, kernels[0])
        assert two.lease(f"node.{ONE}")["leaseDurationSeconds"] == BOUND_NS // NS_PER_S
        await _is(lambda: kernels[0].value.lease_ns == BOUND_NS)


async def _both_bound(scene: Scene, kernels: tuple[Voucher, Voucher]) -> None:
    await _vouched(scene, ONE, TWO)
    for node, kernel in zip((ONE, TWO), kernels, strict=True):
        await _bound(scene, node, kernel)


def _shown(side: Side, node: str) -> Heartbeat | None:
    """A heartbeat as the agent's watch shows it."""
    return next((each for each in side.kube._cluster.heartbeats if each.node == node), None)


def _kind(scene: Scene, node: str) -> str:
    return scene.lease(f"node.{node}")["labels"]["arpguard.io/kind"]


@in_loop
async def test_renewals_that_say_nothing_new_are_shown_to_their_own_node_alone(two, monkeypatch):
    monkeypatch.setattr(leasetimes, "BOUND_NS", 6 * NS_PER_S)  # a renewal each second
    monkeypatch.setattr(leasetimes, "BOUND_MARGIN_NS", NS_PER_S)
    kernels = Voucher(), Voucher()
    async with (
        a_side(two, ONE, kernels[0], config=VOUCHING) as one,
        a_side(two, TWO, kernels[1], config=VOUCHING) as it,
    ):
        await _both_bound(two, kernels)
        await _is(lambda: _kind(two, ONE) == f"quiet.{ONE}")
        before = _shown(it, ONE).version
        sent = two.lease(f"node.{ONE}")["resourceVersion"]

        await _is(lambda: int(_shown(one, ONE).version.resource_version) > int(sent))
        assert _shown(it, ONE).version == before
        assert ONE in it.membership.alive
        assert one.renewals.lost == ""

        link, also = one.surroundings.links[0], ip_interface("198.51.100.1/24")
        addresses = (*link.addresses, InterfaceAddress(also.ip, also.network))
        one.surroundings = Surroundings(links=(replace(link, addresses=addresses),))
        one.wanted.wake()
        await _is(lambda: also.network in _shown(it, ONE).links[0].networks)
        await _is(lambda: _kind(two, ONE) == f"quiet.{ONE}")


@in_loop
async def test_who_vouches_for_nobody_and_has_no_voucher_is_shown_everything(two):
    async with a_side(two, ONE, Voucher()) as one, a_side(two, TWO, Voucher(), config=VOUCHING) as other:
        await _is(lambda: one.joined and other.joined)
        for side in (one, other):
            await _is(lambda side=side: _shown(side, ONE))
            before = _shown(side, ONE).version
            await _is(lambda side=side, before=before: _shown(side, ONE).version != before)
        assert _kind(two, ONE) == _kind(two, TWO) == "heartbeat"


@in_loop
async def test_an_agent_that_is_removed_goes_unbound_so_that_the_others_see_it_go(two):
    kernels = Voucher(), Voucher()
    async with (
        a_side(two, ONE, kernels[0], config=VOUCHING) as one,
        a_side(two, TWO, kernels[1], config=VOUCHING) as it,
    ):
        await _both_bound(two, kernels)
        assert await one.membership.remove(10)
        await _is(lambda: _shown(it, ONE) is None)
        await _is(lambda: ONE not in it.membership.alive)


@in_loop
async def test_an_agent_that_is_removed_and_cannot_unbind_leaves_its_heartbeat_to_its_voucher(two, monkeypatch):
    """The others would not believe that a bound node's heartbeat is gone, and a voucher cannot revoke without it."""
    kernels = Voucher(), Voucher()
    async with (
        a_side(two, ONE, kernels[0], config=VOUCHING) as one,
        a_side(two, TWO, kernels[1], config=VOUCHING) as it,
    ):
        await _both_bound(two, kernels)
        await _is(lambda: _kind(two, ONE) == f"quiet.{ONE}")
        number = term_number(named(two, ONE)["term"])

        async def never_answered(*_asked):
            await asyncio.Event().wait()

        monkeypatch.setattr(one.membership.leases.requests, "write_heartbeat", never_answered)
        assert not await one.membership.remove(1.0)
        assert term_number(named(two, ONE)["term"]) == number

        kernels[1].processes[0].tell(number, Phase.DECIDED)  # its guard is gone by now
        await _is(lambda: ONE not in it.membership.alive)
        assert not two.lease(f"node.{ONE}")["annotations"].get("arpguard.io/instance")


@in_loop
async def test_who_is_dead_by_the_voucher_is_revoked_at_once_and_never_vouched_for_in_that_term_again(two):
    kernels = Voucher(), Voucher()
    async with a_side(two, ONE, kernels[0], config=VOUCHING):
        async with a_side(two, TWO, kernels[1], config=VOUCHING):
            await _vouched(two, TWO)
            await _bound(two, TWO, kernels[1])
            number = term_number(named(two, TWO)["term"])
            await _is(lambda: number in kernels[0].processes[0].adopted)

        kernels[0].processes[0].tell(number, Phase.DECIDED)  # its agent is dead by now
        await waited(
            lambda: not two.lease(f"node.{TWO}")["annotations"].get("arpguard.io/instance"), "it is revoked", 5
        )
        await _is(lambda: kernels[0].owned() == {vip(50)})
        assert number not in kernels[0].processes[0].adopted


@in_loop
async def test_a_node_that_has_left_a_term_is_not_dead_although_it_returns_no_ping_in_it(two):
    kernels = Voucher(), Voucher()
    async with a_side(two, ONE, kernels[0], config=VOUCHING) as one, a_side(two, TWO, kernels[1], config=VOUCHING):
        await _vouched(two, TWO)
        before = named(two, TWO)["term"]
        number = term_number(before)
        await _is(lambda: number in kernels[0].processes[0].adopted)

        kernels[1].granted = Grants(boot_ns(), number, 60 * NS_PER_S)  # it un-binds
        await waited(lambda: named(two, TWO).get("term") != before, "it leaves", 30)
        assert number in kernels[0].processes[0].adopted  # and pinged, for a while
        kernels[0].processes[0].tell(number, Phase.DECIDED)

        await _is(lambda: number not in kernels[0].processes[0].adopted)
        assert one.kube.state.vouching.decided == 0


@in_loop
async def test_a_process_that_has_ended_is_replaced_and_its_terms_are_over(two):
    kernels = Voucher(), Voucher()
    async with a_side(two, ONE, kernels[0], config=VOUCHING), a_side(two, TWO, kernels[1], config=VOUCHING):
        await _vouched(two, TWO)
        before = named(two, TWO)["term"]
        number = term_number(before)
        await _is(lambda: number in kernels[0].processes[0].adopted)

        kernels[0].processes[0].die()
        kernels[1].granted = Grants(boot_ns(), number, 60 * NS_PER_S)  # no grant comes any more: it un-binds
        await waited(lambda: named(two, TWO).get("term", before) != before, "another term", 30)

        def is_adopted() -> bool:
            term = named(two, TWO).get("term", before)
            return term != before and term_number(term) in kernels[0].processes[-1].adopted

        await _is(is_adopted)
        assert len(kernels[0].processes) > 1
        assert all(number not in process.adopted for process in kernels[0].processes[1:])


@in_loop
async def test_an_agent_that_ends_is_left_by_those_it_vouches_for_and_names_nobody(two):
    kernels = Voucher(), Voucher()
    async with a_side(two, ONE, kernels[0], config=VOUCHING) as one, a_side(two, TWO, kernels[1], config=VOUCHING):
        await _vouched(two, ONE, TWO)
        before = named(two, TWO)["term"]
        await one.kube.leave()

        assert kernels[0].processes[0].is_ending
        assert named(two, ONE) == {}
        assert kernels[0].value.term == 0
        await waited(lambda: named(two, TWO).get("term") != before, "it is left")


@in_loop
async def test_the_next_agent_keeps_the_voucher(two):
    kernels = Voucher(), Voucher()
    async with a_side(two, TWO, kernels[1], config=VOUCHING):
        before, fence_ns = await _an_agent_before(two, kernels[0])

        async with a_side(two, ONE, kernels[0], config=VOUCHING) as again:
            await _is(lambda: _renewed(again, two, fence_ns))
            assert named(two, ONE) == before
            assert note(two, ONE, "vouchers")["bound"]
            assert kernels[0].value.term == term_number(before["term"])


@in_loop
async def test_the_next_agent_keeps_the_voucher_before_it_has_read_a_configuration(two):
    kernels = Voucher(), Voucher()
    async with a_side(two, TWO, kernels[1], config=VOUCHING):
        before, fence_ns = await _an_agent_before(two, kernels[0])

        async with a_side(two, ONE, kernels[0], configmap=CONFIGMAP) as again:
            await _is(lambda: _renewed(again, two, fence_ns))
            assert again.settings.vouching is None
            _is_kept(two, kernels[0], before)

            two.configure(VOUCHING)
            await _is(lambda: not again.settings.awaited and kernels[0].processes[1:])
            _is_kept(two, kernels[0], before)


async def _an_agent_before(scene: Scene, kernel: Voucher) -> tuple[dict, int]:
    """It was bound to a voucher, and has ended; the voucher that its heartbeat names, and its fence."""
    async with a_side(scene, ONE, kernel, config=VOUCHING):
        await _vouched(scene, ONE)
        await _bound(scene, ONE, kernel)
    return named(scene, ONE), kernel.value.fence_ns


def _is_kept(scene: Scene, kernel: Voucher, before: dict) -> None:
    assert named(scene, ONE) == before
    assert note(scene, ONE, "vouchers")["bound"]
    assert scene.lease(f"node.{ONE}")["leaseDurationSeconds"] == BOUND_NS // NS_PER_S
    assert (kernel.value.term, kernel.value.ethertype) == (term_number(before["term"]), 0x88B5)


@in_loop
async def test_a_node_whose_configuration_says_off_leaves_its_voucher_and_says_nothing_of_it(two):
    kernels = Voucher(), Voucher()
    async with a_side(two, TWO, kernels[1], config=VOUCHING):
        async with a_side(two, ONE, kernels[0], config=VOUCHING):
            await _vouched(two, ONE)
            await _bound(two, ONE, kernels[0])

        async with a_side(two, ONE, kernels[0]):
            await _is(lambda: kernels[0].value.term == 0)
            assert not {"arpguard.io/vouchers", "arpguard.io/vouching"} & annotations(two, ONE).keys()
            assert (kernels[0].value.ethertype, kernels[0].terms) == (0, {})


@pytest.mark.parametrize(("profile", "d_ms"), [("fast", 600), ("slow", 1500)])
@in_loop
async def test_d_is_that_of_the_profile_that_is_configured(two, profile, d_ms):
    kernels, config = (Voucher(), Voucher()), VOUCHING.replace("default", profile)
    async with a_side(two, ONE, kernels[0], config=config), a_side(two, TWO, kernels[1], config=config):
        await _vouched(two, ONE)
        assert named(two, ONE)["dNs"] == d_ms * NS_PER_MS


@in_loop
async def test_who_vouches_for_whom_can_be_read(two):
    kernels = Voucher(), Voucher()
    async with (
        a_side(two, ONE, kernels[0], config=VOUCHING) as one,
        a_side(two, TWO, kernels[1], config=VOUCHING) as other,
    ):
        await _vouched(two, ONE)
        await _bound(two, ONE, kernels[0])
        number = term_number(named(two, ONE)["term"])
        await _is(lambda: number in kernels[1].processes[0].adopted)
        kernels[1].processes[0].tell(number, Phase.VOUCHING)
        await _is(lambda: any(each.bound for each in _state(other).vouched))

        mine, (theirs,) = _state(one), [each for each in _state(other).vouched if not each.trial]
        assert (mine.voucher, mine.bound, mine.d_ns, mine.unbinds) == (TWO, True, 1000 * NS_PER_MS, 0)
        assert (theirs.node, theirs.d_ns, theirs.gaps.total) == (ONE, 1000 * NS_PER_MS, 1)
        assert _state(other).gaps == theirs.gaps
        assert 0 <= boot_ns() - theirs.since_ns < 60 * NS_PER_S
        holders = [side.kube.state.holder(vip(50)) for side in (one, other)]
        assert {holder.voucher for holder in holders if holder.node == ONE} <= {TWO}

        kernels[1].processes[0].drop(number)
        kernels[1].processes[0].die()
        await _is(lambda: number not in kernels[1].processes[-1].adopted and _state(other).gaps.total == 1)


def _state(side: Side) -> VouchingState:
    return side.kube.state.vouching


@in_loop
async def test_off_has_no_state_to_read(two):
    async with a_side(two, ONE, Voucher()) as one:
        await _is(lambda: one.joined)
        assert _state(one) is None


@in_loop
async def test_pings_that_never_come_back_are_a_problem(two, monkeypatch):
    monkeypatch.setattr("arpguard.runtime.cluster.vouching.UNHEARD_NS", 0)
    kernels = Voucher(), Voucher()
    kernels[0].is_heard = False
    async with (
        a_side(two, ONE, kernels[0], config=VOUCHING) as one,
        a_side(two, TWO, kernels[1], config=VOUCHING) as other,
    ):
        await _is(lambda: one.says(f"vouching: no ping comes back from {TWO}: check whether"))
        assert one.says("0x88B5")
        assert not other.says("no ping comes back")


@in_loop
async def test_secret_that_cannot_be_used_is_a_problem_until_it_can(two):
    def secret(**data: str) -> dict:
        metadata = {"name": "arpguard-vouching", "namespace": "arpguard"}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}

    two.put(secret(other=""))
    kernels = Voucher(), Voucher()
    async with (
        a_side(two, ONE, kernels[0], config=VOUCHING) as one,
        a_side(two, TWO, kernels[1], config=VOUCHING),
    ):
        await _is(lambda: one.says("vouching: cannot read the Secret"))
        assert kernels[0].processes == []

        two.put(secret(key=base64.b64encode(bytes(range(32))).decode()))
        await _vouched(two, ONE, TWO)
        await _is(lambda: not one.says("cannot read the Secret"))


def _renewed(side: Side, scene: Scene, fence_ns: int) -> bool:
    by = note(scene, ONE, "vouchers").get("by")
    return (
        side.joined
        and side.kernel.value.fence_ns > fence_ns
        and by == scene.lease(f"node.{ONE}")["annotations"].get("arpguard.io/instance")
    )
