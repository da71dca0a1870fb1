"""The voucher's term in the kernel: on every guarded link, and in the control value, in the right order."""

import asyncio
from dataclasses import replace

import pytest

from arpguard.addresses import MacAddress
from arpguard.config.files import parse_config
from arpguard.config.model import Datapath
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.basis import Asked
from arpguard.model import Grants, Link, LinkTerm, NodeControl, Surroundings
from arpguard.runtime.kernel.reconciler import Reconciler
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.verdict import Mode
from support.programs.recorder import Control, Entries, Ranges, Recorder, Vouching

TYPE = 0x88B5
TERM, TRIAL = LinkTerm(7, bytes(16), 600), LinkTerm(8, bytes(16), 0)
ETH0, ETH1 = (Link(ifindex, f"eth{ifindex}", MacAddress(bytes(6)), up=True) for ifindex in (2, 3))


@pytest.fixture
def kernel() -> Recorder:
    return Recorder()


def a_reconciler(kernel: Recorder) -> Reconciler:
    return Reconciler(
        "me", Entries(kernel), Ranges(kernel), Control(kernel), kernel, AnnouncementSchedule(), Vouching(kernel)
    )


def apply(reconciler: Reconciler, *links: Link) -> None:
    config = parse_config("{mode: enforce, interfaces: ['eth*']}")
    asyncio.run(reconciler.apply(Asked(config, 1, {}), Surroundings(links=links), 0))


@pytest.fixture
def reconciler(kernel):
    made = a_reconciler(kernel)
    apply(made, ETH0)
    kernel.told.clear()
    return made


def test_nobody_vouches_unless_it_is_told(kernel, reconciler):
    assert (kernel.value.term, kernel.value.ethertype, kernel.terms) == (0, 0, {})
    assert reconciler.vouched.read() == (0, Grants())


def test_control_has_a_term_before_any_link_and_after_all(kernel, reconciler):
    reconciler.vouched.take(TERM, TYPE)
    assert kernel.told == ["control ENFORCE", "terms [7] on [2]"]
    assert (kernel.value.term, kernel.value.ethertype, kernel.terms) == (7, TYPE, {2: TERM})

    kernel.told.clear()
    reconciler.vouched.take(None, TYPE)
    assert kernel.told == ["terms [] on []", "control ENFORCE"]
    assert (kernel.value.term, kernel.value.ethertype) == (0, TYPE)


def test_a_term_is_gone_everywhere_before_another_one_comes(kernel, reconciler):
    reconciler.vouched.take(TERM, TYPE)
    kernel.told.clear()
    reconciler.vouched.take(replace(TERM, number=9), TYPE)
    assert kernel.told == ["terms [] on []", "control ENFORCE", "terms [9] on [2]"]


def test_a_trial_counts_for_nothing_and_gives_way(kernel, reconciler):
    reconciler.vouched.try_out(TRIAL, TYPE)
    assert (kernel.value.term, kernel.value.ethertype, kernel.terms) == (0, TYPE, {2: TRIAL})

    reconciler.vouched.take(TERM, TYPE)
    assert (kernel.value.term, kernel.terms) == (7, {2: TERM})
    for trial in (TRIAL, None):
        reconciler.vouched.try_out(trial, TYPE)
        assert (kernel.value.term, kernel.terms) == (7, {2: TERM})


def test_a_trial_that_is_the_same_costs_nothing(kernel, reconciler):
    reconciler.vouched.try_out(TRIAL, TYPE)
    kernel.told.clear()
    reconciler.vouched.try_out(TRIAL, TYPE)
    assert kernel.told == []
    reconciler.vouched.try_out(None, TYPE)
    assert kernel.terms == {}


def test_term_follows_the_guarded_links(kernel, reconciler):
    reconciler.vouched.take(TERM, TYPE)
    apply(reconciler, ETH0, ETH1)
    assert kernel.terms == {2: TERM, 3: TERM}
    apply(reconciler, ETH1)
    assert kernel.terms == {3: TERM}
    assert (kernel.value.term, kernel.value.ethertype) == (7, TYPE)


@pytest.mark.parametrize("after", [TERM, None])
@pytest.mark.parametrize("kept", [True, False])
def test_what_the_kernel_refuses_is_a_problem_and_tried_again(kernel, reconciler, after, kept):
    reconciler.vouched.take(replace(TERM, number=9), TYPE)
    kernel.refuses_terms = True
    reconciler.vouched.take(after, TYPE)
    apply(reconciler, ETH0)
    asyncio.run(reconciler.keep_attached(Datapath.TC, Surroundings(links=(ETH0,))))
    assert kernel.value.term == 9  # whatever it is bound to stays, and is more than the agent asks for
    assert any("new voucher; trying again" in problem for problem in reconciler.state.problems)
    assert reconciler.state.drift.control == 0

    kernel.refuses_terms = False
    if kept:
        asyncio.run(reconciler.keep_attached(Datapath.TC, Surroundings(links=(ETH0,))))
    else:
        apply(reconciler, ETH0)
        assert not reconciler.state.problems
    assert (kernel.value.term, kernel.terms) == ((7, {2: TERM}) if after else (0, {}))


def test_what_others_do_to_the_terms_is_mended(kernel, reconciler):
    reconciler.vouched.take(TERM, TYPE)
    kernel.terms, kernel.value = {2: TRIAL, 9: TERM}, replace(kernel.value, term=0)
    apply(reconciler, ETH0)
    assert (kernel.value.term, kernel.terms) == (7, {2: TERM})
    assert reconciler.state.drift.control == 1


@pytest.mark.parametrize(("pinged_ms", "unheard"), [(0, False), (50, False), (150, False), (151, True)])
def test_pings_that_come_for_long_without_a_grant_tell_that_the_voucher_may_not_hear_this_node(pinged_ms, unheard):
    granted_ns, window_ns = 10 * NS_PER_S, 600 * NS_PER_MS
    grants = Grants(granted_ns + window_ns, 7, window_ns, granted_ns + pinged_ms * NS_PER_MS)

    assert grants.is_unheard is unheard


def test_the_next_agent_keeps_the_term(kernel, reconciler):
    reconciler.vouched.take(TERM, TYPE)
    kernel.granted = Grants(fence_ns=5, bound_term=7)

    following = a_reconciler(kernel)
    following.adopt()
    apply(following, ETH0, ETH1)
    assert (kernel.value.term, kernel.value.ethertype, kernel.terms) == (7, TYPE, {2: TERM, 3: TERM})
    assert following.vouched.read() == (7, kernel.granted)

    following.vouched.try_out(None, TYPE)
    assert kernel.value.term == 7


def test_the_next_agent_knows_that_a_trial_is_none(kernel, reconciler):
    reconciler.vouched.try_out(TRIAL, TYPE)
    following = a_reconciler(kernel)
    following.adopt()
    apply(following, ETH0)
    assert (kernel.value.term, kernel.terms) == (0, {})


def test_before_the_first_pass_there_is_no_control_to_change(kernel):
    reconciler = a_reconciler(kernel)
    reconciler.vouched.take(TERM, TYPE)
    assert (kernel.value, kernel.terms) == (None, {})

    apply(reconciler, ETH0)
    assert (kernel.value.term, kernel.terms) == (7, {2: TERM})
    assert isinstance(kernel.value, NodeControl)
    assert kernel.value.mode is Mode.ENFORCE
