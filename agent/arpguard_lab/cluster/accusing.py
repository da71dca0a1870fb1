"""What agents say of hosts that answer for VIPs that are not theirs: false wherever one node alone answers."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from arpguard.core.decisions import CONTESTED

_EVENTS = {"VIPAnsweredByOthers", "VIPConflict", "VIPSplitBrain"}
# The audit's with the MAC of a host, or a claim that counts.
_PROBLEM = re.compile(rf"audit: .*([0-9a-f]{{2}}:){{5}}|{re.escape(CONTESTED.partition('{')[0])}")


def accusations(events: Iterable[Mapping[str, Any]], statuses: Iterable[Mapping[str, Any]]) -> set[str]:
    """The sentences that accuse a host, in Events (events.k8s.io/v1) and in the problems of agents' statuses."""
    told = {event["note"] for event in events if event["reason"] in _EVENTS}
    return told | {text for status in statuses for text in status.get("problems", ()) if _PROBLEM.match(text)}
