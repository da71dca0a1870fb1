"""What a valid configuration says that may not do what its writer meant."""

from arpguard.config.model import AgentConfig
from arpguard.core.bounding import some


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
