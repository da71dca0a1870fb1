"""Which of many networks an address is in."""

from ipaddress import ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from arpguard.core.prefixes import Prefixes

NETWORKS = [ip_network(text) for text in ("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "2001:db8::/32")]


def test_networks_come_smallest_first():
    assert [str(each) for each in Prefixes(NETWORKS).containing(ip_address("10.1.2.3"))] == [
        "10.1.2.3/32",
        "10.1.0.0/16",
        "10.0.0.0/8",
        "0.0.0.0/0",
    ]


def test_sets_of_the_same_networks_are_equal_in_whatever_order():
    assert Prefixes(NETWORKS) == Prefixes(reversed(NETWORKS))
    assert Prefixes(NETWORKS) != Prefixes(NETWORKS[1:])
    assert Prefixes([]) != []


@given(st.sets(st.sampled_from(NETWORKS)), st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_agrees_with_looking_at_each(networks, address):
    expected = {each for each in networks if each.version == address.version and address in each}

    assert set(Prefixes(networks).containing(address)) == expected
    assert bool(Prefixes(networks)) == bool(networks)
