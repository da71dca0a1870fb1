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
        "VIPs bound on lo, kube-ipvs0, a dummy or a NIC: would this node's kernel answer for them without a guard?",
    ),
    Check(vips.kube_ipvs, "addresses on kube-proxy's kube-ipvs0 without a guard"),
    Check(vips.vip_refused, "an externalIP or VIP that is a node's address, a gateway, or the API server's"),
    Check(
        vips.vip_on_wire, "which hosts answer for each VIP on the wire: none, one, several, or one outside the cluster"
    ),
    Check(vips.vip_claimed, "other hosts that claim a VIP, according to the running agent"),
    Check(vips.vip_leaks, "ARP requests in the name of a VIP (arp_announce)"),
    Check(settings.arp_ignore, "arp_ignore that silences a VIP, or is set on a device where it has no effect"),
    Check(settings.lvs_dr_loop, "accept_local on a real server: packets that go round until their TTL is 0"),
    Check(settings.same_segment, "two links on one segment that answer for each other (arp_filter)"),
    Check(settings.rp_filter, "rp_filter that drops what comes in on a link"),
    Check(
        settings.takeovers,
        "settings that keep this node from hearing that a VIP moved (drop_gratuitous_arp, drop_unsolicited_na)",
    ),
    Check(settings.proxy_arp, "proxy_arp: answers for what is routed elsewhere"),
    Check(settings.ipv6, "settings that block IPv6 VIPs (disable_ipv6, suppress_frag_ndisc)"),
    Check(
        links.interfaces,
        "entries of `interfaces:` that name lo, a NOARP device, a port of a bridge or bond, or nothing that exists",
    ),
    Check(
        links.can_reach, "can_reach:ADDRESS, in `interfaces:` or an Eip of OpenELB, for which `ip route get` says lo"
    ),
    Check(kubernetes.kube_proxy, "kube-proxy's mode and strictARP"),
    Check(kubernetes.announcers, "objects of other announcers that `owner: follow` needs"),
    Check(
        kubernetes.vouching,
        "obstacles to vouching: the Secret, the EtherType, a lease.vouching.profile that is too fast for this machine",
    ),
    Check(node.agent, "whether the guard is in place, and what its agent reports"),
    Check(links.one_agent, "two agents, or two guards, on one node"),
    Check(links.foreign_programs, "other BPF programs on the links, and whether the guard runs first"),
    Check(node.kernel, "the kernel's version, and BPF's compiler (JIT)"),
    Check(node.tcx, "whether programs can be attached by TCX"),
    Check(links.xdp, "whether `datapath: xdp` works on the links"),
    Check(node.bpffs, "the BPF file system"),
    Check(node.capabilities, "the capabilities of this process"),
    Check(node.clock, "the clock source"),
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
