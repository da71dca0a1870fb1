"""What a valid configuration says that may not do what its writer meant."""

import difflib
import re

from arpguard.config.model import AgentConfig
from arpguard.core.bounding import some
from arpguard.model import OwnerKind


def without_effect(config: AgentConfig) -> list[str]:
    """Settings that do nothing."""
    held = [vip.address for vip in config.vips if vip.unfenced and not vip.elected]
    return [f"vips: hold has no effect on {some(held)}: only a VIP with owner elect has it"] if held else []


def needs_cluster(config: AgentConfig) -> list[str]:
    """VIPs that an agent without Kubernetes cannot answer for."""
    elected = [vip.address for vip in config.vips if vip.elected]
    if not elected:
        return []
    without = f"without it no node answers for {some(elected)}"
    return [f"vips: owner elect needs Kubernetes; {without}: name a node, or external"]


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
    named = f"no VIP names this node ({node}) as its owner; they name {some(owners)}"
    remedy = f"start the agent with --node-name {meant}" if meant else "give the agent this node's name (--node-name)"
    return [f"vips: {named}: {remedy}"]


def _unnumbered(name: str) -> str:
    return re.sub("[0-9]+", "#", name)


def _resembles(one: str, other: str) -> bool:
    """Whether two names differ in case, in the domain behind them, or in a letter or two."""
    one, other = one.lower()[:_SHOWN], other.lower()[:_SHOWN]
    same_host = one.partition(".")[0] == other.partition(".")[0]
    return same_host or difflib.SequenceMatcher(None, one, other).ratio() >= _NEAR
