"""1,000 VIPs come and go at once on a real control plane, while others are asked for: the lab's scenario `burst`.

    PYTHONPATH=tests python -m neighbours.burst [--write docs/neighbours.md]

The agents have the rights and settings of `deploy/base`, and no FlowSchema of their own. Exits 1 when a request for
the others was lost, or a claim was left after 30 s.
"""

import argparse
import sys
from ipaddress import IPv4Address
from pathlib import Path

from arpguard_lab.bench import Step
from arpguard_lab.cluster.burst import run_burst
from arpguard_lab.topology import Host
from neighbours.controlplane import missing
from neighbours.pages import replace_table, surroundings
from neighbours.scene import a_street_alone, end_by_signals
from neighbours.takeover import Elected

RANGES = "[198.51.100.48/28, 198.18.4.0/22]"
_SAID = ("owned_after_s", "claims_gone_after_s", "agents_cpu_ms_per_vip", "requests", "lost", "overlaps")


class Nobody(Elected):
    """No announcer: all VIPs are elected."""

    name = "no announcer"

    @property
    def services(self) -> dict[str, IPv4Address]:
        return {}

    def publish(self) -> None:
        """The scenario does."""

    def start(self, host: Host) -> None:
        """Nothing runs beside the agents."""


def table(step: Step) -> str:
    lines = [surroundings(), "", "| 1,000 VIPs, three nodes | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {step.facts[name]} |" for name in _SAID), ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", type=Path, help="the page whose table is replaced")
    asked = parser.parse_args()
    if (why := missing()) is not None:
        print(f"neighbours: skipped: {why}")
        return 0
    end_by_signals()
    with a_street_alone(Nobody) as street:
        street.configure(street.config(ranges=RANGES))
        step, *_ = run_burst(street)
    print(table(step), step.remark())
    if asked.write:
        replace_table(asked.write, "burst", table(step))
    return 0 if step.ok else 1


if __name__ == "__main__":
    sys.exit(main())
