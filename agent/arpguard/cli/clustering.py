"""What an agent says of the cluster, in words: the connection, the lease, the nodes, who has a VIP."""

from collections.abc import Iterator

from arpguard.cli.render import Styled, bad, careful, good, shortened, table
from arpguard.cli.words import NONE, age, counted, duration, local_time, seconds_since, span, word
from arpguard.core.bounding import bounded
from arpguard.v1 import agent_pb2 as pb

_STYLES = {pb.Kubernetes.STATE_FOLLOWING: good, pb.Kubernetes.STATE_CONNECTING: careful, pb.Kubernetes.STATE_LOST: bad}
_NAME_WIDTH = 40
_SHOWN = 5


def connection(message: pb.Kubernetes) -> Styled:
    """The state of the agent's connection to the API server, in a word."""
    text = word(message, "state").replace("_", " ")
    return _STYLES.get(message.state, Styled)(text)


def lease_state(status: pb.GetStatusResponse) -> Styled:
    """Whether the lease is renewed, in a few words."""
    message = status.kubernetes
    if message.yielding:
        return bad("held by another agent")
    if message.renewal_problem:
        return bad("not renewed")
    return Styled(f"renewed {age(message.renewal_time)}") if message.HasField("renewal_time") else Styled("not needed")


def cluster_facts(status: pb.GetStatusResponse) -> Iterator[tuple[str, object]]:
    """The facts about a cluster, line by line."""
    message = status.kubernetes
    where = f" {message.server}, Leases in namespace {message.namespace}" if message.server else ""
    yield "kubernetes", Styled(connection(message).text + where, connection(message).style)
    if not where:
        return
    if status.HasField("lease"):
        yield "lease", _lease_times(status)
    yield "renewal", _renewal(status)
    if message.HasField("vouching"):
        yield from _vouching(message.vouching, observes=status.mode == pb.MODE_OBSERVE)
    yield "nodes", _nodes(message)
    yield "writes", ", ".join(f"{row.kind}: {row.count} {row.outcome}" for row in message.writes) or "none"
    dropped = f", {message.events_dropped} dropped" if message.events_dropped else ""
    yield "Events", f"{message.events_written} written{dropped}"


def _lease_times(status: pb.GetStatusResponse) -> str:
    """The ordinary lease, and why this node's may be another now: its last renewal looks late beside the ordinary."""
    lease = status.lease
    renewed = f"renewed every {duration(lease.renew_interval)}, margin {duration(lease.margin)}"
    stretched = ", longer than configured because there are many nodes" if lease.stretched else ""
    longer = "" if status.HasField("fence_left") else " (longer while this node neither holds nor claims a VIP)"
    if status.kubernetes.vouching.bound:
        longer = " (longer while this node is bound to a voucher)"
    return f"{duration(lease.duration)}{longer}, {renewed}{stretched}"


def _renewal(status: pb.GetStatusResponse) -> Styled:
    message = status.kubernetes
    if message.yielding:
        return bad(f"another agent uses the node name {shortened(status.node, _NAME_WIDTH)}: this agent is silent")
    if not message.HasField("renewal_time"):
        return bad(f"none yet: {message.renewal_problem}") if message.renewal_problem else Styled("none yet")
    sent = f"last sent {age(message.renewal_time)}"
    return bad(f"{sent}; not renewed since: {message.renewal_problem}") if message.renewal_problem else Styled(sent)


def _vouching(message: pb.Vouching, *, observes: bool) -> Iterator[tuple[str, object]]:
    """Which node vouches for this one, and for which nodes it vouches, line by line."""
    yield "voucher", Styled("none: this node only observes") if observes else _voucher(message)
    for node in message.vouched_nodes:
        yield "testing" if node.trial else "vouches for", _vouched(node)
    left, revoked = counted(message.unbinds, "voucher"), counted(message.revocations, "time")
    yield "vouching", f"this node left {left}, was revoked {revoked}, found {counted(message.found_dead, 'node')} dead"


def _voucher(message: pb.Vouching) -> Styled:
    if message.isolated:
        return bad("none: no other node on the segment hears this node")
    if not message.voucher and message.lacks_right:
        return careful("none: the agent may not read or create the vouching Secret")
    if not message.voucher:
        seeks = shortened(message.seeks, _NAME_WIDTH)
        return careful(f"none yet; {seeks} is testing whether it can vouch for this node" if seeks else "none")
    text = _term(message.voucher, message)
    return Styled(text) if message.bound else careful(f"{text}; this node is not bound yet")


def _vouched(node: pb.VouchedNode) -> Styled:
    text = _term(node.node, node)
    if not node.pongs:
        return careful(f"{text}; no reply to a ping yet")
    usual, longest = duration(node.usual_interval), duration(node.longest_interval)
    text += f"; gaps between {'pongs' if node.trial else 'grants'}: 99.9 % within {usual}, longest {longest}"
    return Styled(text) if node.bound or node.trial else careful(f"{text}; that node is not bound yet")


def _term(name: str, term: pb.Vouching | pb.VouchedNode) -> str:
    since = span(seconds_since(term.since_time))
    return f"{shortened(name, _NAME_WIDTH)}, for {since}, timeout {duration(term.timeout)}"


def _nodes(message: pb.Kubernetes) -> Styled:
    alive = sum(node.alive for node in message.nodes)
    refused = [f"{shortened(node.name, _NAME_WIDTH)}: {node.refusal}" for node in message.nodes if node.refusal]
    why = "".join(f"; {text}" for text in bounded(refused, _SHOWN, ""))
    text = f"{alive} of {counted(len(message.nodes), 'node')} alive{why}"
    return careful(text) if refused else Styled(text)


def sources(message: pb.Kubernetes) -> str:
    """The kinds of objects that the agent watches, a line each."""
    head = ("OBJECTS", "STATE", "LISTS", "WATCHES", "FAILURES", "UNREADABLE", "WHY LOST")
    rows = [
        (
            source.name,
            bad("lost") if source.lost else good("ok"),
            source.lists,
            source.streams,
            source.failures,
            source.unreadable,
            source.lost or NONE,
        )
        for source in message.sources
    ]
    return table(head, rows, yielding="WHY LOST")


def owner(vip: pb.Vip) -> Styled:
    """Who is to answer for a VIP; for an elected one, who does."""
    if not vip.HasField("claim"):
        return Styled(vip.owner or NONE)
    claim = vip.claim
    holder = shortened(claim.holder, _NAME_WIDTH)
    texts = {
        pb.Claim.STATE_VALID: Styled(holder) if claim.alive else careful(f"{holder} (silent)"),
        pb.Claim.STATE_DELETING: careful(f"{holder} (deleted)"),
        pb.Claim.STATE_EXTERNAL: bad(f"outside: {claim.external_mac}"),
        pb.Claim.STATE_UNREADABLE: bad("unreadable"),
        pb.Claim.STATE_UNKNOWN: careful("not known yet"),
    }
    return texts.get(claim.state, careful("nobody"))


def claim_facts(claim: pb.Claim) -> Iterator[tuple[str, object]]:
    """A claim, line by line."""
    holder = shortened(claim.holder, _NAME_WIDTH)
    if claim.holder:
        late = careful(f"{holder} (its last renewal is older than its lease)")
        yield "holder", Styled(holder) if claim.alive else late
        yield "epoch", str(claim.epoch)
    else:
        yield "holder", "nobody"

    yield "state", _STATE_WORDS.get(claim.state, Styled(word(claim, "state")))
    if claim.external_mac:
        yield "outside", bad(f"{claim.external_mac} has the address")
    if claim.voucher:
        yield "voucher", f"{shortened(claim.voucher, _NAME_WIDTH)} vouches for the holder"
    yield "moved", counted(claim.transitions, "time")
    if claim.HasField("seen_time"):
        yield "unchanged", f"since {local_time(claim.seen_time)} ({age(claim.seen_time)})"


_STATE_WORDS = {
    pb.Claim.STATE_VALID: good("valid: no other node may take the VIP"),
    pb.Claim.STATE_VOID: careful("void: the holder's epoch has ended; any eligible node may take the VIP"),
    pb.Claim.STATE_RELEASED: careful("released: any eligible node may take the VIP"),
    pb.Claim.STATE_EXTERNAL: bad("external: a host outside the cluster has the address"),
    pb.Claim.STATE_UNREADABLE: bad("unreadable: no node takes the VIP, because agents cannot read its claim"),
    pb.Claim.STATE_DELETING: careful("deleting: the claim is removed once its holder is silent"),
    pb.Claim.STATE_NONE: careful("none: no node has taken the VIP yet"),
    pb.Claim.STATE_UNKNOWN: careful("not known yet"),
}


def watch_line(status: pb.GetStatusResponse) -> tuple[str, bool]:
    """The cluster in a line, and whether it is as it should be."""
    message = status.kubernetes
    lost = [source.name for source in message.sources if source.lost]
    state = word(message, "state").replace("_", " ") + (f" ({', '.join(lost)})" if lost else "")
    # The ordinary lease: that of a bound node is longer, and renewed less often.
    length = "" if message.vouching.bound else f"{duration(status.lease.duration)} "
    lease = f"lease {length}{lease_state(status).text}"
    alive = f"{sum(node.alive for node in message.nodes)} of {counted(len(message.nodes), 'node')} alive"
    well = message.state == pb.Kubernetes.STATE_FOLLOWING and not message.renewal_problem and not message.yielding
    well = well and not (status.HasField("voucher_fence_left") and not status.voucher_fence_left.ToNanoseconds())
    return f"kubernetes: {state}   {lease}   {alive}{_watched_voucher(message)}", well


def _watched_voucher(message: pb.Kubernetes) -> str:
    if not message.HasField("vouching"):
        return ""
    if not message.vouching.voucher:
        return "   no voucher"
    bound, yet = ("bound", "") if message.vouching.bound else ("not bound", " yet")  # before a name that may be cut off
    return f"   {bound} to voucher {shortened(message.vouching.voucher, _NAME_WIDTH)}{yet}"
