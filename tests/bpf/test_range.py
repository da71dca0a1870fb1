"""Only addresses in the range that the control value names are looked up at all."""

from ipaddress import IPv4Address

import pytest

from arpguard.verdict import Hook, Kind, Reason
from support.frames.builders import GUARD, NEIGHBOUR_IP, VIP, a_control, an_announcement, an_arp_request, an_entry
from support.programs.prog_run import DROPPED, INGRESS, assert_counted, assert_outcome, one_count, passed

pytestmark = pytest.mark.bpf

LOWEST, HIGHEST = IPv4Address("0.0.0.1"), IPv4Address("255.255.255.254")
INSIDE = {
    "alone": (VIP, VIP),
    "first": (VIP, VIP + 1),
    "last": (VIP - 1, VIP),
    "between": (VIP - 1, VIP + 1),
    "all": (IPv4Address(0), IPv4Address(2**32 - 1)),
}
OUTSIDE = {
    "above": (LOWEST, VIP - 1),
    "below": (VIP + 1, HIGHEST),
    "neighbour_below": (VIP - 1, VIP - 1),
    "neighbour_above": (VIP + 1, VIP + 1),
    "same_last_octet": (VIP + 256, VIP + 256),
}
ABOUT_VIP = {
    "request": (an_arp_request(), INGRESS),
    "claim": (an_arp_request(spa=VIP, tpa=NEIGHBOUR_IP), INGRESS),
    "announcement": (an_announcement(), INGRESS),
    "outgoing": (an_announcement(sha=GUARD), (Hook.TC_EGRESS,)),
}
everywhere = pytest.mark.parametrize(
    ("hook", "frame"),
    [
        pytest.param(hook, frame, id=f"{name}-{hook.name}")
        for name, (frame, hooks) in ABOUT_VIP.items()
        for hook in hooks
    ],
)


@everywhere
@pytest.mark.parametrize("vips4", INSIDE.values(), ids=INSIDE)
def test_vip_in_the_range_is_guarded(plane, hook, frame, vips4):
    plane.set({VIP: an_entry()}, a_control(fence_ns=0, vips4=vips4))
    assert_outcome(plane.run(hook, frame), DROPPED, frame)


@everywhere
@pytest.mark.parametrize("vips4", OUTSIDE.values(), ids=OUTSIDE)
def test_vip_outside_the_range_is_not_looked_up(plane, hook, frame, vips4):
    plane.set({VIP: an_entry()}, a_control(fence_ns=0, vips4=vips4))
    outcome, counted = plane.counted(hook, frame)
    assert_outcome(outcome, passed(frame), frame)
    assert_counted(counted, one_count(Reason.NOT_GUARDED))


@pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)
@pytest.mark.parametrize("vip", [LOWEST, IPv4Address("128.0.0.0"), HIGHEST])
def test_range_of_everything_has_both_ends(plane, hook, vip):
    plane.set({vip: an_entry(Kind.FOREIGN)}, a_control(vips4=(LOWEST, HIGHEST)))
    frame = an_arp_request(tpa=vip)
    assert_outcome(plane.run(hook, frame), DROPPED, frame)
