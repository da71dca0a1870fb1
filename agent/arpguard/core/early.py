"""What is closed at boot, before this node's agent runs: the configuration of `arpguard early`, which the agent writes.

It names links that are there before the network is set up: NICs, and of a bridge, bond or team its NICs, through which
all frames for it come. This node's own addresses, which no link has yet, are exceptions in it.
"""

import json
from collections.abc import Iterable

from arpguard.config.model import AgentConfig
from arpguard.core.closing import Closing
from arpguard.model import Link, Surroundings
from arpguard.verdict import Mode

_THERE_FIRST = ("", "veth")  # hardware; a namespace's
_OF_PORTS = ("bond", "bridge", "team")


def early_config(config: AgentConfig, closing: Closing, links: Iterable[Link], around: Surroundings) -> str:
    """The text of the configuration; empty where nothing is closed, be it that this node only observes."""
    names = list(dict.fromkeys(first.name for link in links for first in _first(link, around)))
    if config.mode is not Mode.ENFORCE or not closing.closed or not names:
        return ""
    ranges = [{"network": str(network), "unknown": "suppress"} for network in closing.closed]
    ranges += [{"network": str(network), "unknown": "pass"} for network in closing.open]
    bpf = {"pin_dir": str(config.bpf.pin_dir), "max_entries": config.bpf.max_entries}
    text = {"mode": "enforce", "interfaces": names, "ranges": ranges, "bpf": bpf}
    return json.dumps(text, indent=1) + "\n"


def _first(link: Link, around: Surroundings) -> list[Link]:
    """The links that frames for this one come through."""
    if link.kind in _OF_PORTS:
        ports = (each for each in around.links if each.master == link.ifindex)
        return [first for port in ports for first in _first(port, around)]
    return [link] if link.kind in _THERE_FIRST else []
