"""`arpguard lab`: its options; what it does is in a package of its own, `arpguard_lab`."""

import argparse
from importlib import import_module
from pathlib import Path

from arpguard.cli import exits
from arpguard.cli.exits import AskError
from arpguard.cli.options import SubParsers, add_json, add_output, positive


def add_lab(subparsers: "SubParsers[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    parser = subparsers.add_parser(
        "lab",
        help="try the guard in network namespaces on this machine",
        description="Builds nodes, a switch and a client in network namespaces, sends real ARP requests or "
        "neighbour solicitations to see which nodes answer for a VIP with and without the guard, and then removes "
        "everything. Exit code 0: each scenario ended as expected. Needs root.",
    )

    parser.add_argument("--nodes", type=int, default=3, metavar="N", help="cluster nodes, 2 to 16 (default: 3)")
    parser.add_argument(
        "--scenario",
        action="append",
        metavar="NAME",
        help="run only this scenario; may be repeated (default: flux; with --kubernetes: all)",
    )
    parser.add_argument(
        "--all", action="store_true", help="run all scenarios, some of them at the same time: about a minute"
    )

    parser.add_argument(
        "--kubernetes",
        action="store_true",
        help="run scenarios whose agents use an API server: the lab's own, or the one that $ARPGUARD_TEST_KUBECONFIG "
        "names",
    )
    parser.add_argument(
        "--rounds",
        type=positive(int),
        metavar="N",
        help="with --kubernetes: run N rounds of random faults, about 4 s each, with a verdict on each; an interrupted "
        "run reports what it found so far",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=positive(float),
        metavar="SECONDS",
        help="with --kubernetes: run rounds of random faults for this long, instead of --rounds",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="S",
        help="seed of the random faults: the same seed repeats them; the report names the seed (default: a new one)",
    )

    parser.add_argument(
        "--vouching",
        action="store_true",
        help="with --rounds or --for: the nodes vouch for each other, and frames are also lost, delayed, duplicated "
        "and replayed",
    )

    parser.add_argument(
        "--traces",
        type=Path,
        metavar="FOLDER",
        help="with --kubernetes: write the traces of the agents (arpguard agent --trace) and the journal of the "
        "lab's API server to this folder, in a subfolder for each scenario (default: no traces)",
    )

    parser.add_argument("--list", action="store_true", help="list the scenarios, with what each expects")
    add_output(parser, "one document with all steps (with --list: all scenarios)")
    add_json(parser)

    parser.set_defaults(run=_run_lab)


def _run_lab(options: argparse.Namespace) -> int:
    """Runs the lab, found by its name: this package imports nothing of the lab, and images do not have it."""
    try:
        lab = import_module("arpguard_lab.command")
    except ModuleNotFoundError as error:
        if error.name != "arpguard_lab":
            raise
        raise AskError(exits.USAGE, "the lab is not installed here: run `make lab` in a checkout") from None
    code: int = lab.run_lab(options)
    return code
