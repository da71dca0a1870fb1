"""What a foreign hand may do to the guard of a node: somebody who may write its maps and pins (root, or CAP_BPF).

`CLOSING`: the kernel gets less than it may do, or a fence that no renewal can have set. It is silent at once, and
the agent puts it right.
`OPENING`: frames pass the guard, or are not counted any more, until the agent has put it right. Meanwhile the kernel
is on its own, and would answer for what is bound there: so the VIPs are not.

What cannot be made good: an owned entry of the present epoch together with a fence within the lease is what the agent
itself writes, and the kernel believes it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.dataplane import bpffs, loader, syscall
from arpguard.dataplane.attach import read_pins
from arpguard.errors import DataPlaneError
from arpguard.model import NodeControl
from arpguard.units import NS_PER_S
from arpguard.verdict import Hook, Kind, Mode
from arpguard_lab.cluster.bench import KubeBench
from arpguard_lab.cluster.topology import KubeAgent
from arpguard_lab.topology import Host

_FAR_NS = 3600 * NS_PER_S
_SLOTS = 64  # of the counters, from the first on: more than there are VIPs in a lab
_HOOKS = {Hook.TC_INGRESS, Hook.TC_EGRESS}


def _change(agent: KubeAgent, change: Callable[[NodeControl], NodeControl]) -> None:
    value = agent.control()
    control = value.read()
    if control is not None:
        value.write(change(control))


def fence_far_ahead(agent: KubeAgent) -> None:
    """A fence that no renewal can have set."""
    _change(agent, lambda control: replace(control, fence_ns=boot_ns() + _FAR_NS))


def another_epoch(agent: KubeAgent) -> None:
    """The node is of an epoch that no entry is of."""
    _change(agent, lambda control: replace(control, epoch=control.epoch ^ 1))


def close_entries(agent: KubeAgent) -> None:
    """What this node owned has no owner."""
    table = agent.table()
    owned = {key: entry for key, entry in table.read().entries.items() if entry.kind is Kind.OWNED}
    table.write({key: replace(entry, kind=Kind.UNCLAIMED) for key, entry in owned.items()})


def delete_entries(agent: KubeAgent) -> None:
    """No address is guarded."""
    table = agent.table()
    table.delete(list(table.read().entries))


def wipe_control(agent: KubeAgent) -> None:
    """As before the first write: everything passes; an array has no elements that could be deleted."""
    _wipe(agent, "control", 1)


def wipe_counters(agent: KubeAgent) -> None:
    """What was counted of each VIP is gone; the totals of the node are not."""
    _wipe(agent, "counters", _SLOTS)


def _wipe(agent: KubeAgent, name: str, many: int) -> None:
    table = loader.open_maps(agent.pin_dir)[name]
    nothing = bytes((syscall.map_info(table).value_size + 7) // 8 * 8 * syscall.possible_cpus())
    for number in range(many):
        syscall.map_update(table, number.to_bytes(4, "little"), nothing)


def detach_programs(agent: KubeAgent) -> None:
    """The programs are taken off the links; the pins stay."""
    for pin in read_pins(agent.pin_dir):
        with syscall.obj_get(str(pin.path)) as link:
            syscall.link_detach(link)


def remove_links(agent: KubeAgent) -> None:
    """The pins of the links go, and with them the links."""
    bpffs.remove(agent.pin_dir / "links")


def remove_pins(agent: KubeAgent) -> None:
    """All pins go: links, maps and programs."""
    for folder in list(agent.pin_dir.iterdir()):
        bpffs.remove(folder)


Tamper = Callable[[KubeAgent], None]
CLOSING: Mapping[str, Tamper] = {
    "fence far ahead": fence_far_ahead,
    "another epoch": another_epoch,
    "owned entries closed": close_entries,
}
OPENING: Mapping[str, Tamper] = {
    "entries deleted": delete_entries,
    "control wiped": wipe_control,
    "counters wiped": wipe_counters,
    "programs detached": detach_programs,
    "links unpinned": remove_links,
    "everything unpinned": remove_pins,
}


def is_whole(agent: KubeAgent, vips: Collection[Address]) -> bool:
    """Whether a node's kernel has an entry for each VIP, enforces, and runs the programs on `eth0`."""
    try:
        entries = agent.table().read().entries
        mode = agent.mode()
        pins = read_pins(agent.pin_dir)
    except (DataPlaneError, OSError):  # not there, or just being made
        return False
    guarded = {pin.wanted_ifindex for pin in pins if pin.info.ifindex}
    hooks = [{pin.hook for pin in pins if pin.info.ifindex == ifindex} for ifindex in guarded]
    return {key.vip for key in entries} >= {*vips} and mode is Mode.ENFORCE and _HOOKS in hooks


class Opening:
    """One of `OPENING` on a node where the VIPs are not bound until the guard is whole again."""

    def __init__(self, bench: KubeBench, host: Host, vips: Collection[Address], tamper: Tamper) -> None:
        self._bench = bench
        self._host = host
        self._vips = vips
        self._tamper = tamper
        self._is_loose = False

    def do(self) -> None:
        """Does it; DataPlaneError where the guard was already incomplete, or no agent runs that could repair it."""
        agent = self._bench.agent(self._host)
        if agent.pid is None or "ready:" not in agent.said() or not is_whole(agent, self._vips):
            raise DataPlaneError(f"the guard of {self._host.name} was already incomplete before the fault")
        self._bench.loosen(self._host)
        self._is_loose = True
        self._tamper(agent)

    def undo(self) -> None:
        """Binds the VIPs again; DataPlaneError while the guard is not whole."""
        if self._is_loose:
            if not is_whole(self._bench.agent(self._host), self._vips):
                raise DataPlaneError(f"the guard of {self._host.name} is still incomplete")
            self._bench.tighten(self._host)
            self._is_loose = False


class Observing:
    """All nodes observe for a while, and so leave the VIPs to the kernels; so these are bound nowhere meanwhile."""

    def __init__(self, bench: KubeBench) -> None:
        self._bench = bench
        self._steps: list[Callable[[], None]] = []

    def do(self) -> None:
        """Begins; `undo` sees to it that every node has followed before it continues."""
        for host in self._bench.nodes:
            self._bench.loosen(host)
        self._steps = [
            lambda: self._bring(Mode.OBSERVE),
            lambda: self._bring(Mode.ENFORCE),
            self._tighten,
        ]
        self._bench.configure(self._bench.config("observe"))

    def undo(self) -> None:
        """Goes back, a step after the other; DataPlaneError where one cannot be done yet. Each is done once."""
        while self._steps:
            self._steps[0]()
            del self._steps[0]

    def _bring(self, mode: Mode) -> None:
        """A node that learned late of `observe` would open its guard when the VIPs are bound again."""
        self._bench.configure(self._bench.config(mode.name.lower()))
        late = [host.name for host in self._bench.nodes if self._bench.agent(host).mode() is not mode]
        if late:
            raise DataPlaneError(f"{', '.join(late)} did not switch to {mode.name.lower()}")

    def _tighten(self) -> None:
        for host in self._bench.nodes:
            self._bench.tighten(host)
