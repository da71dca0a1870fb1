"""A mapping that is changed a few items at a time is at all times what a dict would be."""

import random

import pytest

from arpguard.overlay import Overlay


@pytest.mark.parametrize("seed", range(10))
def test_whatever_was_changed_it_has_what_a_dict_would_have(seed):
    rng = random.Random(seed)
    expected = dict.fromkeys(range(20), "first")
    overlay = Overlay(dict(expected))

    for step in range(100):
        writes = {rng.randrange(40): f"step {step}" for _ in range(rng.randrange(3))}
        gone = {rng.randrange(40) for _ in range(rng.randrange(3))} - writes.keys()
        overlay.change(writes, gone)
        expected = {number: item for number, item in (expected | writes).items() if number not in gone}

        assert [overlay.get(number) for number in range(40)] == [expected.get(number) for number in range(40)]
        if rng.random() < 0.3:
            assert overlay.whole == expected


def test_whole_stays_as_it_was_given_out_and_is_another_object_after_a_change():
    overlay = Overlay({1: "a", 2: "b"})
    first = overlay.whole

    overlay.change({1: "c"}, [2])

    assert first == {1: "a", 2: "b"}
    assert overlay.whole == {1: "c"}
    assert overlay.whole is overlay.whole


def test_whole_that_is_replaced_by_an_equal_one_stays_the_same_object():
    overlay = Overlay({1: "a"})
    overlay.change({2: "b"})
    before = overlay.whole

    overlay.replace({1: "a", 2: "b"})
    assert overlay.whole is before
    overlay.replace({1: "a"})
    assert overlay.whole == {1: "a"}
