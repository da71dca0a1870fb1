"""The options of `arpguard replay`."""

import argparse
import os
import socket
from ipaddress import ip_address
from pathlib import Path

from arpguard.addresses import Address, MacAddress, vip_refusal
from arpguard.cli.options import Subcommand, add_choice, add_output, lazily, up_to
from arpguard.names import is_subdomain
from arpguard.verdict import Reason, Verdict

_TEXT = """Runs every ARP and neighbour discovery frame of a capture through the guard's own BPF programs, under
the given configuration, and shows what they decide, for which addresses more than one MAC answered, and which of
their answers would have passed with a guard on every node. Attaches no program, sends no frame and keeps nothing;
loading the programs needs root. Exit code 1: more than one MAC answered for an address."""
REPLAY_EXAMPLES = """examples:
  arpguard replay capture.pcap --config config.yaml
  arpguard replay capture.pcap --config config.yaml --summary
  arpguard replay capture.pcapng --config config.yaml --node node-2 --mac 02:00:00:00:00:02 --link eth0
  arpguard replay capture.pcap --config config.yaml --mac node-1=02:00:00:00:00:01 --mac node-2=02:00:00:00:00:02
  arpguard replay capture.pcap.gz --config config.yaml --owner 192.0.2.10=node-3 --vip 192.0.2.10
  tcpdump -i eth0 -U -w - arp or icmp6 | arpguard replay - --config config.yaml -o json
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="pcap or pcapng, gzipped or not; - reads standard input")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="configuration (YAML)")
    _add_scene(parser)
    _add_choice_of_frames(parser)

    parser.add_argument("--summary", action="store_true", help="show only the summary of the whole capture")
    add_output(parser, "a document for each frame and one for the summary")


def _add_scene(parser: argparse.ArgumentParser) -> None:
    scene = parser.add_argument_group("nodes and addresses")
    scene.add_argument(
        "--node",
        default=os.environ.get("NODE_NAME") or socket.gethostname(),
        metavar="N",
        help="the node whose guard decides, by its name in `owner: {node: N}` (default: $NODE_NAME, then the host "
        "name)",
    )

    scene.add_argument(
        "--mac",
        type=_mac,
        action="append",
        default=[],
        metavar="[NODE=]MAC",
        help="a MAC of this node on the captured link: frames from it are outgoing, all others incoming. NODE=MAC "
        "gives a MAC of another node, to show which of that node's frames its guard would have let through. May be "
        "repeated",
    )
    scene.add_argument(
        "--own-address",
        type=_address,
        action="append",
        default=[],
        metavar="IP",
        help="this node's address on the link, which replaces a VIP as the sender in outgoing requests (default: a "
        "placeholder)",
    )

    scene.add_argument(
        "--owner",
        type=_owner,
        action="append",
        default=[],
        metavar="ADDRESS=NODE",
        help="assume that NODE was elected to own ADDRESS, even if the configuration does not make it a VIP; may be "
        "repeated",
    )

    scene.add_argument(
        "--mode", choices=("observe", "enforce"), default="", help="use this mode, whatever the configuration says"
    )


def _add_choice_of_frames(parser: argparse.ArgumentParser) -> None:
    frames = parser.add_argument_group("which frames")
    frames.add_argument("--link", default="", metavar="NAME", help="only frames from this interface in the capture")
    frames.add_argument(
        "--vlan",
        type=up_to(4094, "a VLAN, 1 to 4094"),
        metavar="VID",
        help="only frames of this VLAN, judged as if they arrived on its VLAN device",
    )
    frames.add_argument("--all", action="store_true", help="also show decisions that are not about a VIP")
    frames.add_argument("--vip", type=_address, metavar="IP", help="show only decisions about this VIP")
    add_choice(frames, "verdict", Verdict, "show only decisions with this verdict")
    add_choice(frames, "reason", Reason, "show only decisions for this reason (docs/reasons.md)", listed=False)


def _mac(text: str) -> tuple[str, MacAddress]:
    """An argument type: (node, MAC); the node is empty where it is this one."""
    node, _, mac = text.rpartition("=")
    try:
        found = MacAddress.parse(mac)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found.is_group or found.is_zero or (node and not is_subdomain(node)):
        raise argparse.ArgumentTypeError(
            f"invalid value {text!r}: expected a host's MAC, such as 02:00:00:00:00:01, or NODE=MAC"
        )
    return node, found


def _address(text: str) -> Address:
    """An argument type: the address of a host."""
    try:
        address = ip_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected an IP address") from None
    refusal = vip_refusal(address)
    if refusal:
        raise argparse.ArgumentTypeError(f"{text} {refusal}: expected a host's address")
    return address


def _owner(text: str) -> tuple[Address, str]:
    """An argument type: an address and the node that owns it."""
    address, equals, node = text.partition("=")
    if not equals or not is_subdomain(node):
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected ADDRESS=NODE, such as 192.0.2.10=node-1")
    return _address(address), node


REPLAY = Subcommand(
    "replay",
    "run a capture through the guard, and show which hosts answered",
    _TEXT,
    lazily("replay.command", "run_replay"),
    (_add_arguments,),
)
