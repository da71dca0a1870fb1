"""Settings of a valid configuration that may not do what its author meant."""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass

from arpguard.config.model import AgentConfig
from arpguard.config.reading import Trail
from arpguard.core.bounding import some
from arpguard.model import OwnerKind, Vip


@dataclass(frozen=True, slots=True)
class Caution:
    """One of them. `steps`: the first of the settings that it is about."""

    text: str
    steps: Trail

    def __str__(self) -> str:
        return self.text


def without_effect(config: AgentConfig) -> list[Caution]:
    """Settings that do nothing."""
    text = "vips: hold has no effect on {}: it applies only to a VIP with owner elect"
    return _of_vips(config, lambda vip: vip.unfenced and not vip.elected, "hold", text)


def needs_cluster(config: AgentConfig) -> list[Caution]:
    """VIPs that an agent without Kubernetes cannot answer for."""
    text = "vips: owner elect needs Kubernetes; without it, no node answers for {}: set the owner to a node or external"
    return _of_vips(config, lambda vip: vip.elected, "owner", text)


def _of_vips(config: AgentConfig, is_meant: Callable[[Vip], bool], key: str, text: str) -> list[Caution]:
    """One caution about all VIPs that are meant, if there are any."""
    found = [number for number, vip in enumerate(config.vips) if is_meant(vip)]
    addresses = [config.vips[number].address for number in found]
    return [Caution(text.format(some(addresses)), ("vips", found[0], key))] if found else []


_NEAR = 0.8
_SHOWN = 64  # what is longer is near nothing; comparing takes the square of its length


def misnamed(config: AgentConfig, node: str, *, by_host: bool) -> list[str]:
    """Warns that no VIP names this node, whose name seems to be wrong. `by_host`: the name is the host's, not given.

    A node that is numbered like an owner may well own nothing, and so may one whose name somebody gave.
    """
    owners = sorted({vip.owner.node for vip in config.vips if vip.owner.node})
    follows = any(vip.owner.kind is OwnerKind.KEEPALIVED for vip in config.vips)
    if not owners or node in owners or follows:
        return []

    numbered = any(_unnumbered(owner) == _unnumbered(node) for owner in owners)
    meant = next((owner for owner in owners if _resembles(node, owner)), None)
    if numbered or not (meant or by_host):
        return []
    named = f"no VIP names this node ({node}) as its owner; the VIPs name {some(owners)}"
    remedy = (
        f"start the agent with --node-name {meant}"
        if meant
        else "set --node-name to the name that `vips:` has for this node"
    )
    return [f"vips: {named}: {remedy}"]


def _unnumbered(name: str) -> str:
    return re.sub("[0-9]+", "#", name)


def _resembles(one: str, other: str) -> bool:
    """Whether two names differ in case, in the domain behind them, or in a letter or two."""
    one, other = one.lower()[:_SHOWN], other.lower()[:_SHOWN]
    same_host = one.partition(".")[0] == other.partition(".")[0]
    return same_host or difflib.SequenceMatcher(None, one, other).ratio() >= _NEAR
