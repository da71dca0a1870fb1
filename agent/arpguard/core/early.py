"""What is closed at boot, before this node's agent runs: the configuration of `arpguard early`, which the agent writes.

It names links that exist before the network is set up: NICs, and for a bridge, bond or team its NICs, through which all
its frames arrive. A container's port of a bridge appears later, and is not named. This node's own addresses, which no
link has yet, are listed as exceptions.
"""

import json
from collections.abc import Iterable, Sequence

from arpguard.config.model import MAX_INTERFACES, AgentConfig
from arpguard.core.closing import Closing
from arpguard.model import Link, Surroundings
from arpguard.verdict import Mode

_THERE_FIRST = ("", "veth")  # hardware; a namespace's
_OF_PORTS = ("bond", "bridge", "team")


def early_config(config: AgentConfig, closing: Closing, names: Sequence[str]) -> str:
    """The text of the configuration; empty where nothing is closed, be it that this node only observes.

    Of the links in `names` it takes the first, as many as a configuration may have.
    """
    if config.mode is not Mode.ENFORCE or not closing.closed or not names:
        return ""
    ranges = [{"network": str(network), "unknown": "suppress"} for network in closing.closed]
    ranges += [{"network": str(network), "unknown": "pass"} for network in closing.open]
    bpf = {"pin_dir": str(config.bpf.pin_dir), "max_entries": config.bpf.max_entries}
    text = {"mode": "enforce", "interfaces": list(names[:MAX_INTERFACES]), "ranges": ranges, "bpf": bpf}
    return json.dumps(text, indent=1) + "\n"


def early_links(links: Iterable[Link], around: Surroundings) -> list[str]:
    """The names of the links that frames for these links pass through, and that exist first."""
    return list(dict.fromkeys(first.name for link in links for first in _first(link, around)))


def _first(link: Link, around: Surroundings) -> list[Link]:
    if link.kind in _OF_PORTS:
        ports = (each for each in around.links if each.master == link.ifindex)
        return [first for port in ports if not _is_containers(port, link) for first in _first(port, around)]
    return [link] if link.kind in _THERE_FIRST else []


def _is_containers(port: Link, master: Link) -> bool:
    return (port.kind, master.kind) == ("veth", "bridge")
