"""Checks of the choice of links, and of what is attached to them."""

from collections.abc import Iterator

from arpguard.config.model import InterfaceSelector, SelectorKind
from arpguard.core.checkup.findings import Finding, Grade, bad, listed, ok, shell, skip, unknown, warn
from arpguard.core.checkup.picture import Picture, otherwise
from arpguard.core.checkup.snapshot import NOT_ASKED, AttachedProgram, Eip, Unread, needed
from arpguard.core.choosing import choose_links, xdp_refusal
from arpguard.model import Datapath, Link

_LO = "lo"


def interfaces(picture: Picture) -> Iterator[Finding]:
    """Whether the configuration's selectors name links that can be guarded."""
    if not picture.snapshot.source:
        links = listed(link.name for link in picture.facing)
        yield ok(f"no configuration was given; neighbours can ask for VIPs on {links or 'no link'}")
        return

    if picture.choice.problems:
        for problem in picture.choice.problems:
            selector = problem.removeprefix("interfaces: ").partition(": ")
            yield bad(
                selector[2] or problem,
                selector[0],
                "VIPs on the intended link stay unguarded",
                f"correct `interfaces:` in {picture.snapshot.source}",
            )
        return

    down = [link.name for link in picture.choice.links if not link.up]
    if down:
        yield warn(
            f"down: {listed(down)}",
            listed(down),
            "neighbours get no answer there now",
            f"bring {listed(down)} up",
            tuple(shell("ip", "link", "set", "dev", name, "up") for name in down),
        )

    yield ok(f"{listed(picture.config.interfaces)}: {listed(link.name for link in picture.choice.links) or 'no link'}")


def can_reach(picture: Picture) -> Iterator[Finding]:
    """Whether the kernel, asked for the route as by `ip route get`, names lo."""
    selectors = [each for each in picture.config.interfaces if each.kind is SelectorKind.CAN_REACH]
    eips = picture.cluster.eips
    if isinstance(eips, Unread):
        yield unknown(f"OpenELB's Eips were not read: {eips.why}")
        eips = ()
    if not selectors and not eips:
        yield skip("neither `interfaces:` nor an Eip uses can_reach")
    for selector in selectors:
        yield _reached_by_guard(picture, selector)
    for eip in eips:
        yield _reached_by_openelb(picture, eip)


def _reached_by_guard(picture: Picture, selector: InterfaceSelector) -> Finding:
    address = selector.address
    says = picture.snapshot.kernel_routes.get(address, NOT_ASKED) if address else NOT_ASKED
    if isinstance(says, Unread):
        return unknown(f"`ip route get` has no answer: {says.why}", str(selector))

    ours = listed(link.name for link in choose_links((selector,), picture.surroundings, ()).links)
    if says != _LO or address is None:
        return ok(f"arpguard takes {ours or 'no link'}; `ip route get` says {says}", str(selector))

    return Finding(
        Grade.WARN if ours else Grade.BAD,
        f"`ip route get` says lo, because the address is bound here ({picture.bound_on(address)}); "
        f"arpguard takes {ours or 'no link'}",
        str(selector),
        "arpguard ignores the routing table `local`; a program that asks the kernel for the route gets lo",
        "name an address that no node and no VIP has, such as the gateway's",
    )


def _reached_by_openelb(picture: Picture, eip: Eip) -> Finding:
    about = f"Eip {eip.name}"
    says = picture.snapshot.kernel_routes.get(eip.address, NOT_ASKED)
    if isinstance(says, Unread):
        return unknown(f"`ip route get` has no answer for {eip.address}: {says.why}", about)
    if says != _LO:
        return ok(f"can_reach:{eip.address}: `ip route get` says {says}", about)

    gateways = [each for each in picture.avoided.gateways if each.version == eip.address.version]
    interface = f'{{"spec":{{"interface":"can_reach:{min(gateways)}"}}}}' if gateways else ""

    return bad(
        f"can_reach:{eip.address}: `ip route get` says lo, because the address is bound here "
        f"({picture.bound_on(eip.address)})",
        about,
        "OpenELB asks the kernel when it starts: at its next start it gets lo, and then answers no request",
        "name an address that no node and no VIP has, such as the gateway's",
        (shell("kubectl", "patch", "eip", eip.name, "--type=merge", "-p", interface),) if interface else (),
    )


@otherwise(
    lambda picture: ok(
        f"no program other than the guard's on {listed(link.name for link in picture.facing) or 'no link'}"
    )
)
def foreign_programs(picture: Picture) -> Iterator[Finding]:
    """Programs of others on the links, and whether the guard's run before them."""
    programs = needed(picture.snapshot.programs)
    for link in picture.facing:
        here = [each for each in programs if each.ifindex == link.ifindex]
        others = [each for each in here if not each.ours]
        if not others:
            continue

        before = _before_ours(here)
        if before:
            yield bad(
                f"runs before the guard: {listed(map(_shown, before))}",
                link.name,
                "the guard does not see the frames that this program drops, redirects or accepts, and cannot stop them",
                "make that program run after the guard, or restart the agent, which then attaches first (TCX)",
            )
        else:
            yield ok(
                f"other programs run after the guard, or on links without a guard: {listed(map(_shown, others))}",
                link.name,
            )


def _before_ours(here: list[AttachedProgram]) -> list[AttachedProgram]:
    """Others at tc that run before ours there: TCX programs run before clsact filters."""
    found = []
    for direction in ("ingress", "egress"):
        order = (f"tcx {direction}", f"clsact {direction}")
        line = sorted((each for each in here if each.hook in order), key=lambda p: (order.index(p.hook), p.place))
        ours = next((index for index, each in enumerate(line) if each.ours), None)
        if ours is not None:
            found += line[:ours]
    return found


def _shown(program: AttachedProgram) -> str:
    return f"{program.name or 'a program'} ({program.hook} {program.id})"


def one_agent(picture: Picture) -> Iterator[Finding]:
    """Whether more than one agent runs here, or has left programs on this node's links."""
    guards, own = needed(picture.snapshot.guards), str(picture.config.bpf.pin_dir)
    others = [guard for guard in guards if guard.pin_dir != own and len(guards) > 1]
    for guard in others:
        state = {
            True: "an agent uses it",
            False: "no agent uses it",
            None: "the doctor cannot see whether an agent uses it",
        }
        yield bad(
            f"a second guard is pinned at {guard.pin_dir}; {state[guard.running]}",
            guard.pin_dir,
            "two guards judge every frame by different tables: one drops requests that the other would answer",
            "stop the second agent, and remove its guard",
            () if guard.running else (shell("arpguard", "cleanup", "--pin-dir", guard.pin_dir),),
        )

    doubled = [link for link in picture.facing if _doubled(picture, link)]
    if doubled and not others:
        yield bad(
            f"links with the programs of two guards: {listed(link.name for link in doubled)}",
            listed(link.name for link in doubled),
            "two guards judge every frame by different tables",
            "stop all agents but one, and restart that one: it removes the programs of the others",
        )

    if not others and not doubled:
        yield ok(f"guards on this node: {len(guards)}")


def _doubled(picture: Picture, link: Link) -> bool:
    hooks = [each.hook for each in picture.programs if each.ifindex == link.ifindex and each.ours]
    return len(hooks) != len(set(hooks))


@otherwise(lambda picture: ok(listed(link.name for link in picture.choice.links) or "`interfaces:` chooses no link"))
def xdp(picture: Picture) -> Iterator[Finding]:
    """Whether native XDP, where it is configured, would guard the link."""
    if picture.config.datapath is not Datapath.XDP:
        yield skip(f"XDP is not configured (datapath: {picture.config.datapath.value})")
        return

    for link in picture.choice.links:
        why = _no_xdp(picture, link)
        if why:
            yield warn(
                f"{link.kind or 'hardware'}: {why}",
                link.name,
                "answers may never reach the client" if link.kind == "veth" else "the guard uses tc there",
                "set `datapath: auto`, or use a NIC with native XDP",
            )


def _no_xdp(picture: Picture, link: Link) -> str:
    if link.kind == "veth":
        return "answers by XDP are lost unless the veth's peer runs native XDP, too"
    if refusal := xdp_refusal(link):
        return refusal
    if link.kind:
        return "this kind of device has no native XDP"
    if link.name in picture.snapshot.machine.strips_tags:
        return f"the NIC removes VLAN tags before XDP sees the frames (`ethtool -K {link.name} rxvlan off` stops that)"
    taken = [each for each in picture.programs if each.ifindex == link.ifindex and each.hook == "xdp" and not each.ours]
    return f"another XDP program is attached ({listed(map(_shown, taken))})" if taken else ""
