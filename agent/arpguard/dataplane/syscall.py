"""bpf(2) by ctypes: the calls that the agent makes on maps, programs and links.

Numbers and layouts are those of linux/bpf.h (UAPI). Every function raises OSError with the kernel's errno.
File descriptors are plain ints; `Fd` closes them.
"""

import ctypes
import errno
import os
import platform
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

_SYSCALL_NUMBER = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}.get(platform.machine())
_ATTR_SIZE = 168

MAP_CREATE, MAP_LOOKUP_ELEM, MAP_UPDATE_ELEM, MAP_DELETE_ELEM = 0, 1, 2, 3
PROG_LOAD, OBJ_PIN, OBJ_GET, PROG_TEST_RUN, PROG_GET_FD_BY_ID = 5, 6, 7, 10, 13
OBJ_GET_INFO_BY_FD, PROG_QUERY, BTF_LOAD, MAP_LOOKUP_BATCH, MAP_UPDATE_BATCH = 15, 16, 18, 24, 26
LINK_CREATE, LINK_UPDATE, LINK_DETACH = 28, 29, 34

SCHED_CLS, XDP = 3, 6
PROGRAM_TYPES = {"sched_cls": SCHED_CLS, "xdp": XDP}
MAP_TYPES = {"hash": 1, "array": 2, "percpu_array": 6, "lpm_trie": 11, "ringbuf": 27}
ATTACH_XDP, ATTACH_TCX_INGRESS, ATTACH_TCX_EGRESS = 37, 46, 47
F_BEFORE = 8
XDP_FLAGS_DRV_MODE = 4
TEST_XDP_LIVE_FRAMES = 2

_LOAD_ATTEMPTS = 5  # as many as libbpf's
_LOG_BYTES = 1 << 16
_LOG_WITHOUT_STEPS = 4  # BPF_LOG_STATS: the verifier's objection and a summary, not each instruction that it followed
_SUMMARY = re.compile("processed |verification time|stack depth|insns_state_max")

_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attr: bytes) -> tuple[int, ctypes.Array[ctypes.c_char]]:
    result, buffer, code = _call(command, attr)
    if result < 0:
        raise OSError(code, os.strerror(code))
    return result, buffer


def _call(command: int, attr: bytes) -> tuple[int, ctypes.Array[ctypes.c_char], int]:
    """(result, the attr as the kernel left it, errno)."""
    if _SYSCALL_NUMBER is None:
        raise OSError(errno.ENOSYS, f"arpguard does not know the system call number of bpf(2) on {platform.machine()}")
    buffer = ctypes.create_string_buffer(attr, _ATTR_SIZE)
    result = _libc.syscall(_SYSCALL_NUMBER, command, buffer, _ATTR_SIZE)
    return result, buffer, ctypes.get_errno()


def _address(data: "bytes | ctypes.Array[ctypes.c_char] | ctypes.Array[ctypes.c_uint32]") -> int:
    """Where the kernel reads bytes, which a NUL follows, or writes into a buffer. Keep either until it has.

    Bytes are not copied into a buffer: ctypes makes a type for each length of one, and remembers every length for good.
    """
    if isinstance(data, bytes):
        return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
    return ctypes.addressof(data)


class Fd:
    """A file descriptor that is closed once, at the latest when nobody holds it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        """Closes it; closing again does nothing."""
        if self.number >= 0:
            os.close(self.number)
            self.number = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def obj_get(path: str) -> Fd:
    """Opens what is pinned at `path`; FileNotFoundError when nothing is."""
    name = os.fsencode(path)
    return Fd(_bpf(OBJ_GET, struct.pack("=QII", _address(name), 0, 0))[0])


def obj_pin(fd: Fd, path: str) -> None:
    """Pins a map, program or link at `path` in a bpffs; FileExistsError when something is pinned there."""
    name = os.fsencode(path)
    _bpf(OBJ_PIN, struct.pack("=QII", _address(name), fd.number, 0))


# ---- maps --------------------------------------------------------------------------------------------------------


def btf_load(encoded: bytes) -> Fd:
    """Tells the kernel of types."""
    return Fd(_bpf(BTF_LOAD, struct.pack("=QQI", _address(encoded), 0, len(encoded)))[0])


UNDESCRIBED = (0, 0, 0)


def map_create(name: str, kind: int, sizes: tuple[int, int, int], flags: int, types: tuple[int, int, int]) -> Fd:
    """Makes a map. `sizes`: of a key, of a value, of the map; `types`: a BTF, and the key's and the value's number."""
    attr = struct.pack("=IIIIIII16sIIII", kind, *sizes, flags, 0, 0, name.encode(), 0, *types)
    return Fd(_bpf(MAP_CREATE, attr)[0])


def map_lookup(fd: Fd, key: bytes, value_size: int) -> bytes | None:
    """The value of `key` (for per-CPU maps: all CPUs' values, each padded to 8 bytes), or None."""
    value = ctypes.create_string_buffer(value_size)
    try:
        _bpf(MAP_LOOKUP_ELEM, struct.pack("=IxxxxQQQ", fd.number, _address(key), _address(value), 0))
    except FileNotFoundError:
        return None
    return value.raw


def map_update(fd: Fd, key: bytes, value: bytes, flags: int = 0) -> None:
    """Sets `key` to `value`, replacing the old value as a whole (BPF_ANY)."""
    _bpf(MAP_UPDATE_ELEM, struct.pack("=IxxxxQQQ", fd.number, _address(key), _address(value), flags))


def map_delete(fd: Fd, key: bytes) -> None:
    """Deletes `key`, if it is there."""
    with suppress(FileNotFoundError):
        _bpf(MAP_DELETE_ELEM, struct.pack("=IxxxxQQQ", fd.number, _address(key), 0, 0))


def map_update_batch(fd: Fd, items: Sequence[tuple[bytes, bytes]]) -> None:
    """Sets some keys in one call (of a hash map kernel 5.6, of a trie 5.13); on error some of them may be set."""
    keys = b"".join(key for key, _ in items)
    values = b"".join(value for _, value in items)
    attr = struct.pack("=QQQQIIQQ", 0, 0, _address(keys), _address(values), len(items), fd.number, 0, 0)
    _bpf(MAP_UPDATE_BATCH, attr)


def map_items(fd: Fd, key_size: int, value_size: int, chunk: int = 4096) -> Iterator[tuple[bytes, bytes]]:
    """All (key, value) of a hash map or a trie, read in batches.

    A key that is deleted meanwhile may be missing, and one that is added may be there or not.
    """
    state_in, state_out = ctypes.create_string_buffer(max(key_size, 8)), ctypes.create_string_buffer(max(key_size, 8))
    first = True

    while True:
        keys = ctypes.create_string_buffer(key_size * chunk)
        values = ctypes.create_string_buffer(value_size * chunk)
        attr = struct.pack(
            "=QQQQIIQQ",
            0 if first else _address(state_in),
            _address(state_out),
            _address(keys),
            _address(values),
            chunk,
            fd.number,
            0,
            0,
        )

        done, full, count = _lookup_batch(attr)
        if full:  # one hash bucket holds more than a whole chunk
            chunk *= 2
            continue

        raw_keys, raw_values = keys.raw, values.raw
        for i in range(count):
            yield raw_keys[i * key_size : (i + 1) * key_size], raw_values[i * value_size : (i + 1) * value_size]

        if done:
            return
        state_in.raw, first = state_out.raw, False


def _lookup_batch(attr: bytes) -> tuple[bool, bool, int]:
    """(whether that was the last batch, whether the chunk was too small, how many were read)."""
    result, buffer, code = _call(MAP_LOOKUP_BATCH, attr)
    count = struct.unpack_from("=I", buffer.raw, 32)[0]
    if result >= 0:
        return False, False, count
    if code == errno.ENOENT:
        return True, False, count
    if code == errno.ENOSPC:
        return False, True, 0
    raise OSError(code, os.strerror(code))


def possible_cpus() -> int:
    """How many values a per-CPU map has (/sys/devices/system/cpu/possible)."""
    with open("/sys/devices/system/cpu/possible", encoding="ascii") as file:
        return int(file.read().strip().split("-")[-1].split(",")[-1]) + 1


# ---- programs and links ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """`id` is the kernel's, `name` has at most 15 characters; `jited`: compiled."""

    id: int
    name: str
    jited: bool


@dataclass(frozen=True, slots=True)
class LinkInfo:
    """A bpf_link: `ifindex` is 0 once its device is gone."""

    id: int
    program_id: int
    ifindex: int


@dataclass(frozen=True, slots=True)
class MapInfo:
    """A map's geometry, sizes in bytes."""

    id: int
    key_size: int
    value_size: int
    max_entries: int


@dataclass(frozen=True, slots=True)
class TestRun:
    """What BPF_PROG_TEST_RUN gave: the return code, the frame afterwards, and nanoseconds per run."""

    retval: int
    frame: bytes
    duration_ns: int


def _info(fd: Fd, size: int) -> bytes:
    info = ctypes.create_string_buffer(size)
    _bpf(OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", fd.number, size, _address(info)))
    return info.raw


_PROGRAM_INFO_BYTES = 80  # of struct bpf_prog_info, up to the name


def program_info(fd: Fd) -> ProgramInfo:
    """What the kernel knows of a program."""
    raw = _info(fd, _PROGRAM_INFO_BYTES)
    return ProgramInfo(
        id=struct.unpack_from("=I", raw, 4)[0],
        name=raw[64:80].split(b"\0")[0].decode(),
        jited=struct.unpack_from("=I", raw, 16)[0] > 0,
    )


def program_maps(fd: Fd) -> tuple[int, ...]:
    """The kernel's numbers of the maps that a program uses."""
    room = 64  # BPF's own limit for a program, MAX_USED_MAPS
    numbers = (ctypes.c_uint32 * room)()
    info = ctypes.create_string_buffer(_PROGRAM_INFO_BYTES)
    struct.pack_into("=IQ", info, 52, room, _address(numbers))
    _bpf(OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", fd.number, len(info), _address(info)))
    (count,) = struct.unpack_from("=I", info, 52)
    return tuple(numbers[:count])


def link_info(fd: Fd) -> LinkInfo:
    """What the kernel knows of an XDP or TCX link."""
    _, link_id, program_id, _, ifindex = struct.unpack_from("=IIIII", _info(fd, 32))
    return LinkInfo(id=link_id, program_id=program_id, ifindex=ifindex)


def map_info(fd: Fd) -> MapInfo:
    """What the kernel knows of a map."""
    _, map_id, key_size, value_size, max_entries = struct.unpack_from("=IIIII", _info(fd, 48))
    return MapInfo(id=map_id, key_size=key_size, value_size=value_size, max_entries=max_entries)


class VerifierError(OSError):
    """The kernel's verifier refuses a program; `strerror` is its last word."""


def program_load(kind: int, code: bytes, name: str = "") -> Fd:
    """Loads a program; VerifierError with the reason when the verifier gives one.

    The verifier gives up (EAGAIN) when a signal comes in, or when a profiler or the cgroup freezer stops the thread;
    this then tries again.
    """
    licence = b"GPL"
    log = ctypes.create_string_buffer(_LOG_BYTES)
    attr = struct.pack(
        "=IIQQIIQII16s",
        kind,
        len(code) // 8,
        _address(code),
        _address(licence),
        _LOG_WITHOUT_STEPS,
        _LOG_BYTES,
        _address(log),
        0,
        0,
        name.encode(),
    )
    try:
        return Fd(_load(attr))
    except OSError as error:
        said = [line for line in log.value.decode(errors="replace").splitlines() if not _SUMMARY.match(line)]
        if said:
            raise VerifierError(error.errno, said[-1]) from None
        raise


def _load(attr: bytes) -> int:
    for _ in range(_LOAD_ATTEMPTS - 1):
        with suppress(BlockingIOError):
            return _bpf(PROG_LOAD, attr)[0]
    return _bpf(PROG_LOAD, attr)[0]


def program_by_id(program_id: int) -> Fd:
    """Opens a loaded program; FileNotFoundError when it is gone."""
    return Fd(_bpf(PROG_GET_FD_BY_ID, struct.pack("=I", program_id))[0])


def link_create(program: Fd, ifindex: int, attach_type: int, flags: int) -> Fd:
    """Attaches a program to a device; it stays while the link is open or pinned."""
    return Fd(_bpf(LINK_CREATE, struct.pack("=IIII", program.number, ifindex, attach_type, flags))[0])


def link_update(link: Fd, program: Fd) -> None:
    """Replaces a link's program, atomically."""
    _bpf(LINK_UPDATE, struct.pack("=IIII", link.number, program.number, 0, 0))


def link_detach(link: Fd) -> None:
    """Detaches a link from its device, also while it is still pinned or open elsewhere."""
    _bpf(LINK_DETACH, struct.pack("=I", link.number))


def program_query(ifindex: int, attach_type: int) -> list[int]:
    """Ids of the TCX programs on a device, in the order they run (kernel 6.6)."""
    capacity = 64
    ids = (ctypes.c_uint32 * capacity)()
    attr = struct.pack("=IIIIQIIQQQQ", ifindex, attach_type, 0, 0, _address(ids), capacity, 0, 0, 0, 0, 0)
    _, result = _bpf(PROG_QUERY, attr)
    return list(ids[: struct.unpack_from("=I", result.raw, 24)[0]])


def program_test_run(
    program: Fd, frame: bytes, *, context: bytes = b"", repeat: int = 0, flags: int = 0, out_size: int = 2048
) -> TestRun:
    """Runs a loaded program on `frame` (BPF_PROG_TEST_RUN).

    `context` is a struct xdp_md or __sk_buff; the kernel takes only some of its fields.
    The frame is not reset between repeats.
    """
    frame_out = ctypes.create_string_buffer(out_size)
    live = bool(flags & TEST_XDP_LIVE_FRAMES)

    attr = struct.pack(
        "=IIIIQQIIIIQQII",
        program.number,
        0,
        len(frame),
        0 if live else out_size,
        _address(frame),
        0 if live else _address(frame_out),
        repeat,
        0,
        len(context),
        0,
        _address(context) if context else 0,
        0,
        flags,
        0,
    )

    _, result = _bpf(PROG_TEST_RUN, attr)
    retval, size_out, duration = (struct.unpack_from("=I", result.raw, at)[0] for at in (4, 12, 36))
    return TestRun(retval=retval, frame=frame_out.raw[:size_out], duration_ns=duration)
