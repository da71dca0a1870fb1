"""What the keepalived of this node says of its VRRP instances, and what that means for VIPs that follow one.

keepalived writes a line into a FIFO (`vrrp_notify_fifo`) whenever an instance changes its state:

    INSTANCE "VI_1" MASTER 100

It opens the FIFO for reading and writing, without blocking: it never waits for a reader, it holds the FIFO open for as
long as it lives, and what finds no room is lost. The kernel keeps the lines until the last process closes the FIFO. So
the agent reads without taking anything out: the lines are there for the next agent as long as keepalived lives, and
are gone when it dies meanwhile. What was there before and is missing now shows that another program reads the FIFO.

When the FIFO fills up, the agent writes what it knows behind the lines (`KEPT "VI_1" MASTER`), and then takes the lines
out. keepalived may write between the two, so its own lines count more than any that is kept, wherever they stand.
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

_LINE = re.compile(r'(INSTANCE|GROUP|KEPT) "([^"\n]*)" ([A-Z_]+)(?: -?[0-9]+)?')
_TIDY_SHARE = 4  # a quarter of the FIFO in use: time to tidy up
_FULL_SHARE = 8  # less than an eighth left: lines are packed into pages, so that keepalived may have found no room
_SHOWN = 60


class VrrpState(Enum):
    """What an instance is. The values are keepalived's words; STOP and DELETED mean that it is no more."""

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

UNREAD = "the agent has not looked yet"
GONE = "keepalived does not run, or does not have `vrrp_notify_fifo {fifo}` in its configuration"
SHARED = "another program reads {fifo} too, and took lines out: give arpguard a FIFO of its own"
OVERFLOWN = "{fifo} was full, so keepalived could not write to it: reload keepalived"
UNREADABLE = "{fifo} has a line that is not about VRRP, {line}: use vrrp_notify_fifo, not notify_fifo"
UNSAID = (
    "keepalived runs and has not said it: see that its configuration has this vrrp_instance, and "
    "fifo_write_vrrp_states_on_reload; then reload keepalived"
)
A_GROUP = "that is a vrrp_sync_group: name one of its instances"


@dataclass(frozen=True, slots=True)
class InstanceStates:
    """The states of keepalived's instances, as far as they are known now. `trouble`: why others are not."""

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
    """All that is in the FIFO, whether a process has it open for writing, and for how many bytes it has room."""

    content: bytes
    has_writer: bool
    capacity: int


class Tidying(NamedTuple):
    """What is to be done to the FIFO: `kept` is written to it first; then its first `taken` bytes are taken out."""

    kept: bytes = b""
    taken: int = 0


class FifoReading:
    """Follows what is in a FIFO from look to look. `fifo` is its path, for messages."""

    def __init__(self, fifo: str) -> None:
        self._fifo = fifo
        self._left = b""  # what the last look left in the FIFO
        self.known = InstanceStates()

    def fail(self, trouble: str) -> None:
        """There is no FIFO that could be read."""
        self._left = b""
        self.known = InstanceStates(trouble=trouble)

    def take(self, look: FifoLook) -> Tidying:
        """Takes note of a look; what is to be done to the FIFO now."""
        content = look.content
        if not look.has_writer:
            return self._forget(GONE, content)
        if not content.startswith(self._left):
            return self._forget(SHARED, content)
        if len(content) > look.capacity - look.capacity // _FULL_SHARE:
            return self._forget(OVERFLOWN, content)

        lines = content.decode("utf-8", "replace").splitlines()
        wrong = next((line for line in lines if not _is_readable(line)), None)
        if wrong is not None:
            return self._forget(UNREADABLE, content, repr(wrong[:_SHOWN]))

        self._learn(lines)
        if len(content) <= look.capacity // _TIDY_SHARE:
            self._left = content
            return Tidying()
        self._left = b""
        return Tidying(self._kept(), len(content))

    def _forget(self, trouble: str, content: bytes, line: str = "") -> Tidying:
        """Nothing that was said counts any more, for the next agent neither."""
        self.fail(trouble.format(fifo=self._fifo, line=line))
        return Tidying(taken=len(content))

    def _learn(self, lines: Iterable[str]) -> None:
        said: dict[str, dict[str, str]] = {"INSTANCE": {}, "GROUP": {}, "KEPT": {}}
        for match in filter(None, map(_LINE.fullmatch, lines)):
            said[match[1]][match[2]] = match[3]

        states = {name: _STATES[word] for name, word in {**said["KEPT"], **said["INSTANCE"]}.items()}
        # A keepalived that runs again, or for the first time, has only to speak.
        is_over = self.known.trouble in (UNREAD, GONE.format(fifo=self._fifo))
        trouble = "" if is_over else self.known.trouble
        self.known = InstanceStates(MappingProxyType(states), frozenset(said["GROUP"]), trouble)

    def _kept(self) -> bytes:
        return "".join(f'KEPT "{name}" {state.value}\n' for name, state in self.known.states.items()).encode()


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


def owner_step(owner: Owner, node: str, known: InstanceStates) -> str:
    """Why this node is to answer for a VIP that follows an instance, or why not."""
    instance, unknown = owner.instance, known.why_unknown(owner.instance)
    if unknown:
        return f"it is not known whether {instance} is MASTER on {node}, so this node is silent: {unknown}"
    if known.states[instance] is VrrpState.MASTER:
        return f"keepalived runs on {node} and says that {instance} is MASTER, so what it answers is let through"
    return f"keepalived says that {instance} is {known.word(instance)} on {node}, so this node is silent"


def unknown_states(followed: Mapping[Address, str], known: InstanceStates) -> list[str]:
    """The problem that the states of instances which VIPs follow are not known."""
    return [
        f"keepalived: the state of {instance} is unknown, so this node does not answer for {some(vips)}: {why}"
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
        "MASTER, and arpguard does not choose between them; mend the path of their advertisements, or end one"
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
