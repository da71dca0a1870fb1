"""What the agent keeps for the next boot; a name states the fact."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from arpguard.addresses import MacAddress
from arpguard.config.files import parse_config
from arpguard.core.closing import NOTHING, Closing
from arpguard.core.early import early_config, early_links
from arpguard.model import Link, Surroundings

MAC = MacAddress.parse("02:00:00:00:00:01")
CONFIG = parse_config("{mode: enforce, bpf: {pin_dir: /sys/fs/bpf/mine, max_entries: 7}}")
RANGE, OWN = ip_network("198.51.100.0/24"), ip_network("198.51.100.1/32")
CLOSING = Closing((RANGE,), (OWN,))


def a_link(ifindex: int, name: str, kind: str = "", master: int = 0) -> Link:
    return Link(ifindex, name, MAC, up=True, kind=kind, master=master)


NIC, OTHER, THIRD = a_link(2, "eno1", master=5), a_link(3, "eno2", master=5), a_link(4, "eno3")
BOND, BRIDGE, GUEST = (
    a_link(5, "bond0", "bond", master=6),
    a_link(6, "br0", "bridge"),
    a_link(7, "tap0", "tun", master=6),
)
VLAN = a_link(8, "eno3.7", "vlan")
VETH, CONTAINERS = a_link(9, "eth0", "veth"), tuple(a_link(n, f"veth{n}", "veth", master=6) for n in range(1000, 1300))
AROUND = Surroundings(links=(NIC, OTHER, THIRD, BOND, BRIDGE, GUEST, VLAN, VETH, *CONTAINERS))


def kept(*links: Link) -> list[str]:
    """The interfaces that are named for these guarded links."""
    text = early_config(CONFIG, CLOSING, early_links(links, AROUND))
    return [str(each) for each in parse_config(text).interfaces] if text else []


@pytest.mark.parametrize(
    ("links", "names"),
    [
        ([THIRD], ["eno3"]),
        ([BOND], ["eno1", "eno2"]),
        ([BRIDGE], ["eno1", "eno2"]),
        ([BOND, THIRD, BRIDGE], ["eno1", "eno2", "eno3"]),
        ([VLAN], []),
        ([VETH], ["eth0"]),
        ([], []),
    ],
    ids=["nic", "bond", "bridge-of-a-bond-and-guests", "several", "vlan", "veth", "none"],
)
def test_links_are_those_that_are_there_before_the_network_is_set_up(links, names):
    assert kept(*links) == names


def test_of_more_links_than_a_configuration_may_have_the_first_are_kept():
    found = parse_config(early_config(CONFIG, CLOSING, [f"eno{n}" for n in range(300)]))
    assert [str(each) for each in found.interfaces] == [f"eno{n}" for n in range(256)]


def test_what_is_kept_is_a_configuration_that_closes_the_same():
    found = parse_config(early_config(CONFIG, CLOSING, ["eno3"]))
    assert (found.closed, set(found.ranges)) == ((RANGE,), {RANGE, OWN})
    assert (found.mode, found.bpf) == (CONFIG.mode, CONFIG.bpf)
    assert found.bpf.pin_dir == Path("/sys/fs/bpf/mine")


@pytest.mark.parametrize(
    ("config", "closing"), [(parse_config("{mode: observe}"), CLOSING), (CONFIG, NOTHING)], ids=["observes", "open"]
)
def test_nothing_is_kept_where_nothing_is_suppressed(config, closing):
    assert early_config(config, closing, ["eno3"]) == ""
