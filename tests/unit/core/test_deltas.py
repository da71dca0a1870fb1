"""Whatever was wanted, told and found, what is pending leads to what is desired, and to nothing else."""

import random
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from arpguard.core.deltas import DeltaTracker, in_order, in_reverse
from arpguard.model import EntryKey, RangeKey, VipEntry
from arpguard.overlay import Overlay
from arpguard.verdict import Kind, Mode

VIP = ip_address("192.0.2.50")
KEYS = [EntryKey(2, VIP + number) for number in range(6)]
OWNED, FOREIGN, UNCLAIMED = VipEntry(Kind.OWNED, epoch=1), VipEntry(Kind.FOREIGN), VipEntry(Kind.UNCLAIMED)


def a_tracker(kernel: dict[EntryKey, VipEntry]) -> DeltaTracker[EntryKey]:
    tracker = DeltaTracker()
    tracker.begin(dict(kernel))
    return tracker


def test_what_is_found_at_first_is_to_stay():
    tracker = a_tracker({KEYS[0]: OWNED})

    assert tracker.settled
    assert tracker.desired == {KEYS[0]: OWNED}


def test_pending_is_what_differs_and_what_is_left_over():
    same, changed, new, old = KEYS[:4]
    tracker = a_tracker({same: OWNED, changed: FOREIGN, old: FOREIGN})

    tracker.want_all({same: OWNED, changed: OWNED, new: OWNED})

    assert tracker.writes == {changed: OWNED, new: OWNED}
    assert list(tracker.deletes) == [old]


def test_new_is_what_the_kernel_lacks_or_has_in_another_mode():
    lacked, other_mode, other_kind = KEYS[:3]
    enforced = replace(FOREIGN, mode=Mode.ENFORCE)
    tracker = a_tracker({other_mode: FOREIGN, other_kind: FOREIGN})

    tracker.want({lacked: OWNED, other_mode: enforced, other_kind: OWNED})

    assert tracker.new == {lacked: OWNED, other_mode: enforced}


def test_who_wants_again_what_the_kernel_has_leaves_nothing_pending():
    tracker = a_tracker({KEYS[0]: OWNED, KEYS[1]: FOREIGN})
    tracker.want({KEYS[0]: FOREIGN, KEYS[2]: OWNED}, [KEYS[1]])

    tracker.want({KEYS[0]: OWNED, KEYS[1]: FOREIGN}, [KEYS[2]])

    assert tracker.settled


def test_what_others_changed_is_named_and_is_pending():
    tracker = a_tracker({KEYS[0]: OWNED, KEYS[1]: FOREIGN, KEYS[2]: FOREIGN})

    found = tracker.found({KEYS[0]: OWNED, KEYS[1]: OWNED, KEYS[3]: OWNED})

    assert set(found) == set(KEYS[1:4])
    assert tracker.writes == {KEYS[1]: FOREIGN, KEYS[2]: FOREIGN}
    assert list(tracker.deletes) == [KEYS[3]]


def test_what_is_found_as_it_was_stays_the_same_object():
    """Whoever has worked something out from it need not do so again."""
    tracker = a_tracker({KEYS[0]: OWNED})
    before = tracker.kernel.whole

    assert tracker.found({KEYS[0]: OWNED}) == []
    assert tracker.kernel.whole is before


def test_what_is_given_up_is_never_pending_again():
    tracker = a_tracker({KEYS[0]: OWNED})

    tracker.given_up({KEYS[0]: UNCLAIMED})

    assert tracker.settled
    assert tracker.desired == {KEYS[0]: UNCLAIMED}


@pytest.mark.parametrize("pending", [FOREIGN, UNCLAIMED, None])
def test_what_is_given_up_is_still_to_be_what_was_pending(pending):
    tracker = a_tracker({KEYS[0]: OWNED})
    tracker.want({KEYS[0]: pending} if pending else {}, [] if pending else [KEYS[0]])

    tracker.given_up({KEYS[0]: UNCLAIMED})

    assert tracker.desired == ({KEYS[0]: pending} if pending else {})
    assert tracker.settled is (pending is UNCLAIMED)


@pytest.mark.parametrize("seed", range(20))
def test_kernel_that_is_told_what_is_pending_has_what_was_wanted_last(seed):
    """In any order of wishes for a few and for all, of the kernel being told, and of others changing what it has."""
    rng = random.Random(seed)
    kernel: dict[EntryKey, VipEntry] = {}
    wanted: dict[EntryKey, VipEntry] = {}
    tracker = a_tracker(kernel)

    def some_entries() -> dict[EntryKey, VipEntry]:
        return {key: rng.choice([OWNED, FOREIGN]) for key in KEYS if rng.random() < 0.4}

    for _ in range(60):
        match rng.randrange(4):
            case 0:
                wanted = some_entries()
                tracker.want_all(wanted)
            case 1:
                writes = some_entries()
                gone = [key for key in KEYS if key not in writes and rng.random() < 0.3]
                tracker.want(writes, gone)
                wanted = {key: entry for key, entry in (wanted | writes).items() if key not in gone}
            case 2:
                kernel = some_entries()
                tracker.found(dict(kernel))
            case _:
                kernel = {key: entry for key, entry in (kernel | tracker.writes).items() if key not in tracker.deletes}
                tracker.done()
                assert kernel == wanted
                assert tracker.settled

        assert tracker.desired == wanted
        assert tracker.kernel.whole == kernel
        assert not tracker.writes.keys() & tracker.deletes.keys()


def test_what_is_given_up_comes_before_what_is_taken_and_exceptions_before_what_is_closed():
    entries = {KEYS[0]: OWNED, KEYS[1]: FOREIGN, KEYS[2]: OWNED, KEYS[3]: UNCLAIMED}
    own, pool = (RangeKey(2, ip_network(text)) for text in ("192.0.2.1/32", "192.0.2.0/24"))

    assert list(in_order(entries)) == [KEYS[1], KEYS[3], KEYS[0], KEYS[2]]
    assert list(in_order({pool: VipEntry(Kind.CLOSED), own: VipEntry(Kind.OPEN)})) == [own, pool]


def test_what_was_written_last_goes_first_and_so_does_what_is_no_entry():
    stranger, own, pool = (RangeKey(2, ip_network(text)) for text in ("10.0.0.0/8", "192.0.2.1/32", "192.0.2.0/24"))
    known = Overlay({own: VipEntry(Kind.OPEN), pool: VipEntry(Kind.CLOSED)})

    assert in_reverse([own, stranger, pool], known) == [stranger, pool, own]
