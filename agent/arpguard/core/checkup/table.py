"""All checks, in the order in which they are shown."""

from dataclasses import dataclass

from arpguard.core.checkup import kubernetes, links, node, settings, vips
from arpguard.core.checkup.findings import Finding, Grade, by_weight, skip, unknown, worst
from arpguard.core.checkup.picture import Inspection, Picture
from arpguard.core.checkup.snapshot import UnreadError


@dataclass(frozen=True, slots=True)
class Check:
    """One check: `asks` says what it is about in a line. Its name, which is stable, is that of the function."""

    run: Inspection
    asks: str

    @property
    def name(self) -> str:
        """The name that the doctor shows, such as vip-bound."""
        return self.run.__name__.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check."""

    check: Check
    findings: tuple[Finding, ...]

    @property
    def grade(self) -> Grade:
        """The worst of its findings."""
        return worst(finding.grade for finding in self.findings)


CHECKS = (
    Check(
        vips.vip_bound,
        "VIPs bound on lo, kube-ipvs0, a dummy device or a NIC: would the kernel answer for them without a guard?",
    ),
    Check(vips.kube_ipvs, "unguarded addresses on kube-proxy's device kube-ipvs0"),
    Check(vips.vip_refused, "an externalIP or VIP that is the address of a node, a gateway or the API server"),
    Check(
        vips.vip_on_wire, "which hosts answer for each VIP on the wire: none, one, several, or one outside the cluster"
    ),
    Check(vips.vip_claimed, "other hosts that claim a VIP, according to the running agent"),
    Check(vips.vip_leaks, "this node's ARP requests with a VIP as sender (arp_announce)"),
    Check(settings.arp_ignore, "an arp_ignore that silences a VIP, or that is set on a device where it has no effect"),
    Check(settings.lvs_dr_loop, "accept_local on an LVS real server: packets that loop until their TTL is 0"),
    Check(settings.same_segment, "two links on one segment that answer for each other's addresses (arp_filter)"),
    Check(settings.rp_filter, "an rp_filter that drops packets that come in on a link"),
    Check(
        settings.takeovers,
        "settings that keep this node from learning that a VIP has moved (drop_gratuitous_arp, drop_unsolicited_na)",
    ),
    Check(settings.proxy_arp, "proxy_arp: answers for addresses that this node routes through another link"),
    Check(settings.ipv6, "settings that block IPv6 VIPs (disable_ipv6, suppress_frag_ndisc)"),
    Check(
        links.interfaces,
        "entries of `interfaces:` that name lo, a NOARP device, a port of a bridge or bond, or no existing link",
    ),
    Check(
        links.can_reach, "can_reach:ADDRESS, in `interfaces:` or an Eip of OpenELB, for which `ip route get` says lo"
    ),
    Check(kubernetes.kube_proxy, "kube-proxy's mode, and whether strictARP is set"),
    Check(kubernetes.announcers, "whether the announcers' objects that `owner: follow` needs can be read"),
    Check(
        kubernetes.vouching,
        "obstacles to vouching: the Secret, the EtherType, a lease.vouching.profile that is too fast for this machine",
    ),
    Check(node.agent, "whether the guard is in place, and what its agent reports"),
    Check(links.one_agent, "two agents, or two guards, on one node"),
    Check(links.foreign_programs, "other BPF programs on the links, and whether the guard runs first"),
    Check(node.kernel, "the kernel's version, and whether its compiler for BPF (JIT) is on"),
    Check(node.tcx, "whether programs can be attached by TCX"),
    Check(links.xdp, "whether `datapath: xdp` works on the links"),
    Check(node.bpffs, "whether the pin directory is on a BPF file system"),
    Check(node.capabilities, "whether this process has the capabilities that an agent needs"),
    Check(node.clock, "whether the kernel's clock source is a fast one"),
)


_NOTHING = skip("there was nothing to check")


def examine(picture: Picture) -> tuple[Result, ...]:
    """All checks on one picture; of each the worst findings first."""
    return tuple(Result(check, _findings(check, picture)) for check in CHECKS)


def _findings(check: Check, picture: Picture) -> tuple[Finding, ...]:
    try:
        return by_weight(check.run(picture)) or (_NOTHING,)
    except UnreadError as error:
        return (unknown(str(error)),)
