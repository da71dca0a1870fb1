"""The rules of docs/protocol.md, and some of docs/vouching.md, as predicates over a trace: `broken_rules` names each
line that breaks one.

This is another writing of the rules than `core/ownership` and `core/vouching`, and imports nothing of them. What it
cannot judge is whether a kernel does what it was told: the lab's capture tells that. A kernel that has a voucher's term
counts as silent where it is asked whether two answer.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from support.protocol.trace_state import S_NS, Cluster, Json, Stored, term_number, uid

MISSING_NS = 30 * S_NS  # rule 3: the longest lease of a heartbeat that is missing
REMEMBERED = 10_000  # lines
SLACK_NS = 1_000_000  # the journal's clock is another one than the agents', if by little


@dataclass(frozen=True)
class BrokenLine:
    """`lines`: those of the trace that show it, from 1 on, the one that breaks the rule last. `vip`: "" for none."""

    rule: str
    node: str
    vip: str
    text: str
    lines: tuple[int, ...]

    def __str__(self) -> str:
        about = f"{self.node}, {self.vip}" if self.vip else self.node
        return f"{self.rule}: {about}: {self.text} (lines {', '.join(map(str, self.lines))})"


Found: TypeAlias = Iterator[tuple[str, str, str, Iterable[int]]]  # node, VIP, text, other lines
Predicate: TypeAlias = Callable[[Cluster, Json], Found]


class Checker:
    """Replays a trace line by line, in its order. `rates`: of the nodes' clocks, where they are not those of `at`."""

    def __init__(self, rates: Mapping[str, float] | None = None) -> None:
        self._cluster = Cluster(rates or {})
        self._last: deque[tuple[int, Json]] = deque(maxlen=REMEMBERED)
        self.number = 0  # of lines

    def take(self, line: Json) -> Iterator[BrokenLine]:
        """The rules that the next line breaks. It counts only once all of them have been asked for."""
        self.number += 1
        self._last.append((self.number, line))
        if "node" in line and line["node"] not in self._cluster.agents and line["event"] != "started":
            return  # of an agent whose beginning is not in the trace
        for rule, predicate in BEFORE.get(line["event"], ()):
            yield from _told(rule, predicate(self._cluster, line), self.number)
        self._cluster.take(line, self.number)
        for rule, predicate in AFTER.get(line["event"], ()):
            yield from _told(rule, predicate(self._cluster, line), self.number)

    def shown(self, broken: BrokenLine) -> list[Json]:
        """Its lines, as far as they are among the last ones."""
        return [line for number, line in self._last if number in broken.lines]


def broken_rules(lines: Iterable[Json], rates: Mapping[str, float] | None = None) -> Iterator[BrokenLine]:
    """Replays a whole trace."""
    checker = Checker(rates)
    for line in lines:
        yield from checker.take(line)


def _told(rule: str, found: Found, number: int) -> Iterator[BrokenLine]:
    for node, vip, text, others in found:
        yield BrokenLine(rule, node, vip, text, (*sorted(each for each in set(others) if each), number))


# ---- at most one answers ----


def _one_answers(cluster: Cluster, line: Json) -> Found:
    node, kernel = line["node"], cluster.kernels[line["node"]]
    vips = [line["effect"]["vip"]] if "vip" in line["effect"] else list(kernel.entries)
    for vip in vips:
        if kernel.term or not kernel.answers(vip, cluster.now_ns(node, line["at"])):
            continue
        for other, its in cluster.kernels.items():
            if other != node and not its.term and its.answers(vip, cluster.now_ns(other, line["at"])):
                lines = its.lines.get(vip, 0), its.lines.get("fence", 0)
                yield node, vip, f"{other} answers, too", lines


def _answers_for_its_own(cluster: Cluster, line: Json) -> Found:
    """A claim changes: whoever had it by then is silent."""
    before, found = cluster.store.claims.get(line["vip"]), line["found"]
    if before is None or not before["holder"]:
        return
    if found is not None and (found["holder"], found["epoch"]) == (before["holder"], before["epoch"]):
        return
    node = before["holder"]
    kernel = cluster.kernels.get(node)
    if kernel is None or kernel.term or kernel.epoch != before["epoch"]:
        return
    if kernel.answers(line["vip"], cluster.now_ns(node, line["at"] - SLACK_NS)):
        yield node, line["vip"], "it answers, and the claim is no longer its own", [kernel.lines.get(line["vip"], 0)]


def _silent_after_its_epoch(cluster: Cluster, line: Json) -> Found:
    node, found, before = line["of"], line["found"], cluster.store.heartbeats.get(line["of"])
    if before is None or found is None or before["epoch"] == found["epoch"]:
        return
    kernel = cluster.kernels.get(node)
    if kernel is None or kernel.term or kernel.epoch != before["epoch"]:
        return
    if before["version"] and uid(before["version"]) == uid(found["version"]):
        left_ns = kernel.fence_ns - cluster.now_ns(node, line["at"])
        if kernel.may_answer(cluster.now_ns(node, line["at"])) and left_ns > SLACK_NS:
            text = f"its epoch is over, and its fence is {_ms(left_ns)} ahead"
            yield node, "", text, [kernel.lines.get("fence", 0)]


# ---- 1 Renew, 6 Part ----


def _fence_by_a_renewal(cluster: Cluster, line: Json) -> Found:
    agent, kernel, effect = cluster.agents[line["node"]], cluster.kernels[line["node"]], line["effect"]
    is_cut = effect["epoch"] == kernel.epoch and effect["fence_ns"] <= kernel.fence_ns
    over_ns = effect["fence_ns"] - agent.reach_ns
    if effect["fence_ns"] and not is_cut and over_ns > 0:
        yield line["node"], "", f"the fence is {_ms(over_ns)} beyond what its renewals allow", [kernel.lines["fence"]]


def _epoch_confirmed(cluster: Cluster, line: Json) -> Found:
    effect = line["effect"]
    if effect["fence_ns"] and effect["epoch"] not in cluster.agents[line["node"]].epochs:
        yield line["node"], "", f"the fence is in epoch {effect['epoch']}, which no renewal has confirmed", []


def _cut_before_a_shorter_lease(cluster: Cluster, line: Json) -> Found:
    effect, kernel = line["effect"], cluster.kernels[line["node"]]
    if effect["node"] != line["node"] or effect["epoch"] != kernel.epoch:
        return
    allowed_ns = line["ns"] + cluster.agents[line["node"]].answers_ns(effect)
    over_ns = kernel.fence_ns - allowed_ns
    if kernel.may_answer(line["ns"]) and over_ns > 0:
        yield line["node"], "", f"it sends a lease that ends {_ms(over_ns)} before its fence", [kernel.lines["fence"]]


def _reads_after_a_failure(cluster: Cluster, line: Json) -> Found:
    if line["effect"]["node"] == line["node"] and cluster.agents[line["node"]].unread:
        yield line["node"], "", "its last renewal did not succeed, and it renews before it has read its heartbeat", []


def _epoch_used_once(cluster: Cluster, line: Json) -> Found:
    if line["found"] is not None and line["found"]["epoch"] in cluster.store.ended[line["of"]]:
        yield line["of"], "", f"the epoch {line['found']['epoch']} comes again", []


# ---- 2 Claim ----


def _entry_after_claim_and_renewal(cluster: Cluster, line: Json) -> Found:
    agent, effect = cluster.agents[line["node"]], line["effect"]
    key = effect["vip"], effect["epoch"]
    if key not in agent.claimed:
        yield line["node"], effect["vip"], "an entry without a CAS of its own", []
    elif key not in agent.confirmed:
        yield line["node"], effect["vip"], "an entry without a renewal that was sent after the CAS", []


def _claims_in_a_confirmed_epoch(cluster: Cluster, line: Json) -> Found:
    effect = line["effect"]
    if effect["holder"] == line["node"] and effect["epoch"] not in cluster.agents[line["node"]].epochs:
        yield line["node"], effect["vip"], f"it claims in epoch {effect['epoch']}, which no renewal has confirmed", []


def _takes_what_is_free(cluster: Cluster, line: Json) -> Found:
    before, found = cluster.store.claims.get(line["vip"]), line["found"]
    if before is None or found is None or not found["holder"] or found["holder"] == before["holder"]:
        return
    if before["holder"] and not cluster.store.is_void(before):
        heartbeat = cluster.store.heartbeats.get(before["holder"])
        why = "its heartbeat is missing" if heartbeat is None else f"its epoch is still {before['epoch']}"
        taken = cluster.store.versions[before["version"]].number
        yield found["holder"], line["vip"], f"it takes the claim of {before['holder']}, and {why}", [taken]


def _waits_for_a_new_heartbeat(cluster: Cluster, line: Json) -> Found:
    """A heartbeat that was created again voids what it was not seen to end only after a lease."""
    before, found = cluster.store.claims.get(line["vip"]), line["found"]
    if before is None or found is None or found["holder"] in ("", before["holder"]) or not before["holder"]:
        return
    heartbeat, agent = cluster.store.heartbeats.get(before["holder"]), cluster.agents.get(found["holder"])
    if heartbeat is None or agent is None:
        return
    object_ = uid(heartbeat["version"])
    if before["epoch"] in cluster.store.epochs[object_] or before["holder_uid"] == object_:
        return

    made_at, lease_ns = cluster.store.made[object_]
    waits_ns = max(lease_ns, agent.times["duration_ns"], agent.times["bound_ns"])
    seen_ns = cluster.now_ns(found["holder"], line["at"]) - cluster.now_ns(found["holder"], made_at)
    if seen_ns < waits_ns - SLACK_NS:
        text = f"it takes the claim of {before['holder']}, whose heartbeat is there for {_ms(seen_ns)} only"
        yield found["holder"], line["vip"], text, [cluster.store.versions[heartbeat["version"]].number]


def _probes_first(cluster: Cluster, line: Json) -> Found:
    effect, node = line["effect"], line["node"]
    if effect["holder"] != node:
        return
    claim = cluster.store.claim_of.get(effect["version"] or "")
    if claim is None and effect["version"] is not None:
        return  # the journal does not go so far
    if claim is not None and _answered_until_now(cluster, claim, effect, node):
        return
    if effect["vip"] not in cluster.agents[node].probed:
        lines = [cluster.store.versions[claim["version"]].number] if claim else []
        yield node, effect["vip"], "it takes a free claim, and has not probed for a host outside", lines


def _answered_until_now(cluster: Cluster, claim: Json, effect: Json, node: str) -> bool:
    if not claim["holder"]:
        return not (claim["external"] or claim["epoch"])
    if claim["holder"] == node:
        return bool(claim["epoch"] == effect["epoch"])
    return (claim["holder"], claim["epoch"]) in cluster.store.ended_early


# ---- 3 Revoke ----


def _revokes_the_silent(cluster: Cluster, line: Json) -> Found:
    node, effect = line["node"], line["effect"]
    of, version, agent = effect["node"], effect["version"], cluster.agents[node]
    if of == node or version is None:
        return
    found, since_ns = cluster.store.heartbeat_of.get(version), agent.seen[of].get(version)
    if since_ns is None:
        yield node, "", f"it revokes {of} in a version that it has not seen", []
        return
    if found is None or _is_vouched_out(cluster, line, found):  # None: the journal does not go so far
        return

    stored = cluster.store.versions[version].number
    if effect["early"]:
        yield node, "", f"it revokes {of} early, and is not its voucher, nor is that one over", [stored]
        return
    over_ns = since_ns + max(found["duration_ns"], agent.times["duration_ns"])
    if line["ns"] < over_ns:
        yield node, "", f"it revokes {of} {_ms(over_ns - line['ns'])} before its lease is over", [stored]
    if agent.renewed_ns < since_ns:
        yield node, "", f"it revokes {of}, and has not renewed since it saw that", [stored]
    waits_ns = agent.outages.over_ns + agent.times["duration_ns"]
    if line["ns"] < waits_ns:
        text = f"it revokes {of} {_ms(line['ns'] - agent.outages.over_ns)} after an outage"
        yield node, "", text, [stored]


def _is_vouched_out(cluster: Cluster, line: Json, found: Json) -> bool:
    """Whether a node may be revoked before its lease is over: by its voucher, or d after that one is over (V7, V17)."""
    node, voucher = line["node"], found["voucher"]
    if voucher is None:
        return False
    if (voucher["node"], voucher["instance"]) == (node, line["instance"]):
        term = cluster.terms.get(term_number(voucher["term"]))
        return term is not None and term.decided and bool(line["effect"]["early"] or not found["bound"])
    over_at = cluster.store.over.get((voucher["node"], voucher["epoch"], voucher["instance"]))
    if not found["bound"] or over_at is None:
        return False
    return line["ns"] - cluster.now_ns(node, over_at) >= int(voucher["d_ns"]) - SLACK_NS


def _creates_after_the_longest_lease(cluster: Cluster, line: Json) -> Found:
    node, effect = line["node"], line["effect"]
    agent, of = cluster.agents[node], effect["node"]
    if of == node or effect["version"] is not None or agent.times["bound_ns"]:
        return
    since_ns = agent.seen[of].get(None)
    published = cluster.store.longest_ns.get(of, 0) if len(agent.seen[of]) > 1 else 0
    waits_ns = max(MISSING_NS, agent.times["duration_ns"], published and _last_lease_ns(cluster, agent.seen[of]))
    if since_ns is not None and line["ns"] < since_ns + waits_ns:
        yield node, "", f"it creates the heartbeat of {of} {_ms(line['ns'] - since_ns)} after it was deleted", []


def _last_lease_ns(cluster: Cluster, seen: Mapping[str | None, int]) -> int:
    known = [cluster.store.heartbeat_of[version] for version in seen if version in cluster.store.heartbeat_of]
    return int(known[-1]["duration_ns"]) if known else 0


def _replaces_what_it_names(cluster: Cluster, line: Json) -> Found:
    sent, stored = line["sent"], _stored(cluster, line)
    if stored is None or line["outcome"] != "applied":
        return
    if sent.get("let_go") and line["version"] == sent["version"]:
        return  # the claim is gone, and the server answers with what it removed
    replaced = stored.before["version"] if stored.before else None
    if replaced != sent["version"]:
        text = f"its write named the version {sent['version']}, and replaced {replaced}"
        yield line["node"], sent.get("vip", ""), text, [stored.number]


def _revokes_what_it_names(cluster: Cluster, line: Json) -> Found:
    """The same by the journal, of a revocation whose answer may have been lost."""
    found, before = line["found"], cluster.store.heartbeats.get(line["of"])
    if found is None or found["instance"] or found["epoch"] not in cluster.revoked_by:
        return
    named, replaced = cluster.revoked_by[found["epoch"]], before["version"] if before else None
    if named != replaced:
        yield line["of"], "", f"its revocation named the version {named}, and replaced {replaced}", []


def _stored(cluster: Cluster, line: Json) -> Stored | None:
    return cluster.store.versions.get(line["version"] or "")


# ---- 4 Hand over, 7 Delete ----


def _cleared_and_drained_first(cluster: Cluster, line: Json) -> Found:
    effect, kernel = line["effect"], cluster.kernels[line["node"]]
    claim = cluster.store.claim_of.get(effect["version"] or "")
    if claim is None or claim["holder"] != line["node"] or effect["holder"] == line["node"]:
        return
    vip = effect["vip"]
    if kernel.entries.get(vip) == kernel.epoch != "" and kernel.may_answer(line["ns"]):
        yield line["node"], vip, "it releases the claim, and its kernel has the entry", [kernel.lines.get(vip, 0)]
    elif kernel.draining.get(vip) == kernel.epoch != "" and kernel.may_answer(line["ns"]):
        yield line["node"], vip, "it releases the claim before its last answers are out", [kernel.lines.get(vip, 0)]


# ---- vouching ----


def _terms_named_once(cluster: Cluster, line: Json) -> Found:
    found, before = line["found"], cluster.store.heartbeats.get(line["of"])
    if found is None or not found["voucher"]:
        return
    term, same = found["voucher"]["term"], before and before["voucher"]
    if term in cluster.store.terms[line["of"]] and not (same and same["term"] == term):
        yield line["of"], "", f"it names the term {term} again", []


def _term_after_it_is_named(cluster: Cluster, line: Json) -> Found:
    term = line["effect"]["term"]["uuid"]
    if term not in cluster.store.terms[line["node"]]:
        yield line["node"], "", f"its kernel gets the term {term}, which its heartbeat has not named", []


def _unbound_after_it_is_un_named(cluster: Cluster, line: Json) -> Found:
    node, kernel = line["node"], cluster.kernels[line["node"]]
    stored = cluster.store.heartbeats.get(node)
    if not kernel.term or stored is None:
        return
    if stored["voucher"] and stored["voucher"]["term"] == kernel.term and stored["epoch"] == kernel.epoch:
        yield node, "", "its kernel loses the term that its heartbeat names", [kernel.lines.get("term", 0)]
    if stored["epoch"] != kernel.epoch and kernel.may_answer(line["ns"]):
        yield node, "", "its epoch is over, and the term goes before the fence", [kernel.lines.get("term", 0)]


# ---- vouching: what the kernel has, and what the heartbeat says of it ----


def _bound_by_grants(cluster: Cluster, line: Json) -> Found:
    """What an agent reads in its kernel is what that node's voucher has granted, and no more."""
    seen, node = line["seen"], line["node"]
    named = cluster.store.named.get(seen["number"])
    if not seen["bound"] or named is None or named[1]["instance"] not in cluster.traced:
        return
    term, lines = cluster.terms.get(seen["number"]), [cluster.kernels[node].lines.get("term", 0)]
    if term is None or not term.stamp_ns:
        yield node, "", f"its kernel is bound to the term {named[1]['term']}, in which nothing was granted", lines
    elif seen["fence_ns"] > cluster.vouched_ns(node):
        over_ns = seen["fence_ns"] - cluster.vouched_ns(node)
        yield node, "", f"its voucher's fence is {_ms(over_ns)} beyond what was granted", [term.line]


def _stays_bound(cluster: Cluster, line: Json) -> Found:
    node, kernel = line["node"], cluster.kernels[line["node"]]
    seen = line["kept"]["term"] if line["event"] == "started" else line["seen"]
    if kernel.looked["bound"] and seen["number"] == kernel.looked["number"] and not seen["bound"]:
        yield node, "", "its kernel was bound to its term, and is no more", [kernel.lines.get("look", 0)]


def _says_bound_when_it_is(cluster: Cluster, line: Json) -> Found:
    effect, node = line["effect"], line["node"]
    if effect["node"] != node or not effect["bound"]:
        return
    looked, number = cluster.kernels[node].looked, term_number(effect["voucher"]["term"])
    if not (looked["bound"] and looked["number"] == number):
        yield node, "", f"it says that it is bound to the term {effect['voucher']['term']}, and has not seen that", []


def _quiet_says_nothing_new(cluster: Cluster, line: Json) -> Found:
    effect, node = line["effect"], line["node"]
    last = cluster.agents[node].said
    if effect["node"] != node or not effect["quiet"]:
        return
    if last is None or any(effect[each] != last[each] for each in ("epoch", "duration_ns", "voucher", "bound")):
        yield node, "", "it hides a renewal that says something new", []


# ---- vouching: what vouchers do ----


def _own_terms_only(cluster: Cluster, line: Json) -> Found:
    term = line["term"]
    before, named = cluster.terms.get(term["number"]), cluster.store.named.get(term["number"])
    if before is not None and before.over and before.instance == line["instance"]:
        yield line["node"], "", "it vouches again in a term that it has ended", [before.line]
    if term["trial"] or named is None:
        return
    _, voucher = named
    if (voucher["node"], voucher["instance"]) != (line["node"], line["instance"]):
        yield line["node"], "", f"it vouches in the term {voucher['term']} of {voucher['instance']}", []


def _grants_what_is_new(cluster: Cluster, line: Json) -> Found:
    term = cluster.terms.get(line["number"])
    if term is None:
        return
    if line["stamp_ns"] <= term.stamp_ns:
        yield line["node"], "", "it grants by a stamp that is no newer", [term.line]
    if not term.adopted_ns <= line["ping"] <= line["pinged_ns"]:
        yield line["node"], "", "it grants for a ping that it has not sent in this term", [term.line]


def _grants_in_terms_that_go_on(cluster: Cluster, line: Json) -> Found:
    term = cluster.terms.get(line["number"])
    if term is not None and term.over:
        yield line["node"], "", "it grants in a term that it has ended", [term.line]
    if term is not None and term.trial:
        yield line["node"], "", "it grants in a trial", [term.line]


def _grants_within_its_right(cluster: Cluster, line: Json) -> Found:
    term, right, node = cluster.terms.get(line["number"]), line["right"], line["node"]
    if term is None:
        return
    if right is None:
        yield node, "", "it grants, and does not know its own right", [term.line]
        return

    if right["until_ns"] <= line["noted_ns"]:
        yield node, "", f"its own right ended {_ms(line['noted_ns'] - right['until_ns'])} before it grants", [term.line]
    if right["epoch"] != term.epoch:
        yield node, "", "it grants in an epoch that the term does not name", [term.line]
    if line["noted_ns"] < line["heard_ns"]:
        yield node, "", f"it looked at its right {_ms(line['heard_ns'] - line['noted_ns'])} before a pong", [term.line]


def _names(cluster: Cluster, node: str, number: int) -> bool:
    """Whether a node's heartbeat names a term: if not, its kernel may have lost it a moment before the line says so."""
    found = cluster.store.heartbeats.get(node)
    return bool(found and found["voucher"]) and term_number(found["voucher"]["term"]) == number


def _knows_its_right(cluster: Cluster, line: Json) -> Found:
    """What a voucher takes for its own right is no more than its agent's lines allow."""
    term, right, node = cluster.terms.get(line["number"]), line["right"], line["node"]
    kernel = cluster.kernels[node]
    if term is None or right is None or kernel.fence_set_ns >= line["heard_ns"]:
        return  # in the last case its agent changed the fence just then
    most_ns = max(kernel.fence_ns, cluster.agents[node].reach_ns)
    if kernel.looked["bound"] and _names(cluster, node, kernel.looked["number"]):
        most_ns = min(most_ns, max(cluster.vouched_ns(node), kernel.looked["fence_ns"]))
    if right["until_ns"] > most_ns:
        yield node, "", f"it takes its own right for {_ms(right['until_ns'] - most_ns)} longer than it is", [term.line]


def _decides_when_it_may(cluster: Cluster, line: Json) -> Found:
    term, node = cluster.terms.get(line["number"]), line["node"]
    if term is None:
        return
    if term.over:
        yield node, "", "it ends a term again", [term.line]
    if not term.bound:
        yield node, "", "it ends a term in which no pong said that the kernel is bound", [term.line]
    if term.noted_ns is None:
        yield node, "", "it ends a term in which it granted nothing", [term.line]
    elif line["ns"] < term.noted_ns + term.d_ns:
        early_ns = term.noted_ns + term.d_ns - line["ns"]
        yield node, "", f"it ends a term {_ms(early_ns)} before d has passed", [term.line]


BEFORE: dict[str, list[tuple[str, Predicate]]] = {
    "fence set": [
        ("1 Renew: the fence counts from when a renewal was sent that succeeded", _fence_by_a_renewal),
        ("1 Renew: only success moves the fence", _epoch_confirmed),
    ],
    "heartbeat sent": [
        ("1 Renew: after anything but success it reads", _reads_after_a_failure),
        ("6 Part: the fence is cut before a shorter lease is sent", _cut_before_a_shorter_lease),
        ("3 Revoke: only what was silent for its lease, or V7, V17", _revokes_the_silent),
        ("3 Revoke: a missing heartbeat comes after the longest lease", _creates_after_the_longest_lease),
        ("V15 Long lease: it says bound only when it is", _says_bound_when_it_is),
        ("quiet: a renewal that says nothing new", _quiet_says_nothing_new),
    ],
    "heartbeat answered": [("3 Revoke: exactly the version that was seen", _replaces_what_it_names)],
    "heartbeat stored": [
        ("an epoch is used once", _epoch_used_once),
        ("with its epoch a node's right to answer ends", _silent_after_its_epoch),
        ("V1 Name: a term is named once", _terms_named_once),
        ("3 Revoke: exactly the version that was seen", _revokes_what_it_names),
    ],
    "entry put in": [("2 Claim: an entry after a CAS and a renewal", _entry_after_claim_and_renewal)],
    "claim sent": [
        ("2 Claim: only in a confirmed epoch", _claims_in_a_confirmed_epoch),
        ("a node probes before it takes a free claim", _probes_first),
        ("4 Hand over: the kernel first", _cleared_and_drained_first),
    ],
    "claim answered": [("2 Claim: exactly the version that was seen", _replaces_what_it_names)],
    "claim stored": [
        ("2 Claim: only what is free", _takes_what_is_free),
        ("3 Revoke: a new heartbeat voids nothing for a lease", _waits_for_a_new_heartbeat),
        ("who answers has the claim", _answers_for_its_own),
    ],
    "term set": [("V2 Tell the kernel afterwards", _term_after_it_is_named)],
    "term cleared": [("V8 Un-bind, V9 Begin again", _unbound_after_it_is_un_named)],
    "started": [("V10 Restart: what is bound stays bound", _stays_bound)],
    "term looked at": [
        ("V3 Bind: by grants, and no further than they allow", _bound_by_grants),
        ("V10 Restart: what is bound stays bound", _stays_bound),
    ],
    "term adopted": [("V10 Restart: only in terms of its own instance", _own_terms_only)],
    "granted": [
        ("V5 Grant: for its own ping, and a newer stamp", _grants_what_is_new),
        ("V6 Decide: nothing is granted afterwards", _grants_in_terms_that_go_on),
        ("V16 Grant within one's own right", _grants_within_its_right),
        ("V16 Grant within one's own right", _knows_its_right),
    ],
    "term decided": [("V6 Decide: bound, granted, and d has passed", _decides_when_it_may)],
}
AFTER: dict[str, list[tuple[str, Predicate]]] = {
    "fence set": [("at most one node answers", _one_answers)],
    "entry put in": [("at most one node answers", _one_answers)],
}


def _ms(length_ns: int) -> str:
    return f"{length_ns / 1_000_000:.3f} ms"
