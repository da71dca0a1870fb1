"""MAC and IP addresses: text and bytes to values and back, and which addresses nobody can own."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress, from_mapped, to_mapped, vip_refusal


@pytest.mark.parametrize("text", ["02:00:00:00:00:aa", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"])
def test_mac_is_printed_as_it_was_read(text):
    assert str(MacAddress.parse(text)) == text


def test_case_of_a_mac_does_not_matter():
    assert MacAddress.parse("02:AB:Cd:00:00:aA") == MacAddress(bytes.fromhex("02abcd0000aa"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "02:00:00:00:00",
        "02:00:00:00:00:aa:bb",
        "02-00-00-00-00-aa",
        "0200.0000.00aa",
        "02:00:00:00:00:ag",
        "2:0:0:0:0:aa",
        "02:00:00:00:00:aa ",
        "02:00:00:00:00:aa\n",
        " 02:00:00:00:00:aa",
        "\uff10\uff12:00:00:00:00:aa",
    ],
)
def test_text_that_is_no_mac_is_refused(text):
    with pytest.raises(ValueError, match="is not a MAC address"):
        MacAddress.parse(text)


@pytest.mark.parametrize("length", [0, 5, 7, 8])
def test_mac_of_another_length_is_refused(length):
    with pytest.raises(ValueError, match=f"6 bytes, not {length}"):
        MacAddress(bytes(length))


@pytest.mark.parametrize(
    ("text", "zero", "group", "broadcast"),
    [
        ("00:00:00:00:00:00", True, False, False),
        ("02:00:00:00:00:01", False, False, False),
        ("fe:ff:ff:ff:ff:ff", False, False, False),
        ("01:00:5e:00:00:01", False, True, False),
        ("ff:ff:ff:ff:ff:fe", False, True, False),
        ("ff:ff:ff:ff:ff:ff", False, True, True),
    ],
)
def test_mac_knows_what_it_stands_for(text, zero, group, broadcast):
    mac = MacAddress.parse(text)
    assert (mac.is_zero, mac.is_group, mac == BROADCAST_MAC) == (zero, group, broadcast)


def test_constants_are_what_they_say():
    assert ZERO_MAC.is_zero
    assert BROADCAST_MAC.octets == b"\xff" * 6


@given(st.binary(min_size=6, max_size=6))
def test_every_mac_survives_its_text(octets):
    assert MacAddress.parse(str(MacAddress(octets))).octets == octets


def test_ipv4_is_mapped_into_the_well_known_prefix():
    assert to_mapped(IPv4Address("192.0.2.10")).hex(" ", 2) == "0000 0000 0000 0000 0000 ffff c000 020a"


def test_ipv6_is_kept_as_it_is():
    assert to_mapped(IPv6Address("2001:db8::1")) == IPv6Address("2001:db8::1").packed


@given(st.ip_addresses())
def test_every_address_survives_the_map(address):
    mapped = getattr(address, "ipv4_mapped", None)
    assert from_mapped(to_mapped(address)) == (mapped or address)


@pytest.mark.parametrize("length", [0, 4, 12, 15, 17])
def test_bytes_that_are_no_map_address_are_refused(length):
    with pytest.raises(ValueError, match="16"):
        from_mapped(b"\xff" * length)


@pytest.mark.parametrize(
    ("address", "refusal"),
    [
        ("0.0.0.0", "unspecified"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("169.254.7.7", "link-local"),
    ],
)
def test_ipv4_address_that_nobody_can_own_is_refused(address, refusal):
    assert refusal in vip_refusal(IPv4Address(address))


@pytest.mark.parametrize(
    ("address", "refusal"),
    [("::", "unspecified"), ("::1", "loopback"), ("ff02::1", "multicast"), ("fe80::1", "link-local")],
)
def test_ipv6_address_that_nobody_can_own_is_refused(address, refusal):
    assert refusal in vip_refusal(IPv6Address(address))


@pytest.mark.parametrize("address", ["192.0.2.10", "10.0.0.1", "223.255.255.255", "240.0.0.1", "255.255.255.254"])
def test_ordinary_ipv4_address_can_be_owned(address):
    assert vip_refusal(IPv4Address(address)) is None


@pytest.mark.parametrize("address", ["2001:db8::1", "fd00::1"])
def test_ordinary_ipv6_address_can_be_owned(address):
    assert vip_refusal(IPv6Address(address)) is None
