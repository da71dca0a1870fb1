"""Entries and control as values in the real maps, and what becomes of them over restarts and tampering."""

import ctypes
import errno
import gc
import itertools
import operator
import struct
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from arpguard.addresses import to_mapped
from arpguard.clock import boot_ns
from arpguard.dataplane import layout, maps, syscall
from arpguard.dataplane.build import read_build
from arpguard.dataplane.maps import ControlValue, EntryTable, VouchingTable, write_term
from arpguard.errors import MapFullError
from arpguard.model import EntryKey, Tally
from arpguard.verdict import Hook, Kind, Mode, Reason
from support.frames.builders import (
    EPOCH,
    GUARD,
    HOUR_NS,
    OTHER_VIP,
    OWNER,
    PRIMARY_IP,
    THIRD,
    VIP,
    a_control,
    an_arp_request,
    an_entry,
)
from support.frames.vouch_builders import OTHER_TERM, TERM, a_ping, a_vouching_control, sealed
from support.programs.prog_run import DROPPED, INGRESS, LO, SEND_BACK, Plane, a_plane

pytestmark = pytest.mark.bpf

CAPACITY = 8
KEY = EntryKey(LO, VIP)
OTHER_KEY = EntryKey(LO, OTHER_VIP)
MANY = {EntryKey(number, IPv4Address("198.51.100.1")): an_entry() for number in range(1, CAPACITY + 1)}


@pytest.fixture(scope="module")
def own_plane():
    """Maps with room for eight entries."""
    with a_plane("maps", replace(read_build(), max_entries=CAPACITY)) as plane:
        yield plane


@pytest.fixture
def small(own_plane) -> Plane:
    """The same without entries."""
    for raw, _ in list(raw_items(own_plane)):
        syscall.map_delete(own_plane.maps["entries"], raw)
    own_plane.table = reopened(own_plane)
    own_plane.control.write(a_control())
    return own_plane


def reopened(plane: Plane) -> EntryTable:
    """As after a restart of the agent."""
    return EntryTable(plane.maps["entries"], plane.maps["counters"])


def raw_items(plane: Plane):
    sizes = ctypes.sizeof(layout.EntryKeyStruct), ctypes.sizeof(layout.EntryStruct)
    return syscall.map_items(plane.maps["entries"], *sizes)


def raw_key(key: EntryKey) -> bytes:
    return struct.pack("=I", key.ifindex) + to_mapped(key.vip)


def raw_values(plane: Plane) -> dict[bytes, layout.EntryStruct]:
    return {key: layout.EntryStruct.from_buffer_copy(value) for key, value in raw_items(plane)}


def tamper(plane: Plane, key: EntryKey, field: str, value: int) -> None:
    raw = raw_values(plane)[raw_key(key)]
    setattr(raw, field, value)
    syscall.map_update(plane.maps["entries"], raw_key(key), bytes(raw))


# ---- entries -----------------------------------------------------------------------------------------------------

ENTRIES = {
    "owned": an_entry(),
    "held": an_entry(unfenced=True),
    "pinned": an_entry(Kind.EXTERNAL, owner_mac=OWNER),
    "observed": an_entry(Kind.FOREIGN, mode=Mode.OBSERVE),
    "enforced": an_entry(Kind.UNCLAIMED, mode=Mode.ENFORCE),
    "without_address": an_entry(Kind.DELEGATED, primary=None),
    "virtual_mac": an_entry(answer_mac=THIRD),
    "large_epoch": an_entry(epoch=2**64 - 1),
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_entry_is_read_back_as_written(small, entry):
    small.table.write({KEY: entry})
    assert small.table.read().entries == {KEY: entry}
    assert reopened(small).read().entries == {KEY: entry}


def types_of_arrays() -> set[type]:
    """Those that ctypes has made; unless it is used, each lives until a full collection."""
    return {each for each in gc.get_objects() if type(each) is type(ctypes.Array)}


def test_writing_makes_no_type_for_each_number_of_entries(small):
    before = types_of_arrays()
    for number in range(1, CAPACITY):
        small.table.write(dict(itertools.islice(MANY.items(), number)))
    assert types_of_arrays() <= before


def test_key_is_the_link_and_the_mapped_address(small):
    small.table.write({EntryKey(0x01020304, IPv4Address("192.0.2.100")): an_entry()})
    (key,) = raw_values(small)
    assert key == struct.pack("=I", 0x01020304) + bytes(10) + b"\xff\xff" + bytes([192, 0, 2, 100])


def test_same_vip_on_two_links_is_two_entries(small):
    wanted = {KEY: an_entry(), EntryKey(LO + 1, VIP): an_entry(Kind.FOREIGN)}
    small.table.write(wanted)
    assert small.table.read().entries == wanted


def test_written_entry_replaces_the_old_one_as_a_whole(small):
    small.table.write({KEY: an_entry(Kind.EXTERNAL, mode=Mode.ENFORCE, unfenced=True, owner_mac=OWNER)})
    small.table.write({KEY: an_entry(Kind.FOREIGN, primary=None)})
    assert small.table.read().entries == {KEY: an_entry(Kind.FOREIGN, primary=None)}


def test_nothing_to_write_is_no_error(small):
    small.table.write({})
    assert small.table.read().entries == {}


def test_deleted_entry_is_gone(small):
    small.table.write({KEY: an_entry(), OTHER_KEY: an_entry()})
    small.table.delete([KEY])
    assert small.table.read().entries == {OTHER_KEY: an_entry()}


def test_deleting_what_is_not_there_does_nothing(small):
    small.table.write({OTHER_KEY: an_entry()})
    small.table.delete([KEY, KEY])
    assert small.table.read().entries == {OTHER_KEY: an_entry()}


def test_own_writes_and_deletes_leave_the_map_untouched(small):
    assert small.table.is_untouched()
    small.table.write({KEY: an_entry(), OTHER_KEY: an_entry()})
    small.table.write({KEY: an_entry(Kind.FOREIGN)})
    small.table.delete([OTHER_KEY])
    assert small.table.is_untouched()
    assert small.table.read().entries == {KEY: an_entry(Kind.FOREIGN)}
    assert small.table.is_untouched()


def _delete(plane: Plane) -> None:
    syscall.map_delete(plane.maps["entries"], raw_key(KEY))


def _change(plane: Plane) -> None:
    tamper(plane, KEY, "kind", Kind.FOREIGN)


def _add(plane: Plane) -> None:
    syscall.map_update(plane.maps["entries"], raw_key(OTHER_KEY), bytes(raw_values(plane)[raw_key(KEY)]))


@pytest.mark.parametrize("meddle", [_delete, _change, _add])
def test_map_that_something_else_has_changed_is_not_untouched(small, meddle):
    small.table.write({KEY: an_entry()})
    meddle(small)
    assert not small.table.is_untouched()
    small.table.read()
    assert small.table.is_untouched()


def test_map_is_not_taken_for_untouched_after_a_refused_write(small, monkeypatch):
    """The kernel may have taken some of it."""
    with monkeypatch.context() as refusing:
        refusing.setattr(syscall, "map_update_batch", refused)
        with pytest.raises(MapFullError):
            small.table.write({KEY: an_entry()})
    assert not small.table.is_untouched()
    small.table.write({KEY: an_entry()})
    assert not small.table.is_untouched()
    small.table.read()
    assert small.table.is_untouched()


def refused(*_args) -> None:
    raise OSError(errno.ENOMEM, "no memory")


def test_deleted_entry_has_no_counts(small):
    small.table.write({KEY: an_entry(Kind.FOREIGN)})
    small.run(Hook.TC_INGRESS, an_arp_request())
    small.table.delete([KEY])
    assert small.table.tally(KEY) == Tally()


# ---- slots -------------------------------------------------------------------------------------------------------


def slots(plane: Plane) -> dict[bytes, int]:
    return {key: value.slot for key, value in raw_values(plane).items()}


def test_no_two_entries_share_a_slot(small):
    small.table.write(MANY)
    assert sorted(slots(small).values()) == list(range(CAPACITY))


def test_entry_keeps_its_slot_when_written_again(small):
    small.table.write(MANY)
    before = slots(small)
    small.table.write(dict(reversed(MANY.items())))
    assert slots(small) == before


def test_entry_keeps_its_slot_over_reopening(small):
    small.table.write(MANY)
    before = slots(small)
    reopened(small).write(dict(reversed(MANY.items())))
    assert slots(small) == before


def test_counts_go_on_over_reopening(small):
    small.table.write({KEY: an_entry(Kind.FOREIGN)})
    small.run(Hook.TC_INGRESS, an_arp_request())
    table = reopened(small)
    table.write({KEY: an_entry(Kind.FOREIGN)})
    small.run(Hook.TC_INGRESS, an_arp_request())
    assert table.tally(KEY) == Tally(enforced={Reason.FOREIGN: 2})


def test_new_entries_avoid_slots_in_use_over_reopening(small):
    """A hole in the middle is filled, and what is above it stays."""
    small.table.write(MANY)
    keys = list(MANY)
    small.table.delete(keys[2:4])
    table = reopened(small)
    table.write({KEY: an_entry(), OTHER_KEY: an_entry()})
    assert sorted(slots(small).values()) == list(range(CAPACITY))


@pytest.mark.parametrize("reopen", [False, True], ids=["same_table", "reopened"])
def test_reused_slot_starts_with_zero_counts(small, reopen):
    small.table.write({KEY: an_entry(Kind.FOREIGN)})
    small.run(Hook.TC_INGRESS, an_arp_request())
    (slot,) = slots(small).values()
    small.table.delete([KEY])
    table = reopened(small) if reopen else small.table
    table.write({OTHER_KEY: an_entry(Kind.FOREIGN)})
    assert list(slots(small).values()) == [slot]
    assert table.tally(OTHER_KEY) == Tally()


@pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)
def test_entry_without_a_slot_is_enforced_all_the_same(small, hook):
    small.table.write({KEY: an_entry(Kind.FOREIGN)})
    tamper(small, KEY, "slot", CAPACITY + 5)
    assert small.run(hook, an_arp_request()) == DROPPED


# ---- a full map --------------------------------------------------------------------------------------------------


def test_entries_that_fit_are_written_into_a_full_map(small):
    """E14: the others are not answered for, and the error says how many."""
    surplus = {KEY: an_entry(), OTHER_KEY: an_entry()}
    with pytest.raises(
        MapFullError,
        match=f"took only {CAPACITY} of {CAPACITY + 2} VIP entries into a map with room for {CAPACITY}",
    ):
        small.table.write(MANY | surplus)
    assert small.table.read().entries == MANY


def test_entry_that_did_not_fit_is_not_answered(small):
    with pytest.raises(MapFullError):
        small.table.write(MANY | {KEY: an_entry()})
    assert small.run(Hook.TC_INGRESS, an_arp_request()).action != SEND_BACK


def test_full_map_still_takes_changes_of_its_entries(small):
    small.table.write(MANY)
    changed = {key: an_entry(Kind.FOREIGN) for key in MANY}
    small.table.write(changed)
    assert small.table.read().entries == changed


def test_deleting_makes_room_in_a_full_map(small):
    small.table.write(MANY)
    gone = next(iter(MANY))
    small.table.delete([gone])
    small.table.write({KEY: an_entry()})
    assert small.table.read().entries.keys() == MANY.keys() - {gone} | {KEY}


def test_capacity_is_what_the_map_has(small):
    assert small.table.capacity == CAPACITY


# ---- tampering ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slot", 5),
        ("slot", 2**32 - 1),
        ("kind", 0),
        ("kind", 6),
        ("kind", 255),
        ("mode", 3),
        ("mode", 255),
    ],
)
def test_tampered_entry_reads_as_absent(small, field, value):
    """The reconciler rewrites what is absent."""
    small.table.write({KEY: an_entry(), OTHER_KEY: an_entry()})
    tamper(small, KEY, field, value)
    assert small.table.read().entries == {OTHER_KEY: an_entry()}
    small.table.write({KEY: an_entry()})
    assert small.table.read().entries == {KEY: an_entry(), OTHER_KEY: an_entry()}


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("kind", Kind.FOREIGN, an_entry(Kind.FOREIGN)),
        ("epoch", EPOCH + 1, an_entry(epoch=EPOCH + 1)),
        ("flags", layout.ENTRY_HOLD, an_entry(unfenced=True)),
        ("mode", Mode.OBSERVE, an_entry(mode=Mode.OBSERVE)),
    ],
    ids=["kind", "epoch", "flags", "mode"],
)
def test_tampered_field_is_read_as_it_is(small, field, value, expected):
    small.table.write({KEY: an_entry()})
    tamper(small, KEY, field, value)
    assert small.table.read().entries == {KEY: expected}


def test_of_two_entries_in_one_slot_one_reads_as_absent_after_reopening(small):
    small.table.write({KEY: an_entry(), OTHER_KEY: an_entry()})
    tamper(small, OTHER_KEY, "slot", slots(small)[raw_key(KEY)])
    table = reopened(small)
    assert len(table.read().entries) == 1
    table.write({KEY: an_entry(), OTHER_KEY: an_entry()})
    assert len(set(slots(small).values())) == 2
    assert table.read().entries == {KEY: an_entry(), OTHER_KEY: an_entry()}


def test_slot_beyond_the_map_reads_as_absent_after_reopening(small):
    small.table.write({KEY: an_entry()})
    tamper(small, KEY, "slot", CAPACITY)
    table = reopened(small)
    assert table.read().entries == {}
    table.write({KEY: an_entry()})
    assert table.read().entries == {KEY: an_entry()}


def test_entry_that_somebody_else_made_is_adopted(small):
    """Its slot is free for it, so it is read, and can be deleted."""
    small.table.write({KEY: an_entry()})
    foreign = layout.EntryStruct(kind=Kind.FOREIGN, slot=3)
    syscall.map_update(small.maps["entries"], raw_key(OTHER_KEY), bytes(foreign))
    table = reopened(small)
    assert table.read().entries.keys() == {KEY, OTHER_KEY}
    table.delete([OTHER_KEY])
    assert table.read().entries.keys() == {KEY}


# ---- control -----------------------------------------------------------------------------------------------------


class RecordingControl(ControlValue):
    """The real thing, and a list of what it wrote."""

    def __init__(self, fd) -> None:
        super().__init__(fd)
        self.written = []

    def _write(self, control) -> None:
        self.written.append(control)
        super()._write(control)


@pytest.fixture
def recording(small) -> RecordingControl:
    return RecordingControl(small.maps["control"])


CONTROLS = {
    "enforce": a_control(),
    "observe": a_control(Mode.OBSERVE),
    "no_fence": a_control(fence_ns=0),
    "range": a_control(vips4=(VIP, OTHER_VIP)),
    "range_of_one": a_control(vips4=(VIP, VIP)),
    "largest": a_control(
        fence_ns=2**64 - 1,
        epoch=2**64 - 1,
        lease_ns=2**64 - 1,
        generation=2**32 - 1,
        term=2**64 - 1,
        ethertype=2**16 - 1,
    ),
    "vouched_for": a_vouching_control(),
}


@pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS)
def test_control_is_read_back_as_written(recording, control):
    recording.write(control)
    assert recording.read() == control


def test_same_epoch_is_written_at_once(recording):
    recording.write(a_control())
    recording.written.clear()
    control = a_control(Mode.OBSERVE, generation=2)
    recording.write(control)
    assert recording.written == [control]


def test_fence_is_zero_while_the_epoch_changes(recording):
    old, new = a_control(), a_control(Mode.OBSERVE, epoch=EPOCH + 1, generation=2)
    recording.write(old)
    recording.written.clear()
    recording.write(new)
    assert recording.written == [replace(old, fence_ns=0), replace(new, fence_ns=0), new]


def test_no_step_changes_epoch_and_fence_at_once(recording):
    for control in (a_control(), a_control(epoch=EPOCH + 1), a_control(epoch=0, fence_ns=0), a_control(epoch=EPOCH)):
        recording.write(control)
    pairs = itertools.pairwise((value.epoch, value.fence_ns) for value in recording.written)
    assert all(old[0] == new[0] or old[1] == new[1] for old, new in pairs)


def test_term_is_written_between_waits_and_with_the_earlier_fence(recording, monkeypatch):
    """Whichever comes first: a fence cut short before the term goes, or a term before the fence may be long."""
    monkeypatch.setattr(maps, "wait_for_running_programs", lambda: recording.written.append("wait"))
    long, short = a_control(fence_ns=9), a_control(fence_ns=5)
    for old, new in itertools.permutations([long, short, replace(long, term=3), replace(short, term=4)], 2):
        recording.write(old)
        recording.written.clear()
        recording.write(new)
        between = [replace(old, fence_ns=min(old.fence_ns, new.fence_ns)), "wait", replace(new, fence_ns=5), "wait"]
        if min(old.fence_ns, new.fence_ns) == 9:
            between[2] = new
        assert recording.written == [*(between if old.term != new.term else ()), new]


def test_no_step_changes_two_of_epoch_fence_and_term_at_once(recording):
    values = [
        a_control(epoch=epoch, fence_ns=fence_ns, term=term)
        for epoch, fence_ns, term in itertools.product((0, EPOCH), (5, 9), (0, 3))
    ]
    for old, new in itertools.permutations(values, 2):
        recording.write(old)
        recording.write(new)
    pairs = itertools.pairwise((value.epoch, value.fence_ns, value.term) for value in recording.written)
    assert max(sum(map(operator.ne, old, new)) for old, new in pairs) == 1


def raw_control(plane: Plane, *values: layout.ControlStruct) -> None:
    syscall.map_update(plane.maps["control"], bytes(4), b"".join(map(bytes, values)))


def test_control_that_was_never_written_reads_as_none(small):
    raw_control(small, *[layout.ControlStruct()] * syscall.possible_cpus())
    assert small.control.read() is None


@pytest.mark.skipif(syscall.possible_cpus() < 2, reason="needs two CPUs")
def test_control_that_differs_between_cpus_reads_as_none(small):
    cpus = syscall.possible_cpus()
    one, other = layout.ControlStruct(mode=1, generation=1), layout.ControlStruct(mode=2, generation=1)
    raw_control(small, one, *[other] * (cpus - 1))
    assert small.control.read() is None


@pytest.mark.parametrize("mode", [0, 3, 2**32 - 1])
def test_control_with_a_mode_that_is_none_reads_as_none(small, mode):
    raw_control(small, *[layout.ControlStruct(mode=mode, generation=1)] * syscall.possible_cpus())
    assert small.control.read() is None


# ---- vouching ----------------------------------------------------------------------------------------------------


class RecordingVouching(VouchingTable):
    """The real thing, and what was done in which order, to it and to the control value."""

    def __init__(self, fd, control: RecordingControl) -> None:
        super().__init__(fd)
        self.done = control.written

    def _set(self, ifindex, term) -> None:
        self.done.append((ifindex, term))
        super()._set(ifindex, term)

    def _forget(self, ifindex) -> None:
        self.done.append(ifindex)
        super()._forget(ifindex)


@pytest.fixture
def vouching(small, recording, monkeypatch) -> RecordingVouching:
    """Empty, and all waits for running programs are recorded, too."""
    table = RecordingVouching(small.maps["vouching"], recording)
    table.write({})
    waits = maps.wait_for_running_programs

    def wait() -> None:
        recording.written.append("wait")
        waits()

    monkeypatch.setattr(maps, "wait_for_running_programs", wait)
    recording.written.clear()
    return table


def test_terms_are_read_back_as_written(vouching):
    terms = {LO: TERM, 2**31: replace(OTHER_TERM, number=2**64 - 1, window_ns=2**64 - 1)}
    vouching.write(terms)
    assert vouching.read() == terms


def test_term_that_stays_is_not_touched(vouching):
    vouching.write({1: TERM, 2: TERM})
    vouching.done.clear()
    vouching.write({1: TERM, 3: TERM})
    assert vouching.done == [2, "wait", (3, TERM)]
    vouching.done.clear()
    vouching.write({1: TERM, 3: TERM})
    assert vouching.done == []


def test_term_is_replaced_by_way_of_none(vouching):
    """The kernel would use its memory again at once, under programs that still read it."""
    vouching.write({1: TERM})
    vouching.done.clear()
    vouching.write({1: OTHER_TERM})
    assert vouching.done == [1, "wait", (1, OTHER_TERM)]


def test_more_terms_than_there_is_room_for_are_refused(vouching):
    many = dict.fromkeys(range(1, layout.MAX_VOUCHING + 2), TERM)
    with pytest.raises(MapFullError, match=f"at most {layout.MAX_VOUCHING} links"):
        vouching.write(many)
    vouching.write({})


def test_control_has_a_term_before_any_link_has_and_after_none_has_any_more(vouching, recording):
    fence_ns = boot_ns() + HOUR_NS
    none, one, other = (a_control(fence_ns=fence_ns, term=term) for term in (0, TERM.number, OTHER_TERM.number))
    recording.write(none)
    recording.written.clear()

    write_term(recording, vouching, one, {1: TERM})
    assert recording.written == [none, "wait", one, "wait", one, (1, TERM)]
    recording.written.clear()

    write_term(recording, vouching, other, {1: OTHER_TERM})
    assert recording.written == [1, "wait", one, "wait", other, "wait", other, (1, OTHER_TERM)]
    recording.written.clear()

    write_term(recording, vouching, none, {})
    assert recording.written == [1, "wait", other, "wait", none, "wait", none]


def test_trial_begins_as_a_term_without_a_control_value_of_its_own(vouching, recording, small):
    write_term(recording, vouching, a_vouching_control(None), {LO: TERM})
    assert small.run(Hook.TC_INGRESS, sealed(a_ping())).action == SEND_BACK
    vouching.write({})


def test_entry_of_a_link_is_not_anothers(small):
    small.table.write({EntryKey(LO + 1, VIP): an_entry(link_mac=GUARD, primary=PRIMARY_IP)})
    assert small.run(Hook.TC_INGRESS, an_arp_request()).action != SEND_BACK
