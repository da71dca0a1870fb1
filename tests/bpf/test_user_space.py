"""The programs compiled for user space are the ones in the kernel: same frames, same answers, same counts."""

import random

import pytest

from arpguard.clock import boot_ns
from arpguard.verdict import Hook, Kind
from support.chance import SEED
from support.frames import random_arp, random_nd
from support.frames.builders import VIP, an_arp_request, an_entry
from support.frames.nd_builders import VIP6, a_control6, an_entry6, an_na, an_ns
from support.frames.random_nd import random_maps, stimuli_for
from support.frames.vouch_builders import TERM
from support.programs.agreement import compare
from support.programs.compiling import BPF
from support.programs.edges import (
    COSTS,
    FENCES,
    GRANTED,
    GRANTED_ANEW,
    SHAPES,
    SUMS,
    VOUCHERS_FENCES,
    check_cost,
    check_fence,
    check_grant,
    check_option_of_no_length,
    check_sum,
    check_vouchers_fence,
)
from support.programs.judging import HOOKS, first_wrong_cell
from support.programs.prog_run import DROPPED, SEND_BACK
from support.programs.user_space import UserPlane


@pytest.fixture(scope="module")
def user_plane(tmp_path_factory):
    return UserPlane(tmp_path_factory.mktemp("user-space"), BPF)


def test_every_cell_of_the_table_is_right(user_plane):
    assert first_wrong_cell(user_plane) is None


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_random_neighbour_discovery_is_treated_as_the_model_says(user_plane, hook):
    compare(user_plane, hook, random_maps, stimuli_for(hook), batches=10)


@pytest.mark.parametrize(("ahead_ns", "expected"), FENCES.values(), ids=FENCES)
def test_fence_is_compared_to_the_nanosecond(user_plane, ahead_ns, expected):
    check_fence(user_plane, ahead_ns, expected)


@pytest.mark.parametrize(("ahead_ns", "expected"), VOUCHERS_FENCES.values(), ids=VOUCHERS_FENCES)
def test_vouchers_fence_is_compared_to_the_nanosecond(user_plane, ahead_ns, expected):
    check_vouchers_fence(user_plane, ahead_ns, expected)


@pytest.mark.parametrize(("ahead_ns", "stamp_ns", "then_ns"), GRANTED.values(), ids=GRANTED)
def test_grant_moves_the_fence_as_far_as_it_may(user_plane, ahead_ns, stamp_ns, then_ns):
    check_grant(user_plane, ahead_ns, stamp_ns, then_ns)


@pytest.mark.parametrize(("ahead_ns", "stamp_ns", "then_ns"), GRANTED_ANEW.values(), ids=GRANTED_ANEW)
def test_first_grant_of_a_term_sets_the_fence_whatever_it_was(user_plane, ahead_ns, stamp_ns, then_ns):
    check_grant(user_plane, ahead_ns, stamp_ns, then_ns, bound_term=TERM.number - 1)


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
def test_frame_costs_no_more_than_it_has_to(user_plane, cost):
    check_cost(user_plane, cost)


def test_address_behind_an_option_of_no_length_is_not_read(user_plane):
    check_option_of_no_length(user_plane)


@pytest.mark.parametrize("primary", SUMS.values(), ids=SUMS)
def test_checksum_is_updated_whatever_address_is_written(user_plane, primary):
    check_sum(user_plane, primary)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_frame_of_another_shape_is_not_answered(user_plane, shape):
    shape.check(user_plane)


@pytest.mark.parametrize("hook", [Hook.TC_INGRESS, Hook.TC_EGRESS], ids=lambda hook: hook.name)
@pytest.mark.parametrize(("maps", "stimuli"), [(random_arp, lambda _: random_arp.a_stimulus), (random_nd, stimuli_for)])
def test_frame_may_be_linear_in_part(user_plane, hook, maps, stimuli):
    """A driver may leave only the Ethernet header directly readable: nothing else comes of the frame."""
    rng = random.Random(f"{SEED} {hook.name}")
    stimulus = stimuli(hook)
    for _ in range(10):
        user_plane.set(*maps.random_maps(rng, boot_ns()))
        for frame in (stimulus(rng) for _ in range(100)):
            linear = rng.randrange(14, len(frame) + 1)
            whole = user_plane.run(hook, frame)
            assert user_plane.run(hook, frame, linear=linear, summed=1) == whole, (SEED, linear, frame.hex())


def test_answer_does_not_keep_what_the_nic_has_summed_up_of_the_question(user_plane):
    """A receiver on this machine would verify the answer by it."""
    user_plane.set({VIP6: an_entry6()}, a_control6())
    outcome = user_plane.run(Hook.TC_INGRESS, an_ns(), summed=1)
    assert outcome.action == SEND_BACK
    assert not user_plane.left_summed


@pytest.mark.parametrize("frame", [an_arp_request(), an_ns()], ids=["arp", "nd"])
def test_frame_that_cannot_be_made_linear_is_dropped(user_plane, frame):
    """Nobody knows what the kernel would read in it."""
    user_plane.set({VIP: an_entry()}, a_control6())
    assert user_plane.run(Hook.TC_INGRESS, frame, linear=14, ungainly=1) == DROPPED


@pytest.mark.parametrize(
    ("hook", "frame", "number"),
    [
        (Hook.TC_INGRESS, an_ns(), 3),  # after the sender's, and the VIP's before the message is examined
        (Hook.XDP, an_ns(), 3),
        (Hook.TC_EGRESS, an_na(target=VIP6), 2),
    ],
    ids=["question at tc", "question at XDP", "outgoing claim"],
)
def test_entry_that_is_missed_while_it_is_replaced_is_looked_for_once_more(user_plane, hook, frame, number):
    user_plane.set({VIP6: an_entry6(Kind.FOREIGN)}, a_control6())
    user_plane.world.missed = user_plane.world.lookups + number
    assert user_plane.run(hook, frame) == DROPPED
    assert user_plane.world.lookups > user_plane.world.missed
