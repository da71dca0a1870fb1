"""Programs and maps over restarts and upgrades: what is reopened, what is made anew, what is removed."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from arpguard.dataplane import bpffs, loader, syscall
from arpguard.dataplane.source import MAPS, PROGRAMS, ProgramSource, find_source
from arpguard.errors import DataPlaneError
from arpguard.model import EntryKey
from support.frames.builders import VIP, a_control, an_entry
from support.programs.prog_run import LO, Plane, a_pin_dir

pytestmark = pytest.mark.bpf

SMALL = replace(find_source(), max_entries=16)


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
def no_compiler(monkeypatch):
    def refuse(*_args):
        raise AssertionError("compiled, though the pins are of this source")

    monkeypatch.setattr(loader, "_compile", refuse)


def a_source(folder: Path, change: str = "", **sizes) -> ProgramSource:
    """A copy of the source, with something appended to decide.h."""
    shutil.copytree(SMALL.folder, folder)
    path = folder / "decide.h"
    path.write_text(path.read_text() + change)
    return replace(SMALL, folder=folder, **sizes)


def map_ids(loaded: loader.Loaded) -> dict[str, int]:
    return {name: syscall.map_info(fd).id for name, fd in loaded.maps.items()}


def program_ids(loaded: loader.Loaded) -> dict[str, int]:
    return {name: syscall.program_info(fd).id for name, fd in loaded.programs.items()}


def test_first_load_compiles(tmp_path):
    with a_pin_dir("loader-first") as pin_dir:
        loaded = loader.load(pin_dir, SMALL)
        assert not loaded.warm
        assert loaded.programs.keys() == set(PROGRAMS)
        assert loaded.maps.keys() == set(MAPS)


def test_second_load_reopens_without_compiling(pin_dir, no_compiler):
    first, second = loader.load(pin_dir, SMALL), loader.load(pin_dir, SMALL)
    assert second.warm
    assert second.digest == SMALL.digest()
    assert (program_ids(second), map_ids(second)) == (program_ids(first), map_ids(first))


def test_programs_keep_their_names(pin_dir):
    loaded = loader.load(pin_dir, SMALL)
    assert {syscall.program_info(fd).name for fd in loaded.programs.values()} == set(PROGRAMS)


def test_changed_program_keeps_the_maps(pin_dir, tmp_path):
    """An upgrade: the entries survive it."""
    old = loader.load(pin_dir, SMALL)
    plane = Plane(pin_dir, old)
    plane.set({VIP: an_entry()}, a_control())
    newer = a_source(tmp_path / "bpf", "/* newer */\n")
    new = loader.load(pin_dir, newer)
    assert not new.warm
    assert map_ids(new) == map_ids(old)
    assert not loader.has_other_maps(pin_dir, newer)
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


def test_other_builds_stay_until_they_are_discarded(pin_dir, no_compiler, tmp_path):
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


def test_programs_that_are_half_pinned_are_compiled_again(pin_dir):
    """As after a crash while unpinning."""
    (pin_dir / f"programs-{SMALL.digest()}" / "egress_tc").unlink()
    assert not loader.load(pin_dir, SMALL).warm
    assert loader.load(pin_dir, SMALL).warm


def test_leftovers_of_an_interrupted_build_do_not_matter(pin_dir):
    bpffs.remove(pin_dir / f"programs-{SMALL.digest()}")
    (pin_dir / f"programs-{SMALL.digest()}-building").mkdir()
    assert not loader.load(pin_dir, SMALL).warm
    assert not (pin_dir / f"programs-{SMALL.digest()}-building").exists()


def test_what_somebody_unpinned_is_pinned_again(monkeypatch):
    with a_pin_dir("loader-unpinned") as pin_dir:
        loaded = loader.load(pin_dir, SMALL)
        assert loader.keep_pinned(pin_dir, SMALL, loaded) == 0
        for folder in list(pin_dir.iterdir()):
            bpffs.remove(folder)
        assert loader.keep_pinned(pin_dir, SMALL, loaded) == len(MAPS) + len(PROGRAMS)
        bpffs.remove(pin_dir)
        assert loader.keep_pinned(pin_dir, SMALL, loaded) == len(MAPS) + len(PROGRAMS)
        assert pin_dir.stat().st_mode & 0o777 == 0o700
        monkeypatch.setattr(loader, "_compile", None)
        again = loader.load(pin_dir, SMALL)
    assert (program_ids(again), map_ids(again)) == (program_ids(loaded), map_ids(loaded))


def test_source_that_does_not_compile_is_one_line_of_error(pin_dir, tmp_path):
    broken = a_source(tmp_path / "bpf", "#error this is wrong\n")
    with pytest.raises(DataPlaneError, match=r"could not be loaded: .*this is wrong") as raised:
        loader.load(pin_dir, broken)
    assert "\n" not in str(raised.value)
    assert not (pin_dir / f"programs-{broken.digest()}").exists()


def test_map_of_another_size_under_our_name_is_refused(tmp_path):
    with a_pin_dir("loader-foreign") as pin_dir:
        loaded = loader.load(pin_dir, SMALL)
        entries = pin_dir / f"maps-{SMALL.geometry()}" / "entries"
        entries.unlink()
        syscall.obj_pin(loaded.maps["totals"], str(entries))
        with pytest.raises(DataPlaneError, match="is no map of this arpguard"):
            loader.load(pin_dir, SMALL)


def test_maps_can_be_opened_by_others(pin_dir):
    assert loader.open_maps(pin_dir).keys() == set(MAPS)


@pytest.mark.parametrize("name", ["empty", "absent"])
def test_opening_maps_where_there_are_none_says_what_to_do(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataPlaneError, match="start `arpguard agent`"):
        loader.open_maps(tmp_path / name)


# ---- the pin directory -------------------------------------------------------------------------------------------


def test_pin_directory_is_private_to_root(pin_dir):
    assert pin_dir.stat().st_mode & 0o777 == 0o700
    assert bpffs.is_bpffs(pin_dir)


def test_ordinary_folder_is_no_bpffs(tmp_path):
    assert not bpffs.is_bpffs(tmp_path)


def test_second_agent_is_refused_the_pin_directory(pin_dir):
    held = bpffs.lock(pin_dir)
    with pytest.raises(DataPlaneError, match="another arpguard agent is running"):
        bpffs.lock(pin_dir)
    held.close()
    bpffs.lock(pin_dir).close()


def test_removing_what_is_not_there_does_nothing(tmp_path):
    bpffs.remove(tmp_path / "absent")
