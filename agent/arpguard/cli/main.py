"""The command line: `arpguard COMMAND`.

Exit codes: 0 ok, 1 a check failed, 2 bad usage or configuration, 3 the agent or kernel
cannot be reached.
"""

import argparse
import os
from pathlib import Path

from arpguard import __version__
from arpguard.cli.lab import add_lab
from arpguard.cli.logs import add_log_options
from arpguard.cli.options import (
    ASKING,
    DEFAULT_TARGET,
    EXAMPLES,
    KNOWN,
    SHELLS,
    SubParsers,
    add_command,
    add_json,
    add_output,
    add_shell,
    lazily,
    object_name,
    positive,
)
from arpguard.cli.parser import Parser
from arpguard.cli.replay.options import REPLAY, REPLAY_EXAMPLES
from arpguard.cli.running import run
from arpguard.config.model import BpfConfig

_EARLY_FILE = Path("/var/lib/arpguard/early.yaml")
_EPILOG = (
    "exit codes: 0 ok, 1 a check failed, 2 bad usage or configuration, 3 the agent or the kernel cannot be reached"
)


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser: argparse.ArgumentParser = Parser(
        prog="arpguard", description="Makes sure that at most one node answers for a virtual IP.", epilog=_EPILOG
    )
    parser.add_argument("--version", action="version", version=f"arpguard {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    _add_agent(subparsers)
    _add_early(subparsers)
    add_lab(subparsers)
    for command in ASKING:
        add_command(subparsers, command, EXAMPLES.get(command.name, ""))
    _add_whohas(subparsers)
    add_command(subparsers, REPLAY, REPLAY_EXAMPLES)
    _add_doctor(subparsers)
    _add_config(subparsers)
    _add_cleanup(subparsers)
    _add_uninstall(subparsers)
    _add_completion(subparsers)

    return parser


def main(arguments: list[str] | None = None) -> None:
    """Entry point; leaves by SystemExit."""
    run(build_parser(), arguments)


def _add_agent(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "agent",
        help="run the agent on this node",
        description="Guards the configured VIPs on this node, follows changes to the configuration and to the "
        "node's links, and leaves the guard in place when it stops. With --configmap or --kubeconfig, also guards "
        "the VIPs of the cluster's Services; with neither, runs standalone.",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration file (YAML), reloaded when it changes; with --configmap, used only until the agent has "
        "read the ConfigMap, and for settings that take effect only at startup",
    )
    parser.add_argument(
        "--configmap",
        type=object_name,
        metavar="NS/NAME",
        help="take the configuration from the key config.yaml of this ConfigMap, and reload it when it changes",
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="F",
        help="kubeconfig file (default with --configmap: the Pod's service account)",
    )

    _add_node_name(parser)
    parser.add_argument(
        "--standby",
        action="store_true",
        help="if another agent runs on this node, get ready, wait until that agent stops, and then take over from it",
    )
    parser.add_argument(
        "--early-file",
        type=Path,
        metavar="FILE",
        help="file to record the ranges that `arpguard early` closes at the next boot",
    )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="in a cluster, append the events of the claim protocol to this file, one line of JSON each, until the "
        "file reaches 100 MB (default: no trace)",
    )

    add_log_options(parser)
    parser.set_defaults(run=lazily("agent", "run_agent"))


def _add_early(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "early",
        help="close ranges at boot: answer for none of their addresses until the agent runs",
        description="Closes the ranges for which FILE says `unknown: suppress`, on the links that FILE names: this "
        "node's kernel answers for no address in them until the agent starts and takes over. Does nothing if an "
        "agent has guarded this node since the last boot.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the file that an agent wrote with --early-file")
    parser.add_argument(
        "--wait",
        type=positive(float),
        default=3.0,
        metavar="S",
        help="seconds to wait for the links to appear (default: 3)",
    )
    add_log_options(parser)
    parser.set_defaults(run=lazily("early", "run_early"))


def _add_node_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node-name",
        default=os.environ.get("NODE_NAME"),
        metavar="N",
        help="this node's name in `owner: {node: N}` (default: $NODE_NAME, then the host name)",
    )


def _add_whohas(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "whohas",
        help="ask the segment which hosts answer for an address",
        description="Sends ARP requests, or neighbour solicitations for an IPv6 address. Shows every MAC that answers, "
        "its host if known (a virtual router, a node that this node's agent knows, or a neighbour), and what the "
        "result means. Exit code 0: exactly one host answers; 1: none does, or more than one. This node does not hear "
        "its own answers: for a VIP that this node owns, ask from another host.",
    )

    parser.add_argument("address", metavar="ADDRESS", help="an IPv4 or IPv6 address")
    parser.add_argument(
        "--interface",
        metavar="I",
        help="ask on this interface (default: the one that the routes choose, ignoring table `local`)",
    )
    parser.add_argument("--count", type=positive(int), default=3, metavar="N", help="requests to send (default: 3)")
    parser.add_argument(
        "--wait",
        type=positive(float),
        default=0.5,
        metavar="S",
        help="seconds to listen after each request (default: 0.5)",
    )

    parser.add_argument(
        "--address",
        dest="agent",
        metavar="TARGET",
        help=f"the agent to ask which node has a MAC (default: $ARPGUARD_ADDRESS, then {DEFAULT_TARGET})",
    )
    add_output(parser, "one document with all answers")
    add_json(parser)

    parser.set_defaults(run=lazily("whohas", "run_whohas"))


def _add_doctor(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="check this node for problems with VIPs",
        description="Checks the node (the network namespace that the command runs in): the VIPs that it "
        "would answer for without the guard, the kernel's settings, the links, the guard, and what the guard needs; "
        "with --kubeconfig or in a Pod, also the cluster's Services, Nodes and kube-proxy. Asks the segment which "
        "hosts answer for the VIPs; changes nothing. Exit code 1: a check failed.",
    )

    parser.add_argument("--config", type=Path, metavar="FILE", help="file with the agent's configuration")
    parser.add_argument(
        "--configmap",
        type=object_name,
        metavar="NS/NAME",
        help="ConfigMap with the agent's configuration (key config.yaml)",
    )
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="F", help="kubeconfig file (default in a Pod: its service account)"
    )

    _add_node_name(parser)
    parser.add_argument(
        "--address",
        dest="agent",
        metavar="TARGET",
        help="address of the agent on this node (default: the first one in grpc.listen)",
    )
    parser.add_argument(
        "--pin-dir", type=Path, metavar="DIR", help="use this instead of the configuration's bpf.pin_dir"
    )

    parser.add_argument("--no-ask", action="store_true", help="do not ask the segment which hosts answer for the VIPs")
    parser.add_argument(
        "--fix-hints", action="store_true", help="print the shell commands that fix the problems, without running them"
    )

    add_output(parser, "one document with all checks")
    add_json(parser)

    parser.set_defaults(run=lazily("doctor", "run_doctor"))


def _add_config(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("config", help="work with configuration files")
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, help="what to do; the only action is check"
    )
    check = actions.add_parser(
        "check",
        help="print every problem of a configuration",
        description="Prints every problem with its line, its setting, the allowed values and the actual value. Warns "
        "about settings that have no effect. Exit code 2: there is a problem.",
    )
    check.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="configuration (YAML), or the manifest of a ConfigMap; - reads standard input",
    )
    add_output(check, "a document with all problems and warnings")
    check.set_defaults(run=lazily("config", "check_config"))


def _add_cleanup(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "cleanup",
        help="remove the guard from this node",
        description="Detaches and unpins everything that an agent left in place, and removes the file that the agent "
        "wrote for `arpguard early`. Stop the agent first.",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the agent's configuration; only its bpf.pin_dir is used"
    )
    _add_pin_dir(parser)
    parser.add_argument(
        "--early-file",
        type=Path,
        default=_EARLY_FILE,
        metavar="FILE",
        help="the agent's --early-file; also removed, unless the file names another bpf.pin_dir "
        f"(default: {_EARLY_FILE})",
    )
    parser.set_defaults(run=lazily("cleanup", "clean_up"))


def _add_pin_dir(parser: argparse.ArgumentParser) -> None:
    default = BpfConfig().pin_dir
    parser.add_argument(
        "--pin-dir",
        type=Path,
        default=default,
        metavar="DIR",
        help=f"the agent's bpf.pin_dir (default: {default})",
    )


def _add_uninstall(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "uninstall",
        help="remove the agents and the guard from a cluster",
        description="Deletes the DaemonSet by foreground deletion, so that each agent removes its guard; waits until "
        "all agents are gone, and removes the Leases that they left. Then names the nodes that may still have a guard. "
        "Run this command before you delete arpguard's other objects; `helm uninstall` runs it for you. Exit code 1: "
        "the agents did not stop in time, or a node may still have a guard.",
    )
    parser.add_argument(
        "--daemonset",
        type=object_name,
        default="arpguard/arpguard",
        metavar="NS/NAME",
        help="the agents' DaemonSet (default: arpguard/arpguard)",
    )
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="F", help="kubeconfig file (default: the Pod's service account)"
    )
    parser.add_argument(
        "--timeout",
        type=positive(float),
        default=120.0,
        metavar="S",
        help="seconds to wait for the agents to stop (default: 120)",
    )
    parser.set_defaults(run=lazily("uninstall", "run_uninstall"))


def _add_completion(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Prints a completion script. Bash: source <(arpguard completion bash). Zsh: write it to _arpguard "
        "in a folder of $fpath. Fish: write it to arpguard.fish in ~/.config/fish/completions. Tcsh: write it to a "
        "file, and source the file.",
    )
    add_shell(parser, KNOWN.values())
    parser.set_defaults(run=_complete)


def _complete(options: argparse.Namespace) -> int:
    if options.shell not in SHELLS:
        return lazily("completing", "show_known")(options)

    from arpguard.cli.completion import complete  # noqa: PLC0415 - shtab is for this command only

    return complete(build_parser(), options.shell, KNOWN)
