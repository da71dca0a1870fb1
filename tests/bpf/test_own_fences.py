"""This node's right to answer, read from the maps by which the programs judge."""

from dataclasses import replace

import pytest

from arpguard.clock import boot_ns
from arpguard.core.vouching.voucher import OwnRight
from arpguard.dataplane import layout, loader, ownfences, syscall
from arpguard.dataplane.build import read_build
from arpguard.dataplane.maps import ControlValue
from arpguard.dataplane.ownfences import OwnFences
from arpguard.model import NodeControl
from arpguard.units import NS_PER_S
from arpguard.verdict import Mode

pytestmark = pytest.mark.bpf

EPOCH, TERM, OTHER_TERM = 7, 11, 12
LEASE_NS, WINDOW_NS = 3600 * NS_PER_S, 60 * NS_PER_S


@pytest.fixture
def maps():
    return loader.load_unpinned(read_build(), ()).maps


def write_grants(maps, fence_ns, bound_term=TERM):
    value = layout.GrantsStruct(fence_ns=fence_ns, bound_term=bound_term, window_ns=WINDOW_NS)
    syscall.map_update(maps["grants"], bytes(4), bytes(value))


def a_control(fence_ns, term=TERM):
    return NodeControl(Mode.ENFORCE, generation=1, epoch=EPOCH, fence_ns=fence_ns, lease_ns=LEASE_NS, term=term)


def test_there_is_none_before_the_agent_has_written_anything(maps):
    assert OwnFences(maps["control"], maps["grants"]).read() is None


@pytest.mark.parametrize(
    ("fence_s", "term", "voucher_s", "bound_term", "until_s"),
    [
        pytest.param(20, 0, 10, TERM, 20, id="no voucher"),
        pytest.param(20, 0, 10, 0, 20, id="no term is no term that it is bound to"),
        pytest.param(20, TERM, 10, OTHER_TERM, 20, id="not bound to this term"),
        pytest.param(20, TERM, 10, TERM, 10, id="the voucher's fence comes first"),
        pytest.param(5, TERM, 10, TERM, 5, id="the API's fence comes first"),
        pytest.param(20, TERM, -1, TERM, -1, id="the voucher's fence has passed"),
        pytest.param(20, TERM, 70, TERM, None, id="the voucher's fence is too far ahead"),
        pytest.param(3700, TERM, 10, TERM, None, id="the API's fence is too far ahead"),
    ],
)
def test_the_fence_that_comes_first_counts(maps, fence_s, term, voucher_s, bound_term, until_s):
    now_ns = boot_ns()
    ControlValue(maps["control"]).write(a_control(now_ns + fence_s * NS_PER_S, term))
    write_grants(maps, now_ns + voucher_s * NS_PER_S, bound_term)

    until_ns = 0 if until_s is None else now_ns + until_s * NS_PER_S
    assert OwnFences(maps["control"], maps["grants"]).read() == OwnRight(EPOCH, until_ns)


def test_it_is_unknown_while_the_agent_changes_the_term(maps, monkeypatch):
    control, read_grants = ControlValue(maps["control"]), ownfences.read_grants
    before = a_control(boot_ns() + NS_PER_S)
    control.write(before)

    def changed_meanwhile(grants):
        found = read_grants(grants)
        control.write(replace(before, term=OTHER_TERM))
        return found

    monkeypatch.setattr(ownfences, "read_grants", changed_meanwhile)
    fences = OwnFences(maps["control"], maps["grants"])
    assert fences.read() is None
    assert fences.read() == OwnRight(EPOCH, before.fence_ns)


def test_it_is_unknown_while_cpus_differ(maps):
    ControlValue(maps["control"]).write(a_control(boot_ns() + NS_PER_S))
    size = syscall.map_info(maps["control"]).value_size
    raw = syscall.map_lookup(maps["control"], bytes(4), size * syscall.possible_cpus())
    syscall.map_update(maps["control"], bytes(4), bytes(size) + raw[size:])

    assert OwnFences(maps["control"], maps["grants"]).read() is None
