"""Programs and maps over restarts and upgrades: what is reopened, what is made anew, what is removed."""

import json
import os
import signal
import struct
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from arpguard.clock import boot_ns
from arpguard.dataplane import bpffs, loader, syscall
from arpguard.dataplane.build import MAPS, PROGRAMS, Program, read_build
from arpguard.errors import DataPlaneError
from arpguard.model import EntryKey
from arpguard.runtime.kernel.pinned import Pinned
from arpguard.verdict import Hook
from support.frames.builders import HOUR_NS, VIP, a_control, an_arp_request, an_entry
from support.frames.vouch_builders import a_vouching_control, some_grants
from support.netns.waiting import HUNG_S
from support.programs.compiling import another_build
from support.programs.prog_run import DROPPED, LO, Plane, a_pin_dir

pytestmark = pytest.mark.bpf

SMALL = replace(read_build(), max_entries=16)
NEWER = another_build(SMALL)


@pytest.fixture(scope="module")
def loaded_once():
    """A pin directory in which SMALL has been loaded."""
    with a_pin_dir("loader") as pin_dir:
        loader.load(pin_dir, SMALL)
        yield pin_dir


@pytest.fixture
def pin_dir(loaded_once):
    loader.discard_others(loaded_once, SMALL)
    return loaded_once


@pytest.fixture
def no_loading(monkeypatch):
    def refuse(*_args):
        raise AssertionError("loaded, though the pins are of this build")

    monkeypatch.setattr(loader, "_load", refuse)


def map_ids(loaded: loader.Loaded) -> dict[str, int]:
    return {name: syscall.map_info(fd).id for name, fd in loaded.maps.items()}


def program_ids(loaded: loader.Loaded) -> dict[str, int]:
    return {name: syscall.program_info(fd).id for name, fd in loaded.programs.items()}


def test_first_load_is_of_all_programs_and_maps():
    with a_pin_dir("loader-first") as pin_dir:
        loaded = loader.load(pin_dir, SMALL)
        assert not loaded.warm
        assert loaded.programs.keys() == set(PROGRAMS)
        assert loaded.maps.keys() == set(MAPS)


def test_second_load_reopens_what_is_pinned(pin_dir, no_loading):
    first, second = loader.load(pin_dir, SMALL), loader.load(pin_dir, SMALL)
    assert second.warm
    assert (program_ids(second), map_ids(second)) == (program_ids(first), map_ids(first))


def test_programs_keep_their_names(pin_dir):
    loaded = loader.load(pin_dir, SMALL)
    assert {syscall.program_info(fd).name for fd in loaded.programs.values()} == set(PROGRAMS)


def test_changed_program_keeps_the_maps(pin_dir):
    """An upgrade: the entries survive it."""
    old = loader.load(pin_dir, SMALL)
    plane = Plane(pin_dir, old)
    plane.set({VIP: an_entry()}, a_control())
    new = loader.load(pin_dir, NEWER)
    assert not new.warm
    assert map_ids(new) == map_ids(old)
    assert not loader.has_other_maps(pin_dir, NEWER)
    assert program_ids(new).items().isdisjoint(program_ids(old).items())
    assert Plane(pin_dir, new).table.read().entries == {EntryKey(LO, VIP): an_entry()}


@pytest.mark.parametrize("sizes", [{"max_entries": 32}, {"ring_bytes": 8192}], ids=["max_entries", "ring_bytes"])
def test_other_geometry_makes_new_maps(pin_dir, sizes):
    old = loader.load(pin_dir, SMALL)
    new = loader.load(pin_dir, replace(SMALL, **sizes))
    assert not new.warm
    assert map_ids(new).items().isdisjoint(map_ids(old).items())
    field, value = next(iter(sizes.items()))
    assert loader.has_other_maps(pin_dir, replace(SMALL, **sizes))
    changed = {"max_entries": "entries", "ring_bytes": "events"}[field]
    assert syscall.map_info(new.maps[changed]).max_entries == value


@pytest.mark.parametrize("name", ["entries", "control", "vouching", "grants"])
def test_where_one_map_is_missing_all_are_made_anew(name):
    with a_pin_dir("loader-missing") as pin_dir:
        plane = Plane(pin_dir, loader.load(pin_dir, SMALL))
        plane.set({VIP: an_entry()}, a_control())
        (pin_dir / f"maps-{SMALL.geometry()}" / name).unlink()

        new = loader.load(pin_dir, SMALL)
        assert not new.warm
        assert {syscall.map_info(fd).id for fd in plane.maps.values()}.isdisjoint(map_ids(new).values())
        assert Plane(pin_dir, new).table.read().entries == {}
        pinned = Pinned(pin_dir, SMALL, new)
        assert (pinned.was_told, pinned.has_others) == (False, True)

        pinned.discard_others()
        assert not loader.has_other_maps(pin_dir, SMALL)
        assert map_ids(loader.load(pin_dir, SMALL)) == map_ids(new)


def test_a_lost_map_of_grants_does_not_unbind_the_kernel():
    """V10: the programs that are attached keep the map; the next agent keeps no entry and no epoch."""
    with a_pin_dir("loader-grants") as pin_dir:
        plane = Plane(pin_dir, loader.load(pin_dir, SMALL))
        control = a_vouching_control(fence_ns=boot_ns() + HOUR_NS, lease_ns=2 * HOUR_NS)
        plane.set({VIP: an_entry(epoch=control.epoch)}, control, grants=some_grants(1))
        assert plane.counted(Hook.XDP, an_arp_request())[0] == DROPPED, "its voucher's fence has passed"

        (pin_dir / f"maps-{SMALL.geometry()}" / "grants").unlink()
        next_one = loader.load(pin_dir, SMALL)
        assert plane.counted(Hook.XDP, an_arp_request())[0] == DROPPED
        assert not Pinned(pin_dir, SMALL, next_one).was_told
        assert Plane(pin_dir, next_one).table.read().entries == {}


def test_other_builds_stay_until_they_are_discarded(pin_dir, no_loading):
    other = pin_dir / "programs-0123456789abcdef"
    other.mkdir()
    loader.load(pin_dir, SMALL)
    assert other.is_dir()
    loader.discard_others(pin_dir, SMALL)
    kept = {path.name for path in pin_dir.iterdir()}
    assert kept == {f"maps-{SMALL.geometry()}", f"programs-{SMALL.digest()}"}


def test_discarding_leaves_links_alone(pin_dir):
    links = pin_dir / "links"
    links.mkdir()
    loader.discard_others(pin_dir, SMALL)
    assert links.is_dir()
    bpffs.remove(links)


def test_programs_that_are_half_pinned_are_loaded_again(pin_dir):
    """As after a crash while unpinning."""
    (pin_dir / f"programs-{SMALL.digest()}" / "egress_tc").unlink()
    assert not loader.load(pin_dir, SMALL).warm
    assert loader.load(pin_dir, SMALL).warm


def test_leftovers_of_an_interrupted_load_do_not_matter(pin_dir):
    bpffs.remove(pin_dir / f"programs-{SMALL.digest()}")
    (pin_dir / f"programs-{SMALL.digest()}-loading").mkdir()
    assert not loader.load(pin_dir, SMALL).warm
    assert not (pin_dir / f"programs-{SMALL.digest()}-loading").exists()


def test_what_somebody_unpinned_is_pinned_again(monkeypatch):
    with a_pin_dir("loader-unpinned") as pin_dir:
        loaded = loader.load(pin_dir, SMALL)
        pins = loader.pins_of(pin_dir, SMALL, loaded)
        assert loader.keep_pinned(pin_dir, pins) == 0
        for folder in list(pin_dir.iterdir()):
            bpffs.remove(folder)
        assert loader.keep_pinned(pin_dir, pins) == len(MAPS) + len(PROGRAMS)
        bpffs.remove(pin_dir)
        assert loader.keep_pinned(pin_dir, pins) == len(MAPS) + len(PROGRAMS)
        assert pin_dir.stat().st_mode & 0o777 == 0o700
        monkeypatch.setattr(loader, "_load", None)
        again = loader.load(pin_dir, SMALL)
    assert (program_ids(again), map_ids(again)) == (program_ids(loaded), map_ids(loaded))


def test_names_are_those_that_bpftool_shows(pin_dir):
    """And values have fields instead of bytes."""
    plane = Plane(pin_dir, loader.load(pin_dir, SMALL))
    plane.set({VIP: an_entry()}, a_control(epoch=7))
    folder = pin_dir / f"maps-{SMALL.geometry()}"
    for name in MAPS:
        assert bpftool("map", "show", "pinned", folder / name)["name"] == name
    (entry,) = bpftool("map", "dump", "pinned", folder / "entries")
    assert entry["formatted"]["key"]["ifindex"] == LO
    assert entry["formatted"]["value"]["link_mac"] == list(an_entry().link_mac.octets)
    (control,) = bpftool("map", "dump", "pinned", folder / "control")
    assert {each["value"]["epoch"] for each in control["formatted"]["values"]} == {7}


def bpftool(*words):
    done = subprocess.run(["bpftool", "--json", *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_types_that_the_kernel_does_not_take_are_done_without(monkeypatch):
    def refuse(_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(syscall, "btf_load", refuse)
    assert loader.load_unpinned(SMALL).maps.keys() == set(MAPS)


def test_what_is_not_pinned_is_nobody_elses(pin_dir):
    pinned, own = loader.load(pin_dir, SMALL), loader.load_unpinned(SMALL)
    assert own.programs.keys() == set(PROGRAMS)
    assert map_ids(own).items().isdisjoint(map_ids(pinned).items())
    assert program_ids(own).items().isdisjoint(program_ids(pinned).items())


RETURN = struct.pack("=BBhi", 0x95, 0, 0, 0)
READ_ELSEWHERE = struct.pack("=BBhi", 0x79, 0x10, 0x7000, 0) + RETURN  # r0 = *(u64 *)(r1 + 0x7000)
REFUSALS = {
    "nothing returned": (RETURN, "R0 !read_ok"),
    "read elsewhere": (READ_ELSEWHERE, "invalid bpf_context access"),
}


@pytest.mark.parametrize(("code", "words"), REFUSALS.values(), ids=REFUSALS)
def test_refusal_of_the_verifier_is_one_line_with_its_last_word(code, words):
    broken = replace(SMALL, programs={**SMALL.programs, "egress_tc": Program("sched_cls", code, {})})
    with a_pin_dir("loader-refused") as pin_dir:
        with pytest.raises(DataPlaneError, match=f"verifier refuses the program egress_tc: {words}") as raised:
            loader.load(pin_dir, broken)
        assert "\n" not in str(raised.value)
        assert not [path for path in pin_dir.rglob("*") if not path.is_dir()], "nothing is pinned"


@pytest.mark.parametrize(
    ("code", "words"),
    [(1, "refused to load BPF programs"), (38, "this kernel has no BPF"), (12, "room for 16 (Cannot allocate memory)")],
)
def test_map_that_the_kernel_refuses_is_said_why(monkeypatch, code, words):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(syscall, "map_create", refuse)
    with pytest.raises(DataPlaneError) as raised:
        loader.load_unpinned(SMALL)
    assert words in str(raised.value)


def test_program_that_the_kernel_refuses_without_a_word_is_said_why(monkeypatch):
    def refuse(*_):
        raise OSError(7, os.strerror(7))

    monkeypatch.setattr(syscall, "program_load", refuse)
    with pytest.raises(DataPlaneError, match=r"refuses to load the program `ingress_tc` \(Argument list too long\)"):
        loader.load_unpinned(SMALL)


def test_program_is_loaded_although_signals_interrupt_the_verifier():
    """As a profiler's do, to which the kernel answers EAGAIN."""
    heard: list[int] = []

    def hear(number: int, _: object) -> None:
        heard.append(number)
        if len(heard) == 3:
            signal.setitimer(signal.ITIMER_REAL, 0)

    maps = loader.load_unpinned(SMALL, []).maps
    code = SMALL.programs["ingress_tc"].with_maps({name: fd.number for name, fd in maps.items()})
    before = signal.signal(signal.SIGALRM, hear)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        syscall.program_load(syscall.SCHED_CLS, code).close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard, "the verifier takes longer than the first signal"


def test_map_of_another_size_under_our_name_is_refused(tmp_path):
    with a_pin_dir("loader-foreign") as pin_dir:
        loaded = loader.load(pin_dir, SMALL)
        entries = pin_dir / f"maps-{SMALL.geometry()}" / "entries"
        entries.unlink()
        syscall.obj_pin(loaded.maps["totals"], str(entries))
        with pytest.raises(DataPlaneError, match="is not a map of this version of arpguard"):
            loader.load(pin_dir, SMALL)


def test_maps_can_be_opened_by_others(pin_dir):
    assert loader.open_maps(pin_dir).keys() == set(MAPS)


def uses(programs: dict[str, syscall.Fd], maps: dict[str, syscall.Fd]) -> bool:
    ids = {syscall.map_info(fd).id for fd in maps.values()}
    return all(set(syscall.program_maps(program)) <= ids for program in programs.values())


@pytest.fixture
def two_layouts():
    """A pin directory with two builds: the second has the newest programs, the first the newest folder of maps."""
    larger = replace(SMALL, max_entries=32)
    with a_pin_dir("loader-layouts") as pin_dir:
        first, second = loader.load(pin_dir, SMALL), loader.load(pin_dir, larger)
        (pin_dir / f"maps-{SMALL.geometry()}" / "events").unlink()
        assert loader.keep_pinned(pin_dir, loader.pins_of(pin_dir, SMALL, first)) == 1
        (pin_dir / f"programs-{SMALL.digest()}-loading").mkdir()  # by an agent that is about to start
        yield pin_dir, first, second


def test_programs_are_opened_with_the_maps_that_they_use(two_layouts):
    pin_dir, _, second = two_layouts
    programs, maps = loader.open_guard(pin_dir, attached=())
    assert syscall.program_info(programs["ingress_tc"]).id == program_ids(second)["ingress_tc"]
    assert uses(programs, maps)


@pytest.mark.parametrize("place", [1, 2])
def test_of_two_builds_the_one_that_is_attached_is_opened(two_layouts, place):
    pin_dir, build = two_layouts[0], two_layouts[place]
    programs, maps = loader.open_guard(pin_dir, {program_ids(build)["egress_tc"]})
    assert {name: syscall.program_info(fd).id for name, fd in programs.items()} == program_ids(build)
    assert {name: syscall.map_info(fd).id for name, fd in maps.items()} == map_ids(build)


def test_programs_whose_maps_are_gone_are_not_opened(two_layouts):
    pin_dir, first, _ = two_layouts
    bpffs.remove(pin_dir / f"maps-{SMALL.geometry()}")
    with pytest.raises(DataPlaneError, match="start `arpguard agent`"):
        loader.open_guard(pin_dir, {program_ids(first)["egress_tc"]})


@pytest.mark.parametrize("name", ["empty", "absent"])
def test_opening_maps_where_there_are_none_says_what_to_do(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataPlaneError, match="start `arpguard agent`"):
        loader.open_maps(tmp_path / name)
    with pytest.raises(DataPlaneError, match="start `arpguard agent`"):
        loader.open_guard(tmp_path / name, attached=())


# ---- the pin directory -------------------------------------------------------------------------------------------


def test_pin_directory_is_private_to_root(pin_dir):
    assert pin_dir.stat().st_mode & 0o777 == 0o700
    assert bpffs.is_bpffs(pin_dir)


def test_two_that_find_no_bpffs_at_the_same_time_mount_one(tmp_path, monkeypatch):
    pin_dir, both, look = tmp_path / "pins", threading.Barrier(2, timeout=HUNG_S), bpffs.is_bpffs

    def looked(path: Path) -> bool:
        found = look(path)
        if path == tmp_path:
            both.wait()
        return found

    monkeypatch.setattr(bpffs, "is_bpffs", looked)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(bpffs.prepare, [pin_dir, pin_dir]))

    mounted = [line for line in Path("/proc/self/mounts").read_text().splitlines() if f" {pin_dir} " in line]
    for _ in mounted:
        subprocess.run(["umount", pin_dir], check=True)
    assert len(mounted) == 1


def test_ordinary_folder_is_no_bpffs(tmp_path):
    assert not bpffs.is_bpffs(tmp_path)


def test_second_agent_is_refused_the_pin_directory(pin_dir):
    held = bpffs.lock(pin_dir)
    with pytest.raises(DataPlaneError, match="another arpguard agent is using"):
        bpffs.lock(pin_dir)
    held.close()
    bpffs.lock(pin_dir).close()


def test_removing_what_is_not_there_does_nothing(tmp_path):
    bpffs.remove(tmp_path / "absent")
