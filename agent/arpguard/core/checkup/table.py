"""All checks, in the order in which they are shown."""

from dataclasses import dataclass

from arpguard.core.checkup import kubernetes, links, node, settings, vips
from arpguard.core.checkup.findings import Finding, Grade, by_weight, unknown, worst
from arpguard.core.checkup.picture import Look, Picture


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `name` is stable, `asks` what it is about in a line."""

    name: str
    asks: str
    run: Look


@dataclass(frozen=True, slots=True)
class Result:
    """What a check came to."""

    check: Check
    findings: tuple[Finding, ...]

    @property
    def grade(self) -> Grade:
        """The worst of its findings."""
        return worst(finding.grade for finding in self.findings)


CHECKS = (
    Check(
        "vip-bound",
        "VIPs bound on lo, kube-ipvs0, a dummy or a NIC: would this node's kernel answer, unguarded?",
        vips.vip_bound,
    ),
    Check("kube-ipvs", "addresses on kube-proxy's kube-ipvs0 that nobody guards", vips.kube_ipvs),
    Check(
        "vip-refused", "an externalIP or VIP that is a node's address, a gateway, or the API server's", vips.vip_refused
    ),
    Check(
        "vip-on-wire",
        "who answers for each VIP on the wire: nobody, one, several, a host outside the cluster",
        vips.vip_on_wire,
    ),
    Check("vip-claimed", "others that claim a VIP, as the running agent has heard", vips.vip_claimed),
    Check("vip-leaks", "ARP requests in the name of a VIP (arp_announce)", vips.vip_leaks),
    Check(
        "arp-ignore",
        "arp_ignore that keeps a VIP dark, or is set on a device where it counts for nothing",
        settings.arp_ignore,
    ),
    Check(
        "lvs-dr-loop", "accept_local on a real server: packets that go round until their TTL is 0", settings.lvs_dr_loop
    ),
    Check("same-segment", "two links on one segment that answer for each other (arp_filter)", settings.same_segment),
    Check("rp-filter", "rp_filter that drops what comes in on a link", settings.rp_filter),
    Check(
        "takeovers",
        "settings that keep this node from hearing that a VIP moved (drop_gratuitous_arp, drop_unsolicited_na)",
        settings.takeovers,
    ),
    Check("proxy-arp", "proxy_arp: answers for what is routed elsewhere", settings.proxy_arp),
    Check("ipv6", "settings in the way of IPv6 VIPs (disable_ipv6, suppress_frag_ndisc)", settings.ipv6_settings),
    Check(
        "interfaces",
        "`interfaces:` that name no link, lo, a NOARP device, or a port of a bridge or bond",
        links.interfaces,
    ),
    Check(
        "can-reach",
        "can_reach:ADDRESS, in `interfaces:` or an Eip of OpenELB, for which `ip route get` says lo",
        links.can_reach,
    ),
    Check("kube-proxy", "kube-proxy's mode and strictARP", kubernetes.kube_proxy),
    Check("announcers", "objects of other announcers that `owner: follow` needs", kubernetes.announcers),
    Check("agent", "whether the guard is there, and what its agent says", node.agent),
    Check("one-agent", "two agents, or two guards, on one node", links.one_agent),
    Check(
        "foreign-programs",
        "BPF programs of others on the links, and whether the guard runs first",
        links.foreign_programs,
    ),
    Check("kernel", "the kernel's version, and BPF's compiler (JIT)", node.kernel),
    Check("tcx", "whether programs can be attached by TCX", node.tcx),
    Check("xdp", "whether `datapath: xdp` serves on the links", links.xdp),
    Check("bpffs", "the BPF file system", node.bpffs),
    Check("capabilities", "what this process may do", node.capabilities),
    Check("clock", "the clock source", node.clock),
)


_NOTHING = unknown("there was nothing to look at")


def examine(picture: Picture) -> tuple[Result, ...]:
    """All checks on one picture; of each the worst findings first."""
    return tuple(Result(check, by_weight(check.run(picture)) or (_NOTHING,)) for check in CHECKS)
