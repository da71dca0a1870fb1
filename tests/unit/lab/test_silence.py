"""The longest silence that random rounds report."""

from ipaddress import IPv4Address

from arpguard.addresses import MacAddress
from arpguard_lab.capture import Said
from arpguard_lab.cluster.bench import vip
from arpguard_lab.cluster.rounds import Silence

FIRST, SECOND, LOCAL = vip(50), vip(51), vip(60)
NODES = [MacAddress(bytes([2, 0, 0, 0, 0, number])) for number in (1, 2)]
CLIENT = IPv4Address("198.51.100.100")


def said(time_ns, address, node=0):
    return Said(time_ns, address, NODES[node], "node", CLIENT)


def test_it_is_between_two_answers_for_one_vip_whoever_gave_them():
    silence = Silence()
    silence.hear([said(10, FIRST), said(12, SECOND), said(20, FIRST)], "round 1: kill")
    assert (silence.length_ns, silence.text) == (10, f"{FIRST}, round 1: kill")

    silence.hear([said(25, FIRST, node=1), said(43, SECOND, node=1)], "round 2: hang")
    assert (silence.length_ns, silence.text) == (31, f"{SECOND}, round 2: hang")


def test_a_vip_whose_pods_may_be_on_one_node_alone_is_left_out():
    silence = Silence()
    silence.hear([said(10, LOCAL), said(20, FIRST), said(90, LOCAL), said(21, FIRST)], "round 1: kill")
    assert (silence.length_ns, silence.text) == (1, f"{FIRST}, round 1: kill")
