"""The command line: `kubectl arpguard COMMAND`, installed as `kubectl-arpguard` for kubectl to find."""

import argparse
from functools import partial
from pathlib import Path

from arpguard import __version__
from arpguard.cli.kubectl.examples import EXAMPLES
from arpguard.cli.options import (
    KNOWN,
    SHELLS,
    Subcommand,
    add_audit_arguments,
    add_command,
    add_conflict_arguments,
    add_decision_arguments,
    add_explain_arguments,
    add_interval,
    add_output,
    add_shell,
    add_vip_arguments,
    lazily,
    seconds,
)
from arpguard.cli.parser import Parser
from arpguard.cli.running import run

_EPILOG = (
    "exit codes: 0 ok, 1 a check failed, or a node did not answer, 2 bad usage or configuration, 3 the API server "
    "cannot be reached or refuses the request, or no node answered"
)
_KNOWN = {**KNOWN, "node": "nodes"}
_ASKED = "Asks all nodes in parallel, through the API server, and names those that do not answer, with the reason. "


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser: argparse.ArgumentParser = Parser(
        prog="kubectl arpguard",
        description="Asks the arpguard agents of a cluster through its API server.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"kubectl arpguard {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    for command in _COMMANDS:
        asked = _ASKED if _add_nodes in command.parts else ""
        add_command(subparsers, command._replace(text=asked + command.text), EXAMPLES[command.name])

    return parser


def main(arguments: list[str] | None = None) -> None:
    """Entry point; leaves by SystemExit."""
    run(build_parser(), arguments)


def _add_cluster(parser: argparse.ArgumentParser, timeout_s: float = 15.0, waits_for: str = "each node") -> None:
    """Adds what all commands need to reach the agents."""
    cluster = parser.add_argument_group("the cluster")
    cluster.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)"
    )
    cluster.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current context)")
    cluster.add_argument(
        "-n", "--namespace", default="arpguard", metavar="NS", help="namespace of the agents (default: arpguard)"
    )

    cluster.add_argument(
        "--timeout",
        type=seconds(0.1),
        default=timeout_s,
        metavar="S",
        help=f"seconds to wait for {waits_for} (default: {timeout_s:g})",
    )


def _add_nodes(parser: argparse.ArgumentParser) -> None:
    """Adds which nodes to ask."""
    parser.add_argument(
        "--node", action="append", default=[], metavar="NODE", help="only this node; may be repeated (default: all)"
    )


def _add_no_ask(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-ask", action="store_true", help="do not ask the segment which hosts answer for the VIPs")


def _add_mode(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mode", choices=("observe", "enforce"), help="the mode to switch to")
    parser.set_defaults(node=[])  # all have to follow


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="the archive to write (default: arpguard-DATE-TIME.tar.gz)"
    )


def _complete(options: argparse.Namespace) -> int:
    if options.shell not in SHELLS:
        return lazily("kubectl.completing", "show_known")(options)

    from arpguard.cli.completion import complete  # noqa: PLC0415 - shtab is for this command only

    parser = build_parser()
    parser.prog = "kubectl-arpguard"
    return complete(parser, options.shell, _KNOWN)


_COMMANDS = (
    Subcommand(
        "status",
        "a line for each node, and every problem",
        "Shows mode, lease, fence, VIPs and version of each node, and the problems of all nodes. Exit code 1: there "
        "is a problem, or a node did not answer.",
        lazily("kubectl.asking", "show_status"),
        (_add_cluster, _add_nodes, add_output),
    ),
    Subcommand(
        "vips",
        "which node has which VIP, as each node sees it",
        "Shows the guarded VIPs as the kernel of each node has them, grouped by VIP. Exit code 1: no node guards "
        "ADDRESS, or a node did not answer.",
        lazily("kubectl.asking", "show_vips"),
        (_add_cluster, _add_nodes, partial(add_vip_arguments, address="only this VIP")),
    ),
    Subcommand(
        "explain",
        "what each node does with frames about an address, and why",
        "Shows, node by node, what `arpguard explain` says there: verdicts, reasons, and why the address has its "
        "owner and no other. Exit code 1: no node guards the address, or a node did not answer.",
        lazily("kubectl.asking", "explain"),
        (_add_cluster, _add_nodes, add_explain_arguments),
    ),
    Subcommand(
        "decisions",
        "recent decisions of all nodes, or live ones",
        "Shows recent decisions of all nodes, newest first, by the clocks of the nodes. With --follow, shows the last "
        "few, oldest first, and then new ones as they come; says when it loses contact with a node, and keeps trying.",
        lazily("kubectl.asking", "show_decisions"),
        (_add_cluster, _add_nodes, partial(add_decision_arguments, clock="each node's clock")),
    ),
    Subcommand(
        "conflicts",
        "claims to VIPs by other hosts, as each node heard them",
        "Shows the claims to VIPs by other hosts, newest first. Exit code 1: a claim came from a cluster node, or "
        "certainly from a host that is not the owner; or a node did not answer.",
        lazily("kubectl.asking", "show_conflicts"),
        (_add_cluster, _add_nodes, add_conflict_arguments),
    ),
    Subcommand(
        "audit",
        "which hosts answer for the VIPs",
        "Shows what each node's last requests for VIPs found. With ADDRESS, every node sends requests now. Exit code "
        "1: for at least one VIP, another host answers, or the owner does not; or a node did not answer.",
        lazily("kubectl.asking", "audit"),
        (_add_cluster, _add_nodes, add_audit_arguments),
    ),
    Subcommand(
        "watch",
        "a live view of the cluster",
        "Fills the screen, until q or Ctrl-C, with each node and its mode, every VIP with its owner and the node that "
        "answers for it, claims by other hosts, and the problems of all nodes; ? lists the keys. Says when it loses "
        "contact with a node, and tries again every 5 s.",
        lazily("kubectl.watch", "watch"),
        (_add_cluster, _add_nodes, partial(add_interval, default_s=2.0)),
    ),
    Subcommand(
        "doctor",
        "check all nodes for problems with VIPs",
        "Runs `arpguard doctor` on each node, and shows the nodes and their problems, worst first; a problem that "
        "several nodes share takes one line. Changes nothing. Exit code 1: a check failed, or a node did not "
        "answer.",
        lazily("kubectl.doctor", "run_doctor"),
        (
            partial(_add_cluster, timeout_s=60.0),
            _add_nodes,
            _add_no_ask,
            partial(add_output, document="one document with the report of each node"),
        ),
    ),
    Subcommand(
        "mode",
        "switch the cluster between observe and enforce",
        "Changes `mode` in the agents' ConfigMap, and nothing else in it. Waits for each node to switch, and "
        "says which nodes did not, and why. VIPs with a mode of their own keep it. Exit code 1: a node did not "
        "switch in time.",
        lazily("kubectl.mode", "run_mode"),
        (partial(_add_cluster, timeout_s=30.0), _add_mode),
    ),
    Subcommand(
        "bundle",
        "write a support bundle",
        "Writes an archive with the agents' configuration, Leases, Events and Pods, and each node's status, VIPs, "
        "links, conflicts, audit, decisions, doctor's report, maps, metrics and log. Reads no Secret. Exit code 1: "
        "the command could not read something; the archive says what.",
        lazily("kubectl.bundle", "run_bundle"),
        (partial(_add_cluster, timeout_s=60.0), _add_nodes, _add_file),
    ),
    Subcommand(
        "uninstall",
        "remove the agents and the guard from the cluster",
        "Does what `arpguard uninstall` does: deletes the DaemonSet, so that each agent removes its guard; waits "
        "until all agents are gone, removes the Leases that they left, and names the nodes that may still have a "
        "guard. Exit code 1: the agents did not stop in time, or a node may still have a guard.",
        lazily("uninstall", "run_users_uninstall"),
        (partial(_add_cluster, timeout_s=120.0, waits_for="the agents to stop"),),
    ),
    Subcommand(
        "completion",
        "print a completion script for a shell",
        "Prints a completion script for `kubectl-arpguard`, the plugin's own command. Bash: source <(kubectl "
        "arpguard completion bash). For completion after `kubectl`, see docs/kubectl.md. Completes VIPs, links and "
        "nodes of the current context, in the namespace arpguard.",
        _complete,
        (partial(add_shell, known=_KNOWN.values()),),
    ),
)
