"""The commands that ask an agent, and their options."""

import argparse
import re
import textwrap
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from arpguard.config.model import BpfConfig, GrpcConfig
from arpguard.core.claimants import ClaimantKind
from arpguard.core.stimulus import STRANGER_MAC, STRANGERS, Operation
from arpguard.names import is_label, is_subdomain
from arpguard.verdict import VIP_KINDS, Reason, Verdict

DEFAULT_TARGET = GrpcConfig().listen[0]
DEFAULT_PORT = 50051
DEFAULT_LIMIT = 100
DEFAULT_PAST = 20
SubParsers = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d) *")
_SPAN_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
SHELLS = ("bash", "zsh", "fish", "tcsh")
# Arguments and options that a shell completes with what agents know, by their names in the parsers.
KNOWN = {"vip": "vips", "address": "vips", "link": "links", "interface": "links"}
_FILTERS = ("vip", "link", "kind", "claimant", "verdict", "reason", "since")
_HELP_WIDTH = 78
_SHORTEST_INTERVAL_S = 0.1
_SHORTEST_TIMEOUT_S = 0.001
_LONGEST_S = 3600
_NOBODY = " or ".join(str(stranger.address) for stranger in STRANGERS.values())

EXAMPLES = {
    "status": """examples:
  arpguard status
  arpguard status --pin-dir /sys/fs/bpf/arpguard          when no agent runs
  arpguard status --address 192.0.2.7:50051 --tls-ca ca.pem --tls-cert me.pem --tls-key me.key
  arpguard status -o json | jq -r '.problems[]'
  arpguard status --all-nodes --tls-ca ca.pem --tls-cert me.pem --tls-key me.key
""",
    "vips": """examples:
  arpguard vips                        all of them, a line for each link
  arpguard vips --kind owned           those that this node answers for
  arpguard vips 192.0.2.10             one, with all its counters and the last claim by another host
  arpguard vips 192.0.2.10 --all-nodes --tls-ca ca.pem --tls-cert me.pem --tls-key me.key
""",
    "decisions": """examples:
  arpguard decisions --since 5m --verdict suppress
  arpguard decisions --follow --vip 192.0.2.10
  arpguard decisions --follow -o json | jq -r '.decision.sha'
""",
    "conflicts": """examples:
  arpguard conflicts || echo 'another host claims a VIP'
  arpguard conflicts --vip 192.0.2.10 -o yaml
  arpguard conflicts --claimant cluster_node --all-nodes --tls-ca ca.pem --tls-cert me.pem --tls-key me.key
""",
    "audit": """examples:
  arpguard audit                                  what the last audit of each VIP found
  arpguard audit 192.0.2.10                       sends requests now
  arpguard audit --all-nodes --tls-ca ca.pem --tls-cert me.pem --tls-key me.key
""",
    "explain": """examples:
  arpguard explain 192.0.2.10
  arpguard explain 192.0.2.10 --link eth0 --operation request --sender-address 192.0.2.1
  arpguard explain 192.0.2.10 --all-nodes --tls-ca ca.pem --tls-cert me.pem --tls-key me.key
  arpguard explain 192.0.2.10 --operation announcement --sender-mac 02:00:00:00:00:50
""",
    "watch": """examples:
  arpguard watch
  arpguard watch --interval 10 -o json | jq -c '[.status.node, .framesPerSecond]'
  arpguard watch --interval 5 --address 192.0.2.7:50051 --tls-ca ca.pem --tls-cert me.pem --tls-key me.key
""",
}


class Subcommand(NamedTuple):
    """A command: what its help says, the function that runs it, and what adds its options, in their order."""

    name: str
    brief: str
    text: str
    run: Callable[[argparse.Namespace], int]
    parts: tuple[Callable[[argparse.ArgumentParser], None], ...]


def lazily(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    """The command `name` of a module beside this one, which is imported when it is run: others do not wait for it."""

    def run(options: argparse.Namespace) -> int:
        command: Callable[[argparse.Namespace], int] = getattr(import_module(f"arpguard.cli.{module}"), name)
        return command(options)

    return run


def filters(options: argparse.Namespace, names: Iterable[str] = _FILTERS) -> str:
    """The options that leave something out of a list, as on the command line."""
    given = {name: getattr(options, name, None) for name in names}
    words = {name: f"{value:g}s" if isinstance(value, float) else value for name, value in given.items()}
    return " ".join(f"--{name} {word}" for name, word in words.items() if word)


def number_of(choices: type[IntEnum], word: str) -> int:
    """An enum's member by its name in lower case, as the API's number; 0 for any."""
    return int(choices[word.upper()]) if word else 0


def positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    """An argument type: a number above 0."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected a number above 0")
        return value

    return parse


def object_name(text: str) -> str:
    """An argument type: NAMESPACE/NAME."""
    namespace, slash, name = text.partition("/")
    if not (slash and is_label(namespace) and is_subdomain(name)):
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected NAMESPACE/NAME, such as arpguard/arpguard")
    return text


def _span(text: str) -> float:
    """An argument type: a length of time, in seconds; also a sum, as this program writes them."""
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text):
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected a duration, such as 30s, 5m, 1h30m or 1d")
    return sum(float(number) * _SPAN_S[unit] for number, unit in parts)


def seconds(at_least: float) -> Callable[[str], float]:
    """An argument type: so many seconds or more, and an hour at most."""

    def parse(text: str) -> float:
        value = positive(float)(text)
        if not at_least <= value <= _LONGEST_S:
            raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected {at_least:g} to {_LONGEST_S} seconds")
        return value

    return parse


def _member(prefix: str, blank: str = "_") -> Callable[[str], str]:
    """An argument type: an enum's member by its name here, in the API or in the metrics."""

    def parse(text: str) -> str:
        return text.lower().replace("-", "_").removeprefix(prefix).replace("_", blank)

    return parse


def add_vip_arguments(parser: argparse.ArgumentParser, address: str) -> None:
    """Adds which VIPs to show; `address`: what naming one means."""
    parser.add_argument("vip", nargs="?", default="", metavar="ADDRESS", help=address)
    _add_link(parser)
    add_choice(parser, "kind", VIP_KINDS, "only VIPs of this kind")
    add_output(parser)


def add_decision_arguments(parser: argparse.ArgumentParser, clock: str = "this host's clock") -> None:
    """Adds which decisions to show; `clock`: which one --since goes by."""
    parser.add_argument(
        "--follow", "-f", action="store_true", help="show new decisions as they come, until interrupted"
    )
    _add_vip(parser)
    _add_link(parser)
    add_choice(parser, "verdict", Verdict, "only decisions with this verdict")
    add_choice(parser, "reason", Reason, "only decisions for this reason (docs/reasons.md)", listed=False)

    parser.add_argument(
        "--since",
        type=_span,
        metavar="SPAN",
        help=f"only decisions of the last SPAN, such as 500ms, 30s, 1h30m or 1d, by {clock}",
    )
    parser.add_argument(
        "--limit",
        type=positive(int),
        metavar="N",
        help=f"show at most N past decisions (default: {DEFAULT_LIMIT}; with --follow: {DEFAULT_PAST})",
    )

    add_output(parser)


def add_conflict_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which claims to show."""
    _add_vip(parser)
    _add_link(parser)
    add_choice(parser, "claimant", ClaimantKind, "only claims by this kind of host")
    add_output(parser)


def add_audit_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to ask for."""
    parser.add_argument(
        "vip",
        metavar="ADDRESS",
        nargs="?",
        default="",
        help="audit this VIP now (default: show the last audit of each VIP)",
    )
    add_output(parser)


def add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to explain."""
    parser.add_argument("vip", metavar="ADDRESS", help="an IPv4 or IPv6 address")
    _add_link(parser)

    parser.add_argument(
        "--operation",
        type=_member("operation_", "-"),
        action="append",
        default=[],
        choices=[operation.value for operation in Operation],
        help="only this kind of frame; may be repeated (default: all)",
    )
    parser.add_argument(
        "--sender-mac",
        default="",
        metavar="MAC",
        help=f"MAC of the sender of incoming frames (default: {STRANGER_MAC}, which no host has)",
    )
    parser.add_argument(
        "--sender-address",
        default="",
        metavar="IP",
        help=f"address of the host at the other end (default: {_NOBODY}, which no host has)",
    )

    add_output(parser)


def add_interval(parser: argparse.ArgumentParser, default_s: float) -> None:
    """Adds --interval."""
    parser.add_argument(
        "--interval",
        type=seconds(_SHORTEST_INTERVAL_S),
        default=default_s,
        metavar="S",
        help=f"seconds between updates (default: {default_s:g}, at least {_SHORTEST_INTERVAL_S})",
    )


def add_command(subparsers: "SubParsers[argparse.ArgumentParser]", command: Subcommand, examples: str) -> None:
    """Adds a command with its options; its help ends with examples."""
    parser = subparsers.add_parser(
        command.name,
        help=command.brief,
        # The formatter that leaves the examples alone wraps nothing.
        description=textwrap.fill(command.text, _HELP_WIDTH, break_on_hyphens=False),
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for add in command.parts:
        add(parser)
    parser.set_defaults(run=command.run)


def _add_agent(parser: argparse.ArgumentParser) -> None:
    """Adds which agent to ask."""
    agent = parser.add_argument_group("the agent to ask")

    agent.add_argument(
        "--address",
        dest="agent",
        metavar="TARGET",
        help=f"unix:///PATH or HOST:PORT (default: $ARPGUARD_ADDRESS, then {DEFAULT_TARGET})",
    )

    agent.add_argument("--tls-ca", type=Path, metavar="FILE", help="PEM file: the CA of the agent's certificate")
    agent.add_argument("--tls-cert", type=Path, metavar="FILE", help="PEM file: this client's certificate (mutual TLS)")
    agent.add_argument("--tls-key", type=Path, metavar="FILE", help="PEM file: the private key of --tls-cert")
    agent.add_argument(
        "--tls-server-name", default="", metavar="NAME", help="name in the agent's certificate (default: TARGET's host)"
    )

    agent.add_argument(
        "--timeout",
        type=seconds(_SHORTEST_TIMEOUT_S),
        default=5.0,
        metavar="S",
        help="seconds to wait for an answer (default: 5)",
    )


_MESSAGE = "the agent's answer in protobuf's JSON mapping"


def add_output(parser: argparse.ArgumentParser, document: str = _MESSAGE) -> None:
    """Adds -o; `document`: what programs get."""
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "wide", "json", "yaml"),
        default="table",
        help=f"table: cut to fit the terminal; wide: every column in full; json, yaml: {document} (default: table)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds --json."""
    parser.add_argument("--json", dest="output", action="store_const", const="json", help="the same as -o json")


def _add_link(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--link", default="", metavar="NAME", help="only on this network interface")


def _add_vip(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vip", default="", metavar="IP", help="only about this VIP")


def add_choice(
    parser: argparse._ActionsContainer, name: str, choices: Iterable[IntEnum], text: str, *, listed: bool = True
) -> None:
    """Adds an option that takes a member of an enum, by its name here, in the API or in the metrics."""
    words = [member.name.lower() for member in choices]
    metavar = None if listed else name.upper()
    parser.add_argument(f"--{name}", type=_member(f"{name}_"), choices=words, default="", metavar=metavar, help=text)


def _add_pin_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pin-dir",
        type=Path,
        metavar="DIR",
        help="read the pinned kernel objects instead of asking the agent; works even when no agent runs "
        f"(DIR: the agent's bpf.pin_dir, usually {BpfConfig().pin_dir})",
    )


def _add_all_nodes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "all nodes",
        textwrap.fill(
            "The agent at --address lists the nodes of the cluster; the command then asks the agent on each node, at "
            "the address in its Node object, over mutual TLS. Exit code 3: an agent cannot be reached.",
            _HELP_WIDTH,
        ),
    )

    group.add_argument("--all-nodes", action="store_true", help="ask the agents of all nodes of the cluster")
    group.add_argument(
        "--port",
        type=up_to((1 << 16) - 1, "a port, 1 to 65535"),
        metavar="PORT",
        help=f"the port of the other agents (default: {DEFAULT_PORT})",
    )


def add_shell(parser: argparse.ArgumentParser, known: Iterable[str]) -> None:
    """Adds what `completion` is to print; `known`: kinds of words that agents know."""
    kinds = list(dict.fromkeys(known))
    parser.add_argument(
        "shell",
        choices=(*SHELLS, *kinds),
        metavar="SHELL",
        help=f"{', '.join(SHELLS)}: print the script for that shell; {', '.join(kinds)}: list the current "
        "ones (the scripts call this)",
    )


def up_to(most: int, expected: str) -> Callable[[str], int]:
    """An argument type: a whole number from 1 on; `expected`: what it is, in words."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= most:
            raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected {expected}")
        return int(text)

    return parse


ASKING = (
    Subcommand(
        "status",
        "the state of the guard on this node",
        "Shows mode, configuration, fence, lease, connection to the API server, links with their programs, the number "
        "of frames for each reason, and every problem; with --all-nodes, one line for each node. Exit code 1: there "
        "is a problem.",
        lazily("status", "show_status"),
        (_add_agent, add_output, _add_pin_dir, _add_all_nodes),
    ),
    Subcommand(
        "vips",
        "the guarded VIPs with their counters",
        "Shows the guarded VIPs, read back from the kernel: who may answer, which node has each elected VIP, and "
        "the number of frames for each reason. Exit code 1: ADDRESS is not guarded on any link.",
        lazily("vips", "show_vips"),
        (_add_agent, partial(add_vip_arguments, address="only this VIP, in detail"), _add_pin_dir, _add_all_nodes),
    ),
    Subcommand(
        "links",
        "the guarded links and the programs on them",
        "Shows each guarded network interface, its addresses, and the kernel's ids of the programs on it (`bpftool "
        "prog show id ID` shows more).",
        lazily("links", "show_links"),
        (_add_agent, add_output, _add_pin_dir),
    ),
    Subcommand(
        "decisions",
        "recent decisions of the guard, or live ones",
        "Shows recent decisions, newest first. With --follow, shows the last few, oldest first, and then new ones as "
        "they come, until the agent stops. Of many identical decisions the kernel reports only some; `arpguard vips` "
        "counts them all.",
        lazily("decisions", "show_decisions"),
        (_add_agent, add_decision_arguments),
    ),
    Subcommand(
        "conflicts",
        "claims to VIPs by other hosts",
        "Shows the claims to VIPs that this node heard from other hosts, newest first. If the guard does not know the "
        "owner's MAC, the claimant may be the owner. The claimant's MAC shows what the claimant is: a cluster node, a "
        "virtual router, or a host outside the cluster. Exit code 1: a claim came from a cluster node, or "
        "certainly from a host that is not the owner (reason conflict).",
        lazily("conflicts", "show_conflicts"),
        (_add_agent, add_conflict_arguments, _add_all_nodes),
    ),
    Subcommand(
        "audit",
        "which hosts answer for the VIPs",
        "For each VIP, one node that does not own it sends requests every `audit.every` (default 60 s). Shows what "
        "this node's last requests found: only the owner answers, no host does, another host does, or several do. "
        "With ADDRESS, asks now, from this node, even for a VIP that other nodes audit. Exit code 1: for at least one "
        "VIP, another host answers, or the owner does not.",
        lazily("audit", "audit"),
        (_add_agent, add_audit_arguments, _add_all_nodes),
    ),
    Subcommand(
        "explain",
        "what this node does with frames about an address, and why",
        "Runs the code of the loaded programs on one frame of each kind, with the kernel's current maps. Shows each "
        "frame's verdict, its reason (docs/reasons.md), and what happens to the frame. Then shows why the address has "
        "its owner: the object that makes it a VIP and, if the owner is elected, the claim, the eligible nodes, and "
        "why the others are not eligible. Sends and counts no frame. -o json includes each frame in hexadecimal. "
        "Exit code 1: the address is not guarded on any link.",
        lazily("explain", "explain"),
        (_add_agent, add_explain_arguments, _add_pin_dir, _add_all_nodes),
    ),
    Subcommand(
        "watch",
        "a live view of links, VIPs and decisions",
        "Fills the screen, until q or Ctrl-C, with mode, fence, lease, API server, links, the busiest VIPs with "
        "their frames per second, and the latest decisions; ? lists the keys that sort, filter, scroll and pause. "
        "Reconnects after the agent restarts. Computes rates from the kernel's exact counters.",
        lazily("watch", "watch"),
        (
            _add_agent,
            partial(add_interval, default_s=1.0),
            partial(add_output, document="a document at each interval, with status, VIPs and conflicts"),
        ),
    ),
)
