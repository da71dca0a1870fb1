"""What is shipped is of these sources; the digest tells programs apart, and the geometry maps."""

import json
import struct
from dataclasses import replace

import pytest

from arpguard.dataplane import build as build_module
from arpguard.dataplane.build import CONFIGURED, MAPS, PROGRAMS, SHIPPED, Build, read_build
from arpguard.dataplane.layout import MAX_RANGES
from arpguard_build.compiler import SOURCE, source_digest
from support.programs.compiling import another_build

SHIPPED_BUILD = read_build()
CHANGES = {
    "type": {"type": "hash"},
    "key_size": {"key_size": 8},
    "value_size": {"value_size": 8},
    "max_entries": {"max_entries": 2},
    "flags": {"flags": 1},
}


def test_shipped_programs_are_of_these_sources():
    """When this fails: `make programs`."""
    assert json.loads(SHIPPED.read_text())["source"] == source_digest(SOURCE)


def test_no_line_of_the_sources_is_longer_than_the_agents_are():
    lines = [
        f"{source.name}:{number}"
        for source in sorted(SOURCE.glob("*.[ch]"))
        for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120
    ]

    assert lines == []


def test_source_digest_is_of_every_file(tmp_path):
    (tmp_path / "a.c").write_text("x")
    digests = {source_digest(tmp_path)}
    (tmp_path / "b.h").write_text("y")
    digests.add(source_digest(tmp_path))
    (tmp_path / "a.c").write_text("xy")
    digests.add(source_digest(tmp_path))
    (tmp_path / "b.h").write_text("")
    digests.add(source_digest(tmp_path))
    assert len(digests) == 4


def test_shipped_programs_are_all_there():
    assert list(SHIPPED_BUILD.programs) == list(PROGRAMS)
    assert list(SHIPPED_BUILD.shapes) == list(MAPS)


def test_descriptors_of_maps_are_put_into_the_instructions_that_load_them():
    descriptors = {name: number for number, name in enumerate(MAPS, 1000)}
    for name, program in SHIPPED_BUILD.programs.items():
        whole = program.with_maps(descriptors)
        instructions = [whole[at : at + 8] for at in range(0, len(whole), 8)]
        loads = {number: each[4:] for number, each in enumerate(instructions) if each[0] == 0x18 and each[1] >> 4 == 1}
        wanted = {
            number: struct.pack("=i", descriptors[each])
            for each, numbers in program.map_loads.items()
            for number in numbers
        }
        assert loads == wanted
        assert loads, name
        assert len(whole) == len(program.code)


def test_configured_sizes_are_those_of_the_maps():
    shapes = replace(SHIPPED_BUILD, max_entries=5, ring_bytes=4096).maps()
    sizes = {name: shape.max_entries for name, shape in shapes.items()}
    assert {name: sizes[name] for name in CONFIGURED} == {"entries": 5, "counters": 5 + MAX_RANGES, "events": 4096}
    assert (sizes["ranges"], sizes["totals"], sizes["control"]) == (MAX_RANGES, 1, 1)


@pytest.mark.parametrize("sizes", [{"max_entries": 2048}, {"ring_bytes": 4096}], ids=["max_entries", "ring_bytes"])
def test_digest_and_geometry_change_with_each_size(sizes):
    other = replace(SHIPPED_BUILD, **sizes)
    assert other.digest() != SHIPPED_BUILD.digest()
    assert other.geometry() != SHIPPED_BUILD.geometry()


def test_sizes_are_not_taken_for_one_another():
    one, other = (replace(SHIPPED_BUILD, max_entries=a, ring_bytes=b) for a, b in ((4096, 8192), (8192, 4096)))
    assert one.geometry() != other.geometry()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_geometry_changes_with_each_property_of_a_map(change):
    shapes = {**SHIPPED_BUILD.shapes, "control": replace(SHIPPED_BUILD.shapes["control"], **change)}
    assert replace(SHIPPED_BUILD, shapes=shapes).geometry() != SHIPPED_BUILD.geometry()


def test_digest_and_geometry_change_with_the_shared_header():
    """What a number in a value means may have changed, at the same sizes."""
    other = replace(SHIPPED_BUILD, layout="0" * 16)
    assert other.geometry() != SHIPPED_BUILD.geometry()
    assert other.digest() != SHIPPED_BUILD.digest()


def test_digest_changes_with_the_kernel(monkeypatch):
    before, geometry = SHIPPED_BUILD.digest(), SHIPPED_BUILD.geometry()
    monkeypatch.setattr(build_module.platform, "release", lambda: "99.0")
    assert SHIPPED_BUILD.digest() != before
    assert SHIPPED_BUILD.geometry() == geometry


def with_program(name: str, **changes) -> Build:
    programs = {**SHIPPED_BUILD.programs, name: replace(SHIPPED_BUILD.programs[name], **changes)}
    return replace(SHIPPED_BUILD, programs=programs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_digest_changes_with_each_program_and_geometry_does_not(name):
    code = SHIPPED_BUILD.programs[name].code
    others = [with_program(name, code=code + code[-8:]), with_program(name, type="other"), another_build(SHIPPED_BUILD)]
    assert len({each.digest() for each in (SHIPPED_BUILD, *others)}) == 4
    assert {each.geometry() for each in others} == {SHIPPED_BUILD.geometry()}
