"""What this node's keepalived reports of its VRRP instances, and what that means for VIPs that follow an instance.

keepalived writes a line into a FIFO (`vrrp_notify_fifo`) whenever an instance changes its state:

    INSTANCE "VI_1" MASTER 100

It opens the FIFO for reading and writing, without blocking: it never waits for a reader, it holds the FIFO open for as
long as it lives, and lines that do not fit are lost. The kernel keeps the lines until the last process closes the FIFO.
So the agent reads without taking anything out: the lines are there for the next agent as long as keepalived lives, and
lines that have vanished show that another program reads the FIFO.

Only what the process that has the FIFO open said itself counts. A reload keeps that process: it closes the FIFO for a
moment, opens it again, and says nothing of instances that stay MASTER (to 2.4.3 at least;
`fifo_write_vrrp_states_on_reload` is for all others). So what a process said before it closed the FIFO counts again
once it has had it open for `SETTLE_NS` and said nothing else; it is kept in a file, too, for an agent that starts after
that. Another process may say nothing for seconds, until its `track_script` has run, and nothing is known until it does.
If the agent cannot see which process has the FIFO open, it assumes another one each time.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from arpguard.addresses import Address
from arpguard.core.auditing import Audited, AuditFinding
from arpguard.core.bounding import some
from arpguard.model import Owner, OwnerKind, Vip
from arpguard.units import NS_PER_S

SETTLE_NS = NS_PER_S // 10  # a reload takes milliseconds, from opening the FIFO to its lines

_LINE = re.compile(r'(INSTANCE|GROUP) "([^"\n]*)" ([A-Z_]+)(?: -?[0-9]+)?')
_SEEN = re.compile(r"SEEN ([0-9]+:[0-9]+) ([0-9]+)")
_TIDY_SHARE = 4  # a quarter of the FIFO in use: time to take lines out
_FULL_SHARE = 8  # less than an eighth left: lines are packed into pages, so that keepalived may have found no room
_SHOWN = 60


class VrrpState(Enum):
    """An instance's state, in keepalived's words. STOP and DELETED: keepalived no longer runs the instance."""

    MASTER = "MASTER"
    BACKUP = "BACKUP"
    FAULT = "FAULT"
    STOP = "STOP"
    DELETED = "DELETED"


# Lines about other events say the state as well.
_STATES = {
    **{state.value: state for state in VrrpState},
    "MASTER_RX_LOWER_PRI": VrrpState.MASTER,
    "MASTER_PRIORITY": VrrpState.MASTER,
    "BACKUP_PRIORITY": VrrpState.BACKUP,
}

UNREAD = "the agent has not looked for keepalived yet"
GONE = "keepalived is not running, or its configuration lacks `vrrp_notify_fifo {fifo}`"
SHARED = (
    "another program reads {fifo} too, and took lines from it: give arpguard a FIFO of its own, and restart keepalived"
)
SEVERAL = (
    "{count} programs have {fifo} open for writing: give each keepalived a FIFO of its own, and restart the one that "
    "arpguard follows"
)
OVERFLOWN = "{fifo} was full, so keepalived may have been unable to write to it: restart keepalived"
UNREADABLE = "{fifo} has a line that is not about VRRP, {line}: use vrrp_notify_fifo, not notify_fifo"
UNSAID = (
    "keepalived is running but has not reported this instance: check that its configuration has this vrrp_instance; "
    "if so, restart keepalived"
)
SILENT = ", so this node does not answer for {vips}"
UNCHANGED = (
    "; until the agent knows everything that it has to guard, this node treats {vips} as it did before the agent "
    "started"
)
_STILL = (
    "the agent does not yet know everything that it has to guard: until then, this node treats the VIP as it did "
    "before the agent started"
)
A_GROUP = "this is the name of a vrrp_sync_group: name one of its instances instead"


@dataclass(frozen=True, slots=True)
class InstanceStates:
    """The states of keepalived's instances, as far as known now. `trouble`: why the other states are not known."""

    states: Mapping[str, VrrpState] = field(default_factory=lambda: MappingProxyType({}))
    groups: frozenset[str] = frozenset()
    trouble: str = UNREAD

    def why_unknown(self, instance: str) -> str:
        """Why the state of an instance is not known; empty if it is."""
        if instance in self.states:
            return ""
        return self.trouble or (A_GROUP if instance in self.groups else UNSAID)

    def word(self, instance: str) -> str:
        """The state of an instance in a word."""
        state = self.states.get(instance)
        return state.value if state else "unknown"


class FifoLook(NamedTuple):
    """What is in the FIFO, which processes have it open for writing, and for how many bytes it has room.

    `mtime_ns`: when something was written last. `writers`: the processes that have it open for writing, each by its
    number and when it began, as far as the agent can see them; a child of one does not count. `was_closed`: whether a
    writer closed it since the last look, be it open again or not.
    """

    content: bytes
    has_writer: bool
    capacity: int
    mtime_ns: int
    writers: tuple[str, ...] = ()
    was_closed: bool = False


class FifoReading:
    """Follows what is in a FIFO from look to look. `fifo` is its path, for messages.

    `remembered`: what to write down for the next agent; at first, what the previous agent wrote down.
    """

    def __init__(self, fifo: str, remembered: str = "") -> None:
        self._fifo = fifo
        self._left = b""  # what the last look left in the FIFO
        self._before = _states_in(remembered.splitlines())  # said before, and in the FIFO no longer
        self._said: dict[str, VrrpState] = {}  # by what is in it
        self._trusted_ns: int | None = None  # from when on `_before` counts; None: the FIFO was closed
        self._writer, self._mtime_ns = _seen_in(remembered)  # at the last look
        self._has_looked = False  # or that was another agent
        self._heard_ns = 0  # when there was something in the FIFO last
        self.known = InstanceStates()
        self.remembered = remembered

    def fail(self, trouble: str) -> None:
        """Forgets every state: the agent cannot read the FIFO, or cannot trust what is in it."""
        self._left, self._before, self._said, self.remembered = b"", {}, {}, ""
        self.known = InstanceStates(trouble=trouble)

    def replaced(self) -> None:
        """Notes that another FIFO is at the path: a keepalived that made it makes a new one when it is reloaded."""
        self._before |= self._said
        self._left, self._said, self._trusted_ns, self._mtime_ns = b"", {}, None, None

    def take(self, look: FifoLook, now_ns: int) -> int:
        """Takes note of a look at a moment of the boot clock; returns how many bytes to take out of the FIFO.

        Before that, `remembered` has to be written down.
        """
        is_same_writer, damage = self._is_same_writer(look), self._damage(look, now_ns)
        was_closed = look.was_closed or self._is_of_another(look)
        self._has_looked, self._mtime_ns = True, look.mtime_ns
        self._heard_ns = now_ns if look.content else self._heard_ns
        if look.has_writer:
            self._writer = look.writers[0] if len(look.writers) == 1 else ""
        if damage:
            self.fail(damage)
            return len(look.content)

        if not look.has_writer:
            self._close(_states_in(_lines(look.content)))
            return len(look.content)

        if self._trusted_ns is None or was_closed:
            self._trusted_ns = now_ns + SETTLE_NS
            self._before = self._before if is_same_writer else {}
        if was_closed:
            self._reopened(look.content, is_same_writer=is_same_writer)
            return len(look.content)
        return self._follow(look, now_ns)

    def _follow(self, look: FifoLook, now_ns: int) -> int:
        """The same process has had the FIFO open since the last look."""
        lines = _lines(look.content)
        self._said = said = _states_in(lines)
        is_settled = self._trusted_ns is not None and now_ns >= self._trusted_ns
        trouble = "" if self.known.trouble in (UNREAD, self._gone) else self.known.trouble
        self.known = InstanceStates(
            MappingProxyType(self._before | said if is_settled else said), _groups_in(lines), trouble
        )
        self._remember()

        if is_settled and len(look.content) > look.capacity // _TIDY_SHARE:
            self._before |= said
            self._left = b""
            return len(look.content)
        self._left = look.content
        return 0

    def _reopened(self, content: bytes, *, is_same_writer: bool) -> None:
        """The FIFO was closed and opened again since the last look: the new lines are from before that, or after."""
        if is_same_writer:
            self._before |= _states_in(_lines(content))
        else:
            new = _states_in(_lines(content[len(self._left) :]))
            self._before = {name: state for name, state in new.items() if state is not VrrpState.MASTER}
        self._left, self._said = b"", {}
        self.known = InstanceStates()
        self._remember()

    def _close(self, said: Mapping[str, VrrpState]) -> None:
        """No process has the FIFO open: keepalived is being reloaded, or it is gone."""
        self._before |= said
        self._left, self._said, self._trusted_ns = b"", {}, None
        self.known = InstanceStates(trouble=self._gone)
        self._remember()

    def _is_same_writer(self, look: FifoLook) -> bool:
        """Whether the process that had the FIFO open at the last look has it open now.

        What it wrote while no agent ran may be lost, if it closed the FIFO then.
        """
        was_missed = not self._has_looked and look.mtime_ns != self._mtime_ns
        return not was_missed and look.writers == (self._writer,)

    def _is_of_another(self, look: FifoLook) -> bool:
        """Whether another process has the FIFO open now, and lines of the one before it are still there.

        A process that is killed may close the FIFO only after the next one has opened it.
        """
        was_there = self._trusted_ns is not None if self._has_looked else look.mtime_ns == self._mtime_ns
        return was_there and bool(look.writers) and look.writers != (self._writer,)

    def _was_robbed(self, look: FifoLook, now_ns: int) -> bool:
        """Whether something was written into the empty FIFO, and is not there.

        The kernel wakes readers of a line just before it sets the time of the write.
        """
        was_written = self._has_looked and self._mtime_ns not in (None, look.mtime_ns)
        return was_written and not look.content and now_ns >= self._heard_ns + SETTLE_NS

    @property
    def _gone(self) -> str:
        return GONE.format(fifo=self._fifo)

    def _damage(self, look: FifoLook, now_ns: int) -> str:
        """Why nothing in the FIFO can be relied on; empty if it can."""
        if len(look.writers) > 1:
            return SEVERAL.format(fifo=self._fifo, count=len(look.writers))
        if not look.content.startswith(self._left) or self._was_robbed(look, now_ns):
            return SHARED.format(fifo=self._fifo)
        if len(look.content) > look.capacity - look.capacity // _FULL_SHARE:
            return OVERFLOWN.format(fifo=self._fifo)
        wrong = next((line for line in _lines(look.content) if not _is_readable(line)), None)
        return UNREADABLE.format(fifo=self._fifo, line=repr(wrong[:_SHOWN])) if wrong is not None else ""

    def _remember(self) -> None:
        states = self._before | self._said
        seen = f"SEEN {self._writer} {self._mtime_ns}\n" if self._writer else ""
        self.remembered = seen + "".join(f'INSTANCE "{name}" {state.value}\n' for name, state in states.items())


def _seen_in(remembered: str) -> tuple[str, int | None]:
    """The writer and the time of its last line, of what was written down; empty if it does not say them."""
    match = _SEEN.match(remembered)
    return (match[1], int(match[2])) if match else ("", None)


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", "replace").splitlines()


def _states_in(lines: Iterable[str]) -> dict[str, VrrpState]:
    found = ((match[2], match[3]) for match in map(_LINE.fullmatch, lines) if match and match[1] == "INSTANCE")
    return {name: _STATES[word] for name, word in found if word in _STATES}


def _groups_in(lines: Iterable[str]) -> frozenset[str]:
    return frozenset(match[2] for match in map(_LINE.fullmatch, lines) if match and match[1] == "GROUP")


def _is_readable(line: str) -> bool:
    match = _LINE.fullmatch(line)
    return match is not None and (match[1] == "GROUP" or match[3] in _STATES)


# ---- VIPs ----


def followers(vips: Mapping[Address, Vip]) -> dict[Address, str]:
    """The VIPs that follow an instance, each with its name."""
    return {at: vip.owner.instance for at, vip in vips.items() if _follows(vip)}


def resolved(vip: Vip, node: str, known: InstanceStates) -> Vip:
    """The VIP with this node as its owner if it follows an instance that is MASTER here."""
    is_master = known.states.get(vip.owner.instance) is VrrpState.MASTER
    return replace(vip, owner=replace(vip.owner, node=node)) if is_master and _follows(vip) else vip


def owner_shown(owner: Owner, known: InstanceStates) -> str:
    """An owner for lists, with the state of the instance if it is one."""
    return f"{owner} ({known.word(owner.instance)})" if owner.kind is OwnerKind.KEEPALIVED else str(owner)


def owner_step(owner: Owner, node: str, known: InstanceStates, *, waits: bool) -> str:
    """Why this node is to answer for a VIP that follows an instance, or why not.

    `waits`: the agent changes nothing in the kernel yet.
    """
    instance, unknown = owner.instance, known.why_unknown(owner.instance)
    if waits and unknown:
        return f"the state of {instance} on {node} is unknown: {unknown}; {_STILL}"
    if waits:
        return f"keepalived says that {instance} is {known.word(instance)} on {node}, but {_STILL}"
    if unknown:
        return f"the state of {instance} on {node} is unknown, so this node is silent: {unknown}"
    if known.states[instance] is VrrpState.MASTER:
        return (
            f"keepalived runs on {node} and says that {instance} is MASTER, so the guard there passes answers for the "
            "VIP"
        )
    return f"keepalived says that {instance} is {known.word(instance)} on {node}, so this node is silent"


def unknown_states(followed: Mapping[Address, str], known: InstanceStates, *, waits: bool) -> list[str]:
    """The problem that the states of instances which VIPs follow are not known.

    `waits`: the agent changes nothing in the kernel yet.
    """
    so = UNCHANGED if waits else SILENT
    return [
        f"keepalived: the state of {instance} is unknown ({why}){so.format(vips=some(vips))}"
        for instance, vips in _by_instance(followed)
        if (why := known.why_unknown(instance))
    ]


def splits(followed: Mapping[Address, str], known: InstanceStates, wrong: Iterable[Audited]) -> list[str]:
    """The problem that an instance is MASTER here, and the audit found that another host answers as well."""
    others: dict[Address, str] = {}
    for audited in wrong:
        if audited.finding is AuditFinding.SEVERAL and audited.expected.here:
            others[audited.key.vip] = some([str(answer.mac) for answer in audited.answers])

    return [
        f"keepalived: {instance} is MASTER here, and {others[vips[0]]} answers for {some(vips)} too: two routers are "
        "MASTER, and arpguard does not choose between them; let their VRRP advertisements reach each other, or stop one"
        for instance, addresses in _by_instance(followed)
        if known.states.get(instance) is VrrpState.MASTER and (vips := [at for at in addresses if at in others])
    ]


def _follows(vip: Vip) -> bool:
    return vip.owner.kind is OwnerKind.KEEPALIVED


def _by_instance(followed: Mapping[Address, str]) -> Iterable[tuple[str, list[Address]]]:
    instances: dict[str, list[Address]] = {}
    for address, instance in followed.items():
        instances.setdefault(instance, []).append(address)
    return sorted(instances.items())
