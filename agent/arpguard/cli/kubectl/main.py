"""The command line: `kubectl arpguard COMMAND`, installed as `kubectl-arpguard` for kubectl to find."""

import argparse
from pathlib import Path

from arpguard import __version__
from arpguard.cli.kubectl.examples import EXAMPLES
from arpguard.cli.options import (
    KNOWN,
    SHELLS,
    SubParsers,
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
    "exit codes: 0 ok, 1 a check failed, or a node did not answer, 2 bad usage or configuration, 3 the API server, "
    "or every node, cannot be reached"
)
_KNOWN = {**KNOWN, "node": "nodes"}
_ASKED = "Asks all nodes at once, through the API server, and says which do not answer, and why. "


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser: argparse.ArgumentParser = Parser(
        prog="kubectl arpguard",
        description="Asks the arpguard agents of a cluster through its API server.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"kubectl arpguard {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    _add_status(subparsers)
    _add_vips(subparsers)
    _add_explain(subparsers)
    _add_decisions(subparsers)
    _add_conflicts(subparsers)
    _add_audit(subparsers)
    _add_watch(subparsers)
    _add_doctor(subparsers)
    _add_mode(subparsers)
    _add_bundle(subparsers)
    _add_uninstall(subparsers)
    _add_completion(subparsers)

    return parser


def main(arguments: list[str] | None = None) -> None:
    """Entry point; leaves by SystemExit."""
    run(build_parser(), arguments)


def _command(
    subparsers: "SubParsers[argparse.ArgumentParser]", name: str, brief: str, text: str, timeout_s: float = 15.0
) -> argparse.ArgumentParser:
    """A parser with what all commands know."""
    parser = add_command(subparsers, name, brief, text, EXAMPLES.get(name, ""))
    cluster = parser.add_argument_group("the cluster")
    cluster.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)"
    )
    cluster.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    cluster.add_argument(
        "-n", "--namespace", default="arpguard", metavar="NS", help="namespace of the agents (default: arpguard)"
    )

    cluster.add_argument(
        "--timeout",
        type=seconds(0.1),
        default=timeout_s,
        metavar="S",
        help=f"seconds to wait for each node (default: {timeout_s:g})",
    )
    return parser


def _asking(
    subparsers: "SubParsers[argparse.ArgumentParser]", name: str, brief: str, text: str, timeout_s: float = 15.0
) -> argparse.ArgumentParser:
    """The same for a command that asks nodes."""
    parser = _command(subparsers, name, brief, _ASKED + text, timeout_s)
    parser.add_argument(
        "--node", action="append", default=[], metavar="NODE", help="only this node; may be given again (default: all)"
    )
    return parser


def _add_status(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = _asking(
        subparsers,
        "status",
        "a line for each node, and every problem",
        "Shows mode, lease, fence, VIPs and version of each node, and the problems of all. Exit code 1: there is a "
        "problem, or a node did not answer.",
    )
    add_output(parser)
    parser.set_defaults(run=lazily("kubectl.asking", "show_status"))


def _add_vips(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = _asking(
        subparsers,
        "vips",
        "who has which VIP, as each node sees it",
        "Shows the guarded VIPs as the kernel of each node has them, grouped by VIP. Exit code 1: no node guards "
        "ADDRESS, or a node did not answer.",
    )
    add_vip_arguments(parser, "only this one")
    parser.set_defaults(run=lazily("kubectl.asking", "show_vips"))


def _add_explain(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = _asking(
        subparsers,
        "explain",
        "what each node does with frames about an address, and why",
        "Shows, node by node, what `arpguard explain` says there: verdicts, reasons, and why the address has its "
        "owner and no other. Exit code 1: no node guards the address, or a node did not answer.",
    )
    add_explain_arguments(parser)
    parser.set_defaults(run=lazily("kubectl.asking", "explain"))


def _add_decisions(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = _asking(
        subparsers,
        "decisions",
        "recent decisions of all nodes, or live ones",
        "Shows recent decisions of all nodes, newest first. With --follow, shows the last few, oldest first, and "
        "then new ones as they come. Sorts them by the clocks of the nodes. With --follow, says when it loses a "
        "node, and tries it again.",
    )
    add_decision_arguments(parser)
    parser.set_defaults(run=lazily("kubectl.asking", "show_decisions"))


def _add_conflicts(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = _asking(
        subparsers,
        "conflicts",
        "hosts that claimed a VIP, as each node heard it",
        "Shows which hosts claimed a VIP that is not, or may not be, theirs, newest first. Exit code 1: a claim "
        "certainly came from another host, or came from a cluster node; or a node did not answer.",
    )
    add_conflict_arguments(parser)
    parser.set_defaults(run=lazily("kubectl.asking", "show_conflicts"))


def _add_audit(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = _asking(
        subparsers,
        "audit",
        "who answers for the VIPs on the wire",
        "Shows what each node's last questions on the wire found. With ADDRESS, every node asks now. Exit code 1: "
        "for one of them, the owner is not the only host that answers, or a node did not answer.",
    )
    parser.add_argument("vip", metavar="ADDRESS", nargs="?", default="", help="the VIP to ask for now (default: none)")
    add_output(parser)
    parser.set_defaults(run=lazily("kubectl.asking", "audit"))


def _add_watch(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = _asking(
        subparsers,
        "watch",
        "a live view of the cluster",
        "Shows each node with its mode, every VIP with its owner and the node that answers for it, claims of other "
        "hosts, and the problems of all nodes, full screen, until q or Ctrl-C; ? lists the keys. Says when it loses a "
        "node, and tries it again every 5 s.",
    )
    add_interval(parser, 2.0)
    parser.set_defaults(run=lazily("kubectl.watch", "watch"))


def _add_doctor(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = _asking(
        subparsers,
        "doctor",
        "check all nodes for problems with VIPs",
        "Runs `arpguard doctor` on each node, and shows the nodes and their problems, worst first; a problem that "
        "several nodes share is one line. Changes nothing. Exit code 1: a check came out bad, or a node did not "
        "answer.",
        timeout_s=60.0,
    )
    parser.add_argument("--no-ask", action="store_true", help="do not ask the segment for VIPs")
    add_output(parser)
    parser.set_defaults(run=lazily("kubectl.doctor", "run_doctor"))


def _add_mode(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = _command(
        subparsers,
        "mode",
        "switch the cluster between observe and enforce",
        "Changes `mode` in the agents' ConfigMap, and nothing else in it, waits until each node has switched, and "
        "says which have not, and why. VIPs with a mode of their own keep it. Exit code 1: a node did not switch in "
        "time.",
        timeout_s=30.0,
    )
    parser.add_argument("mode", choices=("observe", "enforce"))
    parser.set_defaults(run=lazily("kubectl.mode", "run_mode"), node=[])


def _add_bundle(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = _asking(
        subparsers,
        "bundle",
        "write a support bundle",
        "Writes an archive with the agents' configuration, Leases, Events and Pods, and each node's status, VIPs, "
        "links, conflicts, audit, decisions, doctor's report, maps, metrics and log. Reads no Secret. Exit code 1: "
        "something could not be read; the archive says what.",
        timeout_s=60.0,
    )
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="the archive (default: arpguard-DATE-TIME.tar.gz)"
    )
    parser.set_defaults(run=lazily("kubectl.bundle", "run_bundle"))


def _add_uninstall(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = _command(
        subparsers,
        "uninstall",
        "take the agents and their guards out of the cluster",
        "Does what `arpguard uninstall` does: deletes the DaemonSet so that each agent removes its guard, waits for "
        "that, removes leftover Leases, and names the nodes that may still have a guard. Exit code 1: the agents did "
        "not stop in time, or a node may still have a guard.",
        timeout_s=120.0,
    )
    parser.set_defaults(run=_uninstall)


def _uninstall(options: argparse.Namespace) -> int:
    from arpguard.cli.uninstall import run_uninstall  # noqa: PLC0415 - for this command only
    from arpguard.kube.connecting import find_users_access  # noqa: PLC0415 - as above

    options.daemonset = f"{options.namespace}/arpguard"
    return run_uninstall(options, find_users_access(options.kubeconfig, options.context))


def _add_completion(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = add_command(
        subparsers,
        "completion",
        "print a completion script for a shell",
        "Prints a completion script for `kubectl-arpguard`, the plugin's own command. Bash: source <(kubectl "
        "arpguard completion bash). To complete after `kubectl`: docs/kubectl.md. Completes VIPs, links and nodes of "
        "the current context, in the namespace arpguard.",
        EXAMPLES["completion"],
    )
    add_shell(parser, _KNOWN.values())
    parser.set_defaults(run=_complete)


def _complete(options: argparse.Namespace) -> int:
    if options.shell not in SHELLS:
        return lazily("kubectl.completing", "show_known")(options)

    from arpguard.cli.completion import complete  # noqa: PLC0415 - shtab is for this command only

    parser = build_parser()
    parser.prog = "kubectl-arpguard"
    return complete(parser, options.shell, _KNOWN)
