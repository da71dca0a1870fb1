"""bpf/arpguard.h says the same as verdict.py and layout.py: every number, every field, every offset."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import reference
from arpguard.dataplane import layout
from arpguard.verdict import REASON_COUNT, Hook, Kind, Mode, Reason, Verdict, Vouched
from support.programs.compiling import BPF

HEADER = (BPF / "arpguard.h").read_text()
ENUMS = {"verdict": Verdict, "reason": Reason, "kind": Kind, "mode": Mode, "hook": Hook, "vouched": Vouched}
COUNTS = {"reason": REASON_COUNT, "vouched": len(Vouched)}
STRUCTS = {
    "entry_key": layout.EntryKeyStruct,
    "range_key": layout.RangeKeyStruct,
    "entry": layout.EntryStruct,
    "control": layout.ControlStruct,
    "vouching": layout.VouchingStruct,
    "grants": layout.GrantsStruct,
    "counters": layout.CountersStruct,
    "totals": layout.Totals,
    "event": layout.EventValue,
}
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def c_blocks(text: str, word: str) -> dict[str, str]:
    """The bodies of `enum NAME {...}` or `struct NAME {...}` by name."""
    return dict(re.findall(rf"^{word} (\w+) \{{(.*?)^\}}", without_comments(text), flags=re.DOTALL | re.MULTILINE))


def c_enum(body: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"(\w+) = (\d+)", body)}


def c_fields(body: str) -> list[str]:
    """Field names: the word before `[`s and `;` or `,`."""
    declared = [field for line in body.split(";") for field in line.split(",")]
    return [re.sub(r"(\[[^]]*\])+\s*$", "", field).split()[-1] for field in declared if field.strip()]


def python_enum(name: str) -> dict[str, int]:
    """What the C enum has to be: the Python members, the zero that Python has no name for, and the count."""
    prefix = name.upper() + "_"
    members = {prefix + member.name: int(member) for member in ENUMS[name]}
    if 0 not in members.values():
        members[prefix + "UNSET"] = 0
    return members | ({prefix + "COUNT": COUNTS[name]} if name in COUNTS else {})


def c_layouts(header: Path, work: Path) -> dict[str, dict[str, list[int]]]:
    """Struct -> {field: [offset, size], "": [0, size of the struct]}, as gcc lays them out."""
    lines = []
    for name, body in c_blocks(header.read_text(), "struct").items():
        lines.append(f'printf("{name} - 0 %zu\\n", sizeof(struct {name}));')
        lines += [
            f'printf("{name} {field} %zu %zu\\n", offsetof(struct {name}, {field}), '
            f"sizeof(((struct {name} *)0)->{field}));"
            for field in c_fields(body)
        ]
    source = work / "layout.c"
    includes = "#include <stddef.h>\n#include <stdio.h>\n#include <linux/types.h>\n"
    source.write_text(f'{includes}#include "{header}"\nint main(void) {{\n' + "\n".join(lines) + "\n}\n")
    subprocess.run(["gcc", "-o", work / "layout", source], check=True)
    printed = subprocess.run([work / "layout"], check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, list[int]]] = {}
    for line in printed.splitlines():
        struct, field, offset, size = line.split()
        found.setdefault(struct, {})[field.replace("-", "")] = [int(offset), int(size)]
    return found


def python_layouts() -> dict[str, dict[str, list[int]]]:
    found = {}
    for name, struct in STRUCTS.items():
        fields = {field: getattr(struct, field) for field, *_ in struct._fields_}
        found[name] = {"": [0, ctypes.sizeof(struct)]} | {
            field: [place.offset, place.size] for field, place in fields.items()
        }
    return found


@pytest.mark.parametrize("name", ENUMS)
def test_enum_is_the_same_in_both_languages(name):
    assert c_enum(c_blocks(HEADER, "enum")[name]) == python_enum(name)


def test_no_enum_is_without_a_mirror():
    assert c_blocks(HEADER, "enum").keys() == ENUMS.keys()


@needs_gcc
def test_structs_are_the_same_in_both_languages(tmp_path):
    assert c_layouts(BPF / "arpguard.h", tmp_path) == python_layouts()


@needs_gcc
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("__u8 link_mac[6];", "__u8 link_mac[8];"),
        ("__u64 epoch;\n\t__u32 slot;", "__u32 slot;\n\t__u64 epoch;"),
        ("__u8 kind;\n\t__u8 mode;", "__u8 mode;\n\t__u8 kind;"),
        ("__u64 lost;", "__u64 lost;\n\t__u64 more;"),
        ("\t__u32 generation;", "\t__u32 generated;"),
    ],
    ids=["size", "order", "order_of_bytes", "field_more", "name"],
)
def test_struct_that_differs_is_noticed(tmp_path, old, new):
    assert HEADER.count(old), "the header no longer has what this test changes"
    header = tmp_path / "arpguard.h"
    header.write_text(HEADER.replace(old, new))
    assert c_layouts(header, tmp_path) != python_layouts()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("reason", "REASON_FENCED = 8", "REASON_FENCED = 30"),
        (
            "reason",
            f"REASON_COUNT = {REASON_COUNT}",
            f"REASON_NEW = {REASON_COUNT},\n\tREASON_COUNT = {REASON_COUNT + 1}",
        ),
        ("kind", "KIND_DELEGATED", "KIND_LENT"),
    ],
    ids=["number", "member_more", "name"],
)
def test_enum_that_differs_is_noticed(name, old, new):
    assert HEADER.count(old), "the header no longer has what this test changes"
    assert c_enum(c_blocks(HEADER.replace(old, new), "enum")[name]) != python_enum(name)


def c_define(text: str, name: str) -> int:
    return int(re.search(rf"^#define {name} (\w+)", text, flags=re.MULTILINE)[1], 0)


def test_constants_are_the_same_in_both_languages():
    assert c_define(HEADER, "ENTRY_HOLD") == layout.ENTRY_HOLD
    assert c_define(HEADER, "MAX_RANGES") == layout.MAX_RANGES
    assert c_define(HEADER, "MAX_VOUCHING") == layout.MAX_VOUCHING
    assert c_define((BPF / "frame.h").read_text(), "MAX_TAGS") == reference.MAX_TAGS


def test_every_reason_has_a_meaning_of_its_own():
    meanings = [reason.meaning for reason in Reason]
    assert all(meanings)
    assert len(set(meanings)) == len(meanings)


def test_reasons_fit_into_the_bits_of_the_rate_limit():
    assert 8 * layout.CountersStruct.reported.size >= REASON_COUNT
