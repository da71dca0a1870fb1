"""The order in which the kernel is told things; what it then does is tested on the wire."""

import asyncio
from ipaddress import ip_address, ip_interface

import pytest

from arpguard.addresses import MacAddress
from arpguard.config import parse_config
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.dataplane.maps import TableContent
from arpguard.errors import DataPlaneError, MapFullError
from arpguard.model import Attachment, EntryKey, InterfaceAddress, Link, NodeControl, Surroundings, VipEntry
from arpguard.runtime.reconciler import Reconciler
from arpguard.verdict import Kind

VIP = ip_address("192.0.2.50")
_OWN = ip_interface("192.0.2.1/24")
_ADDRESSES = (InterfaceAddress(_OWN.ip, _OWN.network),)
ETH0 = Link(2, "eth0", MacAddress.parse("02:00:00:00:00:01"), up=True, addresses=_ADDRESSES)
HERE = Surroundings(links=(ETH0,))


class Recorder:
    """Stands for the kernel: remembers what it was told, in order, and gives it back."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.entries: dict[EntryKey, VipEntry] = {}
        self.value: NodeControl | None = None
        self.refuses = False
        self.room = 9

    # entries and control

    def write_entries(self, entries):
        if len(self.entries | entries) > self.room:
            raise MapFullError("no room")
        self.told += [f"entry {entry.kind.name} {entry.mode.name}" for entry in entries.values()]
        self.entries |= entries

    def delete(self, keys):
        for key in keys:
            self.told.append(f"delete {key.vip}")
            del self.entries[key]

    def write_control(self, control):
        self.told.append(f"control {control.mode.name}")
        self.value = control

    # programs

    async def ensure(self, ifindex, hook):
        if self.refuses:
            raise DataPlaneError("no")
        return Attachment(ifindex, hook, "xdp", 1)

    async def detach(self, _ifindex, hook, **_):
        self.told.append(f"detach {hook.name}")

    def pins(self):
        return []


class Entries:
    def __init__(self, kernel: Recorder) -> None:
        self.read = lambda: TableContent(dict(kernel.entries), [])
        self.write, self.delete = kernel.write_entries, kernel.delete


class Control:
    def __init__(self, kernel: Recorder) -> None:
        self.read, self.write = lambda: kernel.value, kernel.write_control


@pytest.fixture
def kernel() -> Recorder:
    return Recorder()


@pytest.fixture
def apply(kernel):
    reconciler = Reconciler("me", Entries(kernel), Control(kernel), kernel, AnnouncementSchedule())
    generation = iter(range(1, 100))

    def run(config: str) -> list[str]:
        kernel.told.clear()
        asyncio.run(reconciler.apply(parse_config(config), next(generation), HERE, 0))
        return list(kernel.told)

    return run


def a_config(mode: str, override: str = "", owner: str = "{node: other}") -> str:
    more = f", mode: {override}" if override else ""
    return f"{{mode: {mode}, interfaces: [eth0], vips: [{{address: {VIP}, owner: {owner}{more}}}]}}"


def test_entries_come_before_the_first_control_value(apply):
    """Until then the programs decide nothing."""
    assert apply(a_config("enforce")) == ["entry FOREIGN INHERIT", "control ENFORCE"]


def test_node_enforces_before_entries_lose_their_own_mode(apply):
    apply(a_config("observe", "enforce"))

    told = apply(a_config("enforce"))

    assert told.index("control ENFORCE") < told.index("entry FOREIGN INHERIT")


def test_node_stops_enforcing_after_entries_got_their_own_mode(apply):
    apply(a_config("enforce"))

    told = apply(a_config("observe", "enforce"))

    assert told.index("entry FOREIGN ENFORCE") < told.index("control OBSERVE")


def test_what_is_given_up_is_written_before_what_is_taken(apply, kernel):
    other = VIP + 1
    both = (
        "{{mode: enforce, interfaces: [eth0], vips: "
        "[{{address: {}, owner: {{node: me}}}}, {{address: {}, owner: {{node: other}}}}]}}"
    )
    apply(both.format(VIP, other))

    assert apply(both.format(other, VIP))[:2] == ["entry FOREIGN INHERIT", "entry OWNED INHERIT"]
    assert kernel.entries[EntryKey(2, other)].kind is Kind.OWNED


def test_program_that_cannot_be_attached_again_is_not_taken_off(apply, kernel):
    apply(a_config("enforce"))
    kernel.refuses = True

    assert not [step for step in apply(a_config("enforce")) if step.startswith("detach")]


def test_program_on_a_link_that_is_not_wanted_any_more_is_taken_off(apply):
    apply(a_config("enforce"))

    told = apply("{mode: enforce, interfaces: ['eth9*']}")

    assert {step for step in told if step.startswith("detach")} == {"detach TC_EGRESS", "detach TC_INGRESS"}
    assert told.index(f"delete {VIP}") < told.index("detach TC_INGRESS")


def test_pass_without_a_change_writes_no_entry_and_what_others_took_away_comes_back(apply, kernel):
    apply(a_config("enforce"))
    unchanged = apply(a_config("enforce"))
    kernel.entries.clear()
    mended = apply(a_config("enforce"))

    assert not [step for step in unchanged if step.startswith("entry")]
    assert "entry FOREIGN INHERIT" in mended


def test_entries_that_did_not_fit_are_tried_again_in_the_next_pass(apply, kernel):
    kernel.room = 0
    refused = apply(a_config("enforce"))
    kernel.room = 1

    assert not [step for step in refused if step.startswith("entry")]
    assert "entry FOREIGN INHERIT" in apply(a_config("enforce"))
