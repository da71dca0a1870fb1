"""The digest changes with everything that the programs depend on, the geometry with what the maps depend on."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from arpguard.dataplane import source as source_module
from arpguard.dataplane.source import ProgramSource, find_source

FILES = ["arpguard.c", "arpguard.h", "arp.h", "decide.h", "facts.h", "frame.h", "ndp.h", "tc.h", "xdp.h"]


@pytest.fixture
def source(tmp_path) -> ProgramSource:
    folder = tmp_path / "bpf"
    shutil.copytree(find_source().folder, folder)
    return ProgramSource(folder)


def change(source: ProgramSource, name: str) -> None:
    path = source.folder / name
    path.write_text(path.read_text() + "/* changed */\n")


def test_copy_has_the_same_digest(source):
    assert (source.digest(), source.geometry()) == (find_source().digest(), find_source().geometry())


def test_every_file_is_known_here():
    assert sorted(path.name for path in find_source().folder.glob("*.[ch]")) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
def test_digest_changes_with_each_file(source, name):
    before = source.digest()
    change(source, name)
    assert source.digest() != before


def test_digest_changes_with_a_new_file(source):
    before = source.digest()
    (source.folder / "more.h").write_text("")
    assert source.digest() != before


@pytest.mark.parametrize("sizes", [{"max_entries": 2048}, {"ring_bytes": 4096}], ids=["max_entries", "ring_bytes"])
def test_digest_and_geometry_change_with_each_size(source, sizes):
    other = replace(source, **sizes)
    assert other.digest() != source.digest()
    assert other.geometry() != source.geometry()


def test_sizes_are_not_taken_for_one_another(source):
    one, other = (replace(source, max_entries=a, ring_bytes=b) for a, b in ((4096, 8192), (8192, 4096)))
    assert one.geometry() != other.geometry()


def test_digest_changes_with_the_kernel(source, monkeypatch):
    before, geometry = source.digest(), source.geometry()
    monkeypatch.setattr(source_module.platform, "release", lambda: "99.0")
    assert source.digest() != before
    assert source.geometry() == geometry


@pytest.mark.parametrize("name", FILES)
def test_geometry_changes_with_the_shared_header_only(source, name):
    before = source.geometry()
    change(source, name)
    assert (source.geometry() != before) == (name == "arpguard.h")


def test_compiler_is_told_where_and_how_large(source):
    flags = replace(source, max_entries=5, ring_bytes=4096).defines(Path("/sys/fs/bpf/x"))
    assert flags == [f"-I{source.folder}", '-DMAPS="/sys/fs/bpf/x"', "-DMAX_ENTRIES=5", "-DRING_BYTES=4096"]
