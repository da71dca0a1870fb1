"""Checks of this machine: the agent, the kernel, and what the guard needs of both."""

import re
from collections.abc import Iterator

from arpguard.core.checkup.findings import Finding, bad, listed, ok, shell, skip, unknown, warn
from arpguard.core.checkup.kubernetes import is_of_vouching
from arpguard.core.checkup.picture import Picture
from arpguard.core.checkup.snapshot import AgentWord, Snapshot, Unread, needed
from arpguard.core.checkup.vips import is_of_claim
from arpguard.verdict import Mode

NEEDED = ("CAP_BPF", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_PERFMON")
_OLDEST = (5, 15)
_FAST_CLOCKS = ("tsc", "arch_sys_counter")


def agent(picture: Picture) -> Iterator[Finding]:
    """Whether the configured guard is there, and what its agent says about itself."""
    guards, word = needed(picture.snapshot.guards), picture.snapshot.agent
    absent = word if isinstance(word, Unread) and not any(guard.running for guard in guards) else None
    if absent is not None and not guards:
        yield _no_guard(picture.snapshot, absent)
        return

    found = [*_without_mode(picture), *(_problems(word) if not isinstance(word, Unread) else ())]
    if absent is not None:
        found.append(_no_agent(picture.snapshot, absent))
    yield from found

    if not found:
        modes = listed(guard.mode.name.lower() for guard in guards if guard.mode is not None)
        count = sum(len(guard.entries) for guard in guards)
        yield ok(f"an agent runs; mode: {modes or Mode.OBSERVE.name.lower()}, entries: {count}")


def _no_guard(snapshot: Snapshot, absent: Unread) -> Finding:
    if not snapshot.source:
        return skip("no guard on this node, and no configuration was given")
    return bad(
        f"no guard on this node ({absent.why})",
        why=f"{snapshot.source} exists, but no agent uses it",
        fix="start the agent",
        commands=_start(snapshot),
    )


def _without_mode(picture: Picture) -> Iterator[Finding]:
    untold = [guard for guard in picture.guards if guard.mode is None]
    if untold:
        yield bad(
            f"the guard's programs are pinned at {untold[0].pin_dir}, but have no mode",
            why="every frame passes",
            fix="start the agent",
            commands=_start(picture.snapshot),
        )


def _no_agent(snapshot: Snapshot, absent: Unread) -> Finding:
    return warn(
        f"the guard is in the kernel, but no agent runs ({absent.why})",
        why="the guard stays as it is: this node stops answering for elected VIPs when its fence expires, and new "
        "links and VIPs are not guarded",
        fix="start the agent",
        commands=_start(snapshot),
    )


def _problems(word: AgentWord) -> Iterator[Finding]:
    for problem in word.problems:
        if is_of_vouching(problem) or is_of_claim(problem, word.claims):
            continue  # there is a check of it
        yield bad(problem, word.node, fix="see `arpguard status`, and the agent's log")


def _start(snapshot: Snapshot) -> tuple[str, ...]:
    """The command that starts the agent, where it is known."""
    return (snapshot.start,) if snapshot.start else ()


def kernel(picture: Picture) -> Iterator[Finding]:
    """The kernel's version, and whether it compiles BPF."""
    machine = picture.snapshot.machine
    version = _version(machine.release)

    if version and version < _OLDEST:
        yield bad(f"Linux {machine.release}", fix="the guard needs Linux 5.15 or newer")
    elif isinstance(machine.jited, Unread):
        yield unknown(f"Linux {machine.release}; the doctor cannot load a BPF program: {machine.jited.why}")
    elif not machine.jited:
        yield warn(
            f"Linux {machine.release}; BPF programs are interpreted",
            why="each frame costs several times as much CPU time",
            fix="turn the JIT compiler on",
            commands=(shell("sysctl", "-w", "net.core.bpf_jit_enable=1"),),
        )
    else:
        yield ok(f"Linux {machine.release}, BPF JIT on")


def tcx(picture: Picture) -> Iterator[Finding]:
    """How programs can be attached."""
    if needed(picture.snapshot.machine.tcx):
        yield ok("TCX links: the guard's programs run first, and outlive the agent")
    else:
        yield warn(
            "no TCX, which needs Linux 6.6: the guard attaches by clsact filters",
            why="a filter with a lower priority number runs before the guard, even if it is attached later; after a "
            "kernel upgrade so does a TCX program",
            fix="run the check foreign-programs again after you install other programs, or use a newer kernel",
        )


def bpffs(picture: Picture) -> Iterator[Finding]:
    """The file system in which the guard outlives its agent."""
    pin_dir = picture.config.bpf.pin_dir
    if picture.snapshot.machine.bpffs:
        yield ok(f"{pin_dir} is on a BPF file system")
        return
    yield warn(
        f"{pin_dir} is not on a BPF file system",
        why="the agent mounts one when it starts; in a container, that mount and the guard pinned on it are lost with "
        "the container, unless the host's BPF file system is mounted there",
        fix="mount a BPF file system",
        commands=(shell("mount", "-t", "bpf", "bpf", "/sys/fs/bpf"),),
    )


def capabilities(picture: Picture) -> Iterator[Finding]:
    """The capabilities of this process, which an agent started like it would have."""
    held = picture.snapshot.machine.capabilities
    missing = [name for name in NEEDED if name not in held]
    if not held:
        yield unknown("this process has none of the capabilities that the agent needs: run the doctor as root")
    elif missing:
        yield bad(
            f"missing: {listed(missing)}",
            why="an agent started like this doctor cannot load or attach its programs, or announce VIPs",
            fix="give the container or the service these capabilities",
        )
    else:
        yield ok(listed(NEEDED))


def clock(picture: Picture) -> Iterator[Finding]:
    """The clock that each answer compares the fence with."""
    source = needed(picture.snapshot.machine.clock)
    if source in _FAST_CLOCKS:
        yield ok(source)
    else:
        yield warn(
            source,
            why="the guard reads the clock for each frame that it answers, and this clock source is slower than tsc",
            fix="make the kernel use tsc, if it is stable on this machine (clocksource=tsc)",
        )


def _version(release: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else None
