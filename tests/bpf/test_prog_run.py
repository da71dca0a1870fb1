"""What the other tests of this folder take for granted about BPF_PROG_TEST_RUN."""

import socket

import pytest

from arpguard.model import EntryKey
from arpguard.verdict import Hook, Kind
from support.frames.builders import VIP, a_control, an_arp_request, an_entry
from support.programs.prog_run import DROPPED, INGRESS, LO, passed

pytestmark = pytest.mark.bpf


def test_lo_has_ifindex_1():
    assert socket.if_nametoindex("lo") == LO


@pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)
def test_frame_belongs_to_lo(plane, hook):
    plane.set({VIP: an_entry(Kind.FOREIGN)}, a_control())
    assert plane.run(hook, an_arp_request()) == DROPPED


@pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)
def test_entry_of_another_link_does_not_matter(plane, hook):
    plane.set({}, a_control())
    elsewhere = EntryKey(LO + 1, VIP)
    plane.table.write({elsewhere: an_entry(Kind.FOREIGN)})
    assert plane.run(hook, an_arp_request()) == passed(an_arp_request())


def test_outgoing_frame_belongs_to_lo(plane):
    plane.set({VIP: an_entry(Kind.FOREIGN)}, a_control())
    assert plane.run(Hook.TC_EGRESS, an_arp_request(spa=VIP, tpa=VIP)) == DROPPED
