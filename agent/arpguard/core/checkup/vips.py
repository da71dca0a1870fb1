"""Checks of VIPs: where they are bound, who owns them, and who answers for them."""

from collections.abc import Iterable, Iterator

from arpguard.addresses import Address, MacAddress, vip_refusal
from arpguard.core.checkup.answering import has, leaks, places
from arpguard.core.checkup.findings import Finding, Grade, bad, listed, ok, shell, skip, summed_up, unknown, warn
from arpguard.core.checkup.picture import KUBE_PROXY_DEVICE, Picture, otherwise
from arpguard.core.checkup.snapshot import AddressOnLink, Rival, Unread, Wire
from arpguard.core.claimants import virtual_router
from arpguard.core.cluster import PREFIX, Service
from arpguard.core.decisions import CONTESTED
from arpguard.core.explaining import KINDS
from arpguard.core.offers import offer_of
from arpguard.model import Link, OwnerKind
from arpguard.verdict import Kind

_TO_ENFORCE = "set `mode: enforce` once `arpguard vips` shows the owners that you expect"
# By how the owner is named: why it may be silent, and what to do.
_SILENT_OWNER = {
    OwnerKind.NODE: "its owner is the node {node}: check whether the agent runs there, or name another owner",
    OwnerKind.EXTERNAL: "its owner is a host outside the cluster: bring that host up, or name another owner",
    OwnerKind.ELECT: "the cluster elects its owner: `arpguard explain` says why each node may own it, or why not",
    OwnerKind.KEEPALIVED: "its owner is the node whose keepalived is MASTER: check whether keepalived runs on any node",
    OwnerKind.FOLLOW: "its owner is the node that another announcer chose ({node}): check whether that announcer runs",
}


def vip_bound(picture: Picture) -> Iterator[Finding]:
    """Each VIP that this node's kernel could answer for."""
    yield from summed_up([_bound(picture, vip) for vip in picture.vips], "no VIP is known here, and none is bound")


def _bound(picture: Picture, vip: Address) -> Finding:
    links = [link for link in picture.facing_of(vip) if picture.kernel_answers(vip, link)]
    open_links = [link for link in links if picture.cover(vip, link) is None]
    observed = [link for link in links if (cover := picture.cover(vip, link)) and not cover.enforced]
    where = picture.bound_on(vip)

    if open_links:
        return _open(picture, vip, open_links)
    if observed:
        return warn(
            f"bound on {where}; the guard only observes it on {_names(observed)}",
            str(vip),
            "each node that has it bound answers, as it would without the guard",
            _TO_ENFORCE,
        )

    covers = [
        f"{KINDS[cover.kind]} ({link.name}{'' if cover.enforced else ', only observed'})"
        for link in picture.facing_of(vip)
        if (cover := picture.cover(vip, link))
    ]
    if covers:
        without = f"the kernel would answer on {_names(links)}" if links else "the kernel would not answer"
        return ok(f"{_place(where)}; {listed(covers)}; without the guard {without}", str(vip))
    return ok(f"{_place(where)}; the kernel does not answer for it" if where else _place(where), str(vip))


def _place(where: str) -> str:
    return f"bound on {where}" if where else "not bound here"


def _open(picture: Picture, vip: Address, links: list[Link]) -> Finding:
    """The kernel answers, and no guard prevents it."""
    where = picture.bound_on(vip)
    known = picture.vips.get(vip)

    on_the_link = all(has(link, vip) for link in links)
    seen = f"bound on {where}, unguarded: the kernel answers for it on {_names(links)}"
    if not where:
        seen = f"routed elsewhere, unguarded: the kernel answers for it on {_names(links)} (proxy_arp)"

    if on_the_link and not picture.is_of_others(vip):
        why = "this node answers as long as it has the address bound, even after another node has taken over"
        if _starting_helps(picture, [vip]):
            return warn(seen, str(vip), why, *_to_silence(picture, vip, links))
        delegated = "with `delegated: true` if another program moves the address"
        fix = f"guard it: add it to `vips:` with this node as its owner ({delegated})"
        return warn(seen, str(vip), why, fix)

    why = "every node that has it bound answers as this one does, and clients reach any of these nodes"
    if known is not None and known.owner.kind is OwnerKind.EXTERNAL:
        why = "a host outside the cluster owns it, but clients can reach this node instead"
    if not where:
        why = "clients that ask for it get this node's MAC"
    return bad(seen, str(vip), why, *_to_silence(picture, vip, links))


def _to_silence(picture: Picture, vip: Address, links: list[Link]) -> tuple[str, tuple[str, ...]]:
    """The fix: the guard, if a configured one would guard the VIP, else the kernel's own setting."""
    if _starting_helps(picture, [vip]):
        return "start the guard", (picture.snapshot.start,)
    if any(has(link, vip) for link in links):
        return _to_unbind(picture, vip, links)
    lines = [line for link in links for line in silencing(picture, link)]
    if not picture.bound_on(vip):
        return "turn proxy_arp off", tuple(lines)
    guarded = any(picture.cover(vip, link) for link in links)
    words = _TO_ENFORCE if guarded else "guard it (add it to `vips:`)"
    words += "; or, if another host should answer, let the kernel answer only for "
    return words + "addresses of the link that receives the request", tuple(lines)


def _to_unbind(picture: Picture, vip: Address, links: list[Link]) -> tuple[str, tuple[str, ...]]:
    """No setting keeps the kernel from answering for an address of the link that is asked."""
    if not picture.is_of_others(vip):
        return "remove the address from the hosts that should not have it", ()
    asked = {link.ifindex for link in links}
    lines = tuple(
        shell("ip", "addr", "del", f"{vip}/{own.network.prefixlen}", "dev", place.name)
        for place in places(vip, picture.surroundings)
        for own in place.addresses
        if own.address == vip and place.ifindex in asked
    )
    return "another host owns the address: remove it from the link, or guard it", lines


def _starting_helps(picture: Picture, vips: list[Address]) -> bool:
    """Whether a configuration has the VIPs, and only its agent is missing."""
    configured = all(vip in picture.collected.vips for vip in vips)
    return bool(picture.snapshot.start) and configured and not picture.guards


def silencing(picture: Picture, link: Link) -> tuple[str, ...]:
    """Shell lines after which the kernel answers for, and asks in the name of, the link's own addresses only."""
    lines: tuple[str, ...] = ()
    if picture.sysctls.effective("ipv4/proxy_arp", link.name):
        lines += picture.sysctls.set("ipv4/proxy_arp", link.name, 0)
    if (picture.sysctls.effective("ipv4/arp_ignore", link.name) or 0) not in (1, 2, 8):
        lines += picture.sysctls.set("ipv4/arp_ignore", link.name, 1)
    if (picture.sysctls.effective("ipv4/arp_announce", link.name) or 0) < 2:
        lines += picture.sysctls.set("ipv4/arp_announce", link.name, 2)
    return lines


def vip_leaks(picture: Picture) -> Iterator[Finding]:
    """Whether this node asks in the name of a VIP that it does not have: neighbours then take it for the owner."""
    found = []
    for link in (link for link in picture.facing if link.up):
        vips = [vip for vip in picture.vips if _leaks_on(picture, vip, link)]
        if vips:
            found.append(link)
            starts = _starting_helps(picture, vips)
            to_guard = _TO_ENFORCE if all(picture.cover(vip, link) for vip in vips) else "guard the VIPs"
            value = picture.sysctls.effective("ipv4/arp_announce", link.name)
            yield bad(
                f"arp_announce is {value}: for traffic from {listed(vips)} the kernel sends ARP requests with the VIP "
                "as sender",
                link.name,
                "neighbours then take this node for the owner",
                f"{to_guard}, or make the kernel use the link's own address as sender",
                (picture.snapshot.start,) if starts else picture.sysctls.set("ipv4/arp_announce", link.name, 2),
            )

    if not found:
        values = listed(
            f"{link.name}: arp_announce {picture.sysctls.effective('ipv4/arp_announce', link.name)}"
            for link in picture.facing
        )
        yield ok(f"no ARP request of this node has a VIP as sender ({values or 'no host asks for a VIP here'})")


def _leaks_on(picture: Picture, vip: Address, link: Link) -> bool:
    bound_elsewhere = any(place.ifindex != link.ifindex for place in places(vip, picture.surroundings))
    if not bound_elsewhere or not leaks(vip, link, picture.sysctls):
        return False
    cover = picture.cover(vip, link)
    return cover is None or not (cover.enforced or cover.kind is Kind.OWNED)


def kube_ipvs(picture: Picture) -> Iterator[Finding]:
    """kube-proxy's device, on which it binds every address of every Service, on every node."""
    device = next((link for link in picture.surroundings.links if link.name == KUBE_PROXY_DEVICE), None)
    if device is None:
        yield skip(f"there is no device {KUBE_PROXY_DEVICE}")
        return

    addresses = [own.address for own in device.addresses]
    asked = [address for address in addresses if any(link.reaches(address) for link in picture.segments)]
    exposed = {
        address: [link for link in picture.facing_of(address) if picture.is_open(address, link)] for address in asked
    }

    bare = [address for address, links in exposed.items() if links]
    counts = f"addresses: {len(device.addresses)} (in a link's subnet: {len(asked)})"
    if not bare:
        yield ok(f"{counts}; each that the kernel would answer for is guarded", device.name)
        return

    links = list({link.ifindex: link for address in bare for link in exposed[address]}.values())
    yield bad(
        f"{counts}; unguarded: {listed(bare)}",
        device.name,
        "kube-proxy binds these addresses on every node, and every node answers for them, even if the device is down "
        "or NOARP",
        *_to_silence(picture, bare[0], links),
    )


@otherwise(lambda picture: ok(f"no VIP is the address of a node, a gateway or the API server{_how_far(picture)}"))
def vip_refused(picture: Picture) -> Iterator[Finding]:
    """VIPs that are addresses of nodes, gateways or the API server: those must not be guarded."""
    for service in picture.cluster.services.values():
        # From the end: taking one away moves those behind it.
        for address in reversed(service.addresses):
            if address in picture.settled or vip_refusal(address) is not None:
                yield _refused_of_service(picture, service, address)

    for vip in picture.config.vips:
        reasons = picture.refusals(vip.address) if vip.address in picture.settled else ()
        if reasons:
            yield bad(
                reasons[0].partition(": ")[0],
                str(vip.address),
                "arpguard never guards such an address",
                f"remove it from `vips:` in {picture.snapshot.source}",
            )


def _how_far(picture: Picture) -> str:
    is_unread = isinstance(picture.snapshot.cluster, Unread)
    return " (checked for this node only: no API server was asked)" if is_unread else ""


_HIJACK = "kube-proxy makes every node take over the address: `ssh` to it lands on any node, or nowhere"


def _refused_of_service(picture: Picture, service: Service, address: Address) -> Finding:
    reasons = picture.refusals(address) or (f"{address} is the address of this node: ",)
    return bad(
        f"{service.namespace}/{service.name}: {reasons[0].partition(': ')[0]}",
        str(address),
        _HIJACK,
        "remove it from the Service; a Service for hosts outside the cluster needs an EndpointSlice, not an externalIP",
        _taking_away(service, address),
    )


def _taking_away(service: Service, address: Address) -> tuple[str, ...]:
    """A JSON patch that does nothing if the list has changed; only the load balancer removes an ingress IP."""
    if address not in service.external_ips:
        return ()
    index = service.external_ips.index(address)
    path = f"/spec/externalIPs/{index}"
    patch = f'[{{"op":"test","path":"{path}","value":"{address}"}},{{"op":"remove","path":"{path}"}}]'
    return (shell("kubectl", "-n", service.namespace, "patch", "service", service.name, "--type=json", "-p", patch),)


# ---- the wire ----------------------------------------------------------------------------------------------------


def vip_on_wire(picture: Picture) -> Iterator[Finding]:
    """Who answers for each VIP: this node, others, strangers."""
    wire = picture.snapshot.wire
    if isinstance(wire, Unread):
        yield unknown(f"no request was sent: {wire.why}")
        return
    for ifindex, why in wire.unheard.items():
        link = picture.surroundings.link(ifindex)
        yield unknown(f"could not ask on this link: {why}", link.name if link else "")
    if wire.left_out:
        yield unknown(
            f"{wire.left_out} more VIPs were not checked on the wire: check them with `arpguard whohas ADDRESS`"
        )
    yield from summed_up(list(_heard(picture, wire)), "no VIP to ask for")


def _heard(picture: Picture, wire: Wire) -> Iterator[Finding]:
    names = _names_of(picture, wire)
    for vip in picture.vips:
        for link in picture.facing_of(vip):
            macs = wire.answers.get(AddressOnLink(vip, link.ifindex))
            if macs is not None:
                yield _answered(picture, vip, link, macs, names)


def _names_of(picture: Picture, wire: Wire) -> dict[MacAddress, str]:
    """This node's links, and the cluster's nodes by the MACs that answer for their addresses."""
    owners = picture.cluster.node_of
    others = {
        mac: owners[question.address]
        for question, macs in wire.answers.items()
        if question.address in owners
        for mac in macs
    }
    return others | {
        link.mac: f"this node's {link.name}" for link in picture.surroundings.links if not link.mac.is_zero
    }


def _answered(
    picture: Picture, vip: Address, link: Link, macs: tuple[MacAddress, ...], names: dict[MacAddress, str]
) -> Finding:
    here = picture.this_node_answers(vip, link)
    who = [*(["this node"] if here else []), *(_who(mac, names) for mac in macs)]
    seen = f"answered on {link.name} by {listed(who)}" if who else f"no host answers on {link.name}"

    if len(who) > 1:
        return bad(
            seen,
            str(vip),
            "clients reach whichever host answered last, and may switch each time their ARP cache entry times out",
            *_to_one(picture, vip, link, here=here),
        )

    owner = _owners_mac(picture, vip, link, macs)
    if owner is not None and macs and owner not in macs:
        return bad(
            f"{seen}, but the owner is {_who(owner, names)}",
            str(vip),
            "another host has taken the address, or the owner has a new NIC",
            "find the host by its MAC in the switch's table; correct the owner if that host is the right one",
        )

    strangers = [mac for mac in macs if mac not in names]
    if strangers and _is_the_clusters(picture, vip):
        # For a person to decide: whoever is on the segment can answer, and a command would give the VIP away.
        service = _service_of(picture, vip)
        named = "`owner: external` in `vips:`"
        if service:
            named = f"the annotation `{PREFIX}owner: external` on Service {service.namespace}/{service.name}"
        return bad(
            f"{seen}, which is not a node of this cluster",
            str(vip),
            "a host outside the cluster has the address, and loses it as soon as a node answers for it",
            f"if that host should have the address, set {named}: then no node answers. Otherwise choose an address "
            "that no host has, or find the host by its MAC, if it is an impostor",
        )

    if not who and picture.bound_on(vip):
        return warn(seen, str(vip), "it is bound here, but no client can reach it", *_to_somebody(picture, vip))
    return ok(seen, str(vip))


def _to_somebody(picture: Picture, vip: Address) -> tuple[str, tuple[str, ...]]:
    """The fix for a VIP that no host answers for: an owner, or what keeps its owner from answering."""
    known = picture.vips.get(vip)
    if known is None:
        return "give the VIP an owner: list the VIP in `vips:`, or use a Service whose owner is elected", ()
    if _starting_helps(picture, [vip]):
        return "start the guard", (picture.snapshot.start,)
    return _SILENT_OWNER[known.owner.kind].format(node=known.owner.node or "none yet"), ()


def _to_one(picture: Picture, vip: Address, link: Link, *, here: bool) -> tuple[str, tuple[str, ...]]:
    cover = picture.cover(vip, link)
    if here and (not _is_owner(picture, vip, link) or (picture.snapshot.start and not picture.guards)):
        return _to_silence(picture, vip, [link])
    if here and cover and not cover.enforced:
        return _TO_ENFORCE, ()
    return "run the guard on every node that answers, or remove the address from the hosts that should not have it", ()


def _owners_mac(picture: Picture, vip: Address, link: Link, macs: tuple[MacAddress, ...]) -> MacAddress | None:
    """Where the owner's MAC is known: from the configuration or the guard."""
    known, cover = picture.vips.get(vip), picture.cover(vip, link)
    if known is not None and known.owner.mac is not None:
        return known.owner.mac
    if _is_owner(picture, vip, link) and (known is None or not known.owner.delegated):
        own = {each.mac for each in picture.surroundings.links}
        return next((mac for mac in macs if mac in own), link.mac)  # perhaps by another link of this node
    if cover is None or cover.kind not in (Kind.FOREIGN, Kind.EXTERNAL) or cover.entry.owner_mac.is_zero:
        return None
    return cover.entry.owner_mac


def _is_owner(picture: Picture, vip: Address, link: Link) -> bool:
    """Whether this node owns a VIP: by the guard's entry or, without one, by the configuration."""
    cover, known = picture.cover(vip, link), picture.vips.get(vip)
    return cover.kind is Kind.OWNED if cover else known is not None and not picture.is_of_others(vip)


def _is_the_clusters(picture: Picture, vip: Address) -> bool:
    """Whether a node is to answer, and all nodes are known."""
    if not picture.cluster.nodes:
        return False
    known, service = picture.vips.get(vip), _service_of(picture, vip)
    if known is None and service is not None:  # outside of `ranges`: left alone, although a Service has it
        offer = offer_of(service, picture.config.services)
        known = next((bid.vip for bid in offer.bids), None) if offer else None
        return known is None or known.owner.kind is not OwnerKind.EXTERNAL
    return known is not None and known.owner.kind is not OwnerKind.EXTERNAL


def _service_of(picture: Picture, vip: Address) -> Service | None:
    return next((each for each in picture.cluster.services.values() if vip in each.addresses), None)


def _who(mac: MacAddress, names: dict[MacAddress, str]) -> str:
    known = names.get(mac) or virtual_router(mac)
    return f"{known} ({mac})" if known else str(mac)


_OF_A_NODE = (
    "two nodes of this cluster answer for it: one of them has no agent, or has a program that bypasses the guard",
    "run the agent on that node, and run the doctor there",
)
_OF_OUTSIDE = (
    "a host outside this cluster, or another cluster on the same segment, uses the VIP as its own",
    "find the host by its MAC in the switch's table; give that host or the VIP another address",
)


def vip_claimed(picture: Picture) -> Iterator[Finding]:
    """What the running agent has heard: others that claim VIPs, also of another cluster on the segment."""
    agent = picture.snapshot.agent
    if isinstance(agent, Unread):
        yield unknown(f"only a running agent hears claims: {agent.why}")
        return

    together: dict[tuple[str, str, bool], list[Rival]] = {}
    for claim in agent.claims:
        together.setdefault((claim.vip, claim.link, claim.of_node), []).append(claim)
    for (vip, link, of_node), claims in together.items():
        yield Finding(
            Grade.BAD if any(claim.is_recent for claim in claims) else Grade.WARN,
            f"claimed on {link} by {listed(map(_claimed_by, claims), comma='; ')}",
            vip,
            *(_OF_A_NODE if of_node else _OF_OUTSIDE),
        )
    if not together:
        yield ok("the agent has heard no other host claim a VIP")


def _claimed_by(claim: Rival) -> str:
    return f"{claim.mac} ({claim.who}), reports: {claim.count}, the last one {claim.ago_s:.0f} s ago"


def is_of_claim(problem: str, claims: Iterable[Rival]) -> bool:
    """Whether an agent's problem is about a claim for which `vip_claimed` is bad."""
    words = {word.rstrip(",;") for word in problem.split()}
    recent = [claim for claim in claims if claim.is_recent]
    return any({claim.mac, claim.vip} <= words or problem == CONTESTED.format(vip=claim.vip) for claim in recent)


def _names(links: list[Link]) -> str:
    return listed(link.name for link in links)
