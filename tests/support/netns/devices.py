"""Guarded devices of a node's, each with a network of its own, and who answers there."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from arpguard.addresses import MacAddress
from support.netns.cable import Pair
from support.netns.waiting import until
from support.netns.wire import Wire


@dataclass(frozen=True)
class Device:
    """A guarded device of the node, where the client asks for its VIPs, and the third byte of its network."""

    name: str
    asked_on: str
    network: int
    vips_on: str

    def address(self, number: int) -> IPv4Address:
        return IPv4Address(f"10.7.{self.network}.{number}")

    @property
    def owned(self) -> IPv4Address:
        return self.address(50)

    @property
    def foreign(self) -> IPv4Address:
        return self.address(51)


def a_config(devices: Sequence[Device], datapath: str = "auto") -> str:
    """Guards them all; of the two VIPs of each, the other one is another node's."""
    lines = [f"datapath: {datapath}", "mode: enforce", f"interfaces: [{', '.join(each.name for each in devices)}]"]
    owners = {vip: owner for each in devices for vip, owner in ((each.owned, "node-1"), (each.foreign, "node-2"))}
    return "\n".join([*lines, "vips:", *(f"  - {{address: {v}, owner: {{node: {o}}}}}" for v, o in owners.items()), ""])


def cable(pair: Pair, name: str) -> str:
    """What makes a cable of this name at both ends, in the node."""
    return f"link add {name} type veth peer name {name} netns {pair.client.netns.name}"


def addresses(devices: Sequence[Device]) -> list[str]:
    """What gives the node its addresses and both VIPs of each device."""
    return [
        *(f"addr add {each.address(1)}/24 dev {each.name}" for each in devices),
        *(f"addr add {vip}/32 dev {each.vips_on}" for each in devices for vip in (each.owned, each.foreign)),
    ]


def shown(pair: Pair, device: str) -> dict:
    """What the node's kernel says of a device."""
    (found,) = json.loads(pair.node.netns.run("ip", "-json", "-details", "link", "show", device))
    return found


def mac_of(pair: Pair, device: Device) -> MacAddress:
    return MacAddress.parse(shown(pair, device.name)["address"])


def who(wire: Wire, device: Device) -> list[list[MacAddress]]:
    """Who answers for the owned VIP, and for the other node's; the node's own address answers last."""
    wire.address = device.address(100)
    until(lambda: wire.answers(device.address(1)), what="the node's own address is answered for")
    return [wire.who(vip, device.address(1)) for vip in (device.owned, device.foreign)]
