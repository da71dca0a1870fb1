"""Mutated frames through the loaded programs, in numbers: flood.c, its files, and the comparison with the model."""

import ctypes
import random
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from arpguard.clock import boot_ns
from arpguard.dataplane import layout, syscall
from arpguard.dataplane.maps import _raw_control, _raw_entry, _raw_key, _raw_term, raw_range_key
from arpguard.model import Grants
from arpguard.verdict import Hook
from reference import Situation, respond_egress, respond_ingress
from support.frames import random_arp, random_nd, random_vouching
from support.programs.agreement import (
    assert_agrees,
    at_time_of,
    expected_outcome,
    situation_of,
    with_random_ranges,
)
from support.programs.compiling import BPF
from support.programs.prog_run import ACTIONS, DROP, DROPPED, PROGRAM, Outcome, Plane, grants_value
from support.programs.user_space import CALLED, FOLDER, MAX_ENTRIES, MAX_RANGES, build, flags

SOURCES = [FOLDER / name for name in ("flood.c", "mutate.c", "answers.c", "programs.c", "kernel.c")]
SCENES, SEEDS = 100, 1600
# As much as a test run takes in one piece: a page without what the kernel needs of it.
ROOM_TC, ROOM_XDP = 3500, 3500
_SAMPLE = struct.Struct("=5I4x4Q8x")


class FloodError(AssertionError):
    """The programs did something else in the kernel than in user space, or broke a rule."""


class SceneValue(ctypes.Structure):
    """struct scene of flood.c."""

    _fields_ = (
        ("control", layout.ControlStruct),
        ("vouching", layout.VouchingStruct),
        ("grants", layout.GrantsStruct),
        ("entries", ctypes.c_uint32),
        ("ranges", ctypes.c_uint32),
        ("keys", layout.EntryKeyStruct * MAX_ENTRIES),
        ("values", layout.EntryStruct * MAX_ENTRIES),
        ("range_keys", layout.RangeKeyStruct * MAX_RANGES),
        ("range_values", layout.EntryStruct * MAX_RANGES),
    )


@dataclass(frozen=True)
class Sample:
    """What the kernel did with a frame at `now_ns`, by the grants before it."""

    scene: int
    hook: Hook
    frame: bytes
    outcome: Outcome
    now_ns: int
    grants: Grants


def a_scene(rng: random.Random, now_ns: int) -> Situation:
    """Entries of both families; fences lie hours ahead, or have passed."""
    entries6, control = random_nd.random_maps(rng, now_ns)
    entries4, _ = random_arp.random_maps(rng, now_ns)
    entries = {**entries6, **entries4}
    ipv4 = [vip for vip in entries if vip.version == 4]
    control, ranges = with_random_ranges(rng, replace(control, vips4=(min(ipv4), max(ipv4))))
    control, term, grants = random_vouching.random_state(rng, control, now_ns)
    return situation_of(entries, control, ranges, term, grants, now_ns)


def scene_bytes(scene: Situation) -> bytes:
    value = SceneValue(layout.ControlStruct.from_buffer_copy(_raw_control(scene.control)), entries=len(scene.entries))
    value.grants = grants_value(scene.grants)
    if scene.term is not None:
        value.vouching = layout.VouchingStruct.from_buffer_copy(_raw_term(scene.term))
    for slot, (key, entry) in enumerate(scene.entries.items()):
        value.keys[slot] = layout.EntryKeyStruct.from_buffer_copy(_raw_key(key))
        value.values[slot] = layout.EntryStruct.from_buffer_copy(_raw_entry(entry, slot))
    value.ranges = len(scene.ranges)
    for at, (network, entry) in enumerate(scene.ranges.items()):
        value.range_keys[at] = layout.RangeKeyStruct.from_buffer_copy(raw_range_key(network))
        value.range_values[at] = layout.EntryStruct.from_buffer_copy(_raw_entry(entry, MAX_ENTRIES + at))
    return bytes(value)


def some_seeds(rng: random.Random, number: int, now_ns: int) -> Iterator[tuple[int, bytes]]:
    """(whether it goes out, frame), both families and vouching in turn; `now_ns` is when they come."""
    sources = [(0, random_arp.a_stimulus), (1, random_arp.a_stimulus)]
    sources += [(int(hook is Hook.TC_EGRESS), random_nd.stimuli_for(hook)) for hook in (Hook.XDP, Hook.TC_EGRESS)]
    sources.append((0, lambda rng: random_vouching.a_stimulus(rng, now_ns)))
    for at in range(number):
        outgoing, stimulus = sources[at % len(sources)]
        yield outgoing, stimulus(rng)


class Flood:
    """The driver, built into `folder`, with maps and frames made of `seed`; in user space it has `source`.

    `short`: a run for which inlining takes longer than it saves.
    """

    def __init__(self, folder: Path, plane: Plane, seed: int, source: Path = BPF, *, short: bool = False) -> None:
        self._folder, self._plane, self._seed = folder, plane, seed
        self._driver = build(folder / "flood", SOURCES, ["-O1", *([CALLED] if short else []), *flags(source)])
        rng, now_ns = random.Random(seed), boot_ns()
        self._scenes = [a_scene(rng, now_ns) for _ in range(SCENES)]
        (folder / "scenes").write_bytes(b"".join(map(scene_bytes, self._scenes)))
        seeds = (struct.pack("=II", outgoing, len(frame)) + frame for outgoing, frame in some_seeds(rng, SEEDS, now_ns))
        (folder / "seeds").write_bytes(b"".join(seeds))

    def run(self, frames: int, samples: int) -> str:
        """Sends so many frames, and compares about so many of them with the model; returns what the driver tells.

        Raises FloodError or AssertionError with the first frame of which not all say the same.
        """
        plane = self._plane
        for table in (plane.table, plane.ranges):  # what a run before this one wrote is a stranger to them
            left = table.read()
            table.delete([*left.entries, *left.strangers])
        programs = [plane.programs[PROGRAM[hook]].number for hook in sorted(PROGRAM)]
        maps = [
            plane.maps[name].number
            for name in ("entries", "ranges", "control", "counters", "totals", "vouching", "grants")
        ]
        every = max(1, frames // samples) | 1  # odd: not always the same hook
        numbers = [*programs, *maps, syscall.possible_cpus(), frames, self._seed, ROOM_TC, ROOM_XDP, every]
        files = [str(self._folder / name) for name in ("scenes", "seeds", "samples")]
        done = subprocess.run(
            [str(self._driver), *files, *map(str, numbers)],
            pass_fds=programs + maps,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise FloodError(f"ARPGUARD_SEED={self._seed}\n{done.stderr}")
        compared = sum(self._compare(sample) for sample in self._samples())
        return f"{done.stdout}{compared} compared with the model\n"

    def _samples(self) -> Iterator[Sample]:
        data = (self._folder / "samples").read_bytes()
        at = 0
        while at < len(data):
            scene, hook, code, length, left, now_ns, *grants = _SAMPLE.unpack_from(data, at)
            start = at + _SAMPLE.size
            frame, gone_on = data[start : start + length], data[start + length : start + length + left]
            at = start + length + left
            action = ACTIONS[Hook(hook)][code]
            outcome = DROPPED if action == DROP else Outcome(action, gone_on)
            yield Sample(scene, Hook(hook), frame, outcome, now_ns, Grants(*grants))

    def _compare(self, sample: Sample) -> int:
        situation = replace(self._scenes[sample.scene], grants=sample.grants, now_ns=sample.now_ns)
        respond = respond_egress if sample.hook is Hook.TC_EGRESS else respond_ingress
        response = respond(sample.frame, situation)
        expected = self._plane.shown(expected_outcome(response, sample.hook, sample.frame))
        assert_agrees(at_time_of(situation, response, sample.outcome), expected, sample.frame, situation)
        return 1
