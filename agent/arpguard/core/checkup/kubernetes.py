"""Checks of the cluster: how kube-proxy is set up, and which announcers can be followed."""

from collections.abc import Iterator, Sequence

from arpguard.config.model import VouchingProfile
from arpguard.core.checkup.findings import Finding, Grade, bad, ok, skip, unknown, warn
from arpguard.core.checkup.picture import Picture
from arpguard.core.checkup.snapshot import AgentWord, ClusterView, Unread, needed
from arpguard.model import OwnerKind
from arpguard.verdict import Mode

_IPVS = "ipvs"
_OF_VOUCHING = "vouching: "
_NAMED = "kubectl -n kube-system"
_SET_STRICT_ARP = (
    f"{_NAMED} get configmap kube-proxy -o yaml | sed 's/strictARP: false/strictARP: true/' | kubectl apply -f -"
)
_RESTART = f"{_NAMED} rollout restart daemonset kube-proxy"


def kube_proxy(picture: Picture) -> Iterator[Finding]:
    """kube-proxy's mode, and strictARP."""
    cluster = needed(picture.snapshot.cluster)
    proxy = needed(cluster.kube_proxy)
    if proxy.mode != _IPVS:
        yield ok(f"mode {proxy.mode or 'iptables (the default)'}: kube-proxy binds no address in this mode")
    else:
        yield from _ipvs(picture, cluster, strict=proxy.strict_arp)


def announcers(picture: Picture) -> Iterator[Finding]:
    """Which objects of other announcers can be read, where VIPs follow those."""
    cluster = needed(picture.snapshot.cluster)
    followers = [vip for vip in picture.vips.values() if vip is not None and vip.owner.kind is OwnerKind.FOLLOW]
    if not followers:
        yield skip("no VIP follows another announcer")
        return

    read = ", ".join(each.kind for each in cluster.announcers if not each.unread)
    unread = ", ".join(f"{each.kind} ({each.unread})" for each in cluster.announcers if each.unread)
    if read:
        yield ok(f"read: {read}" + (f"; not read: {unread}" if unread else ""))
        return

    yield bad(
        f"not read: {unread}",
        why=f"VIPs that follow an announcer: {len(followers)}; a node answers only for those whose Service "
        "has an annotation that names a node",
        fix="install the announcer, or give the agent the rights to read its objects: deploy/components has a "
        "component for each announcer",
    )


def vouching(picture: Picture) -> Iterator[Finding]:
    """The problems that the agent reports with vouching, and whether the profile suits the machine."""
    config, word = picture.config.lease.vouching, picture.snapshot.agent
    if config is None:
        yield skip("lease.vouching is off")
        return

    told = [] if isinstance(word, Unread) else list(filter(is_of_vouching, word.problems))
    if why := _is_no_matter(picture, told):
        yield skip(why)
        return
    for problem in told:
        yield bad(
            problem.removeprefix(_OF_VOUCHING),
            why="until this is fixed, other nodes take a dead node's VIPs only when its lease has expired, not after "
            "its voucher's timeout (about a second)",
            fix="see `arpguard status`, and the agent's log",
        )

    is_too_fast = config.profile is VouchingProfile.FAST and picture.snapshot.machine.virtual is True
    if is_too_fast:
        yield warn(
            "lease.vouching.profile is fast on a virtual machine",
            why="a live migration can pause the machine and its clock for longer than this profile's margin of 200 ms: "
            "then two nodes may answer",
            fix="leave lease.vouching.profile out, or set it to slow",
        )
    if isinstance(word, Unread):
        yield unknown(word.why)
    elif not (told or is_too_fast):
        yield ok("the agent reports no problem with vouching")


def _is_no_matter(picture: Picture, told: Sequence[str]) -> str:
    """Why nodes need not vouch for each other here, as nobody has asked for it; else empty."""
    config, word, cluster = picture.config.lease.vouching, picture.snapshot.agent, picture.snapshot.cluster
    if told or (config is not None and config.asked):
        return ""
    if isinstance(word, AgentWord) and word.lacks_right:
        return "the agent has no right to the Secret of vouching, so no node vouches for this one"
    return f"the doctor does not know the cluster: {cluster.why}" if isinstance(cluster, Unread) else ""


def is_of_vouching(problem: str) -> bool:
    """Whether an agent's problem is about vouching."""
    return problem.startswith(_OF_VOUCHING)


def _ipvs(picture: Picture, cluster: ClusterView, *, strict: bool) -> Iterator[Finding]:
    enforcing = any(guard.mode is Mode.ENFORCE for guard in picture.guards)
    seen = f"mode ipvs, strictARP {str(strict).lower()}"
    applied = picture.sysctls.own("ipv4/arp_ignore", "all")

    if strict and not applied and applied is not None:
        yield bad(
            f"{seen}, but arp_ignore on this node is 0",
            why="kube-proxy reads its configuration only when it starts: this node still answers for every VIP",
            fix="restart kube-proxy",
            commands=(_RESTART,),
        )
    elif strict or enforcing:
        meaning = (
            "the guard decides which node answers" if enforcing else "no kernel answers, so an announcer must answer"
        )
        yield ok(f"{seen}: {meaning}")
    else:
        addresses = {vip for each in cluster.services.values() for vip in each.addresses}
        yield Finding(
            Grade.BAD if addresses else Grade.WARN,
            f"{seen}, and no guard is in enforce mode",
            why=f"each node binds all {len(addresses)} addresses of Services, and answers for them",
            fix="guard these addresses (then strictARP does not matter); or, if an announcer answers for them, set "
            "strictARP and restart kube-proxy",
            commands=(_SET_STRICT_ARP, _RESTART),
        )
