"""What the lines of a trace say about a cluster: its kernels, its nodes and the API server's objects, as one state.

It takes nothing from the code under test but the names in the lines. A line has `at`, a clock for all of them; that of
a node has `ns`, too, which is its boot clock.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

Json: TypeAlias = dict[str, Any]

NEVER = -(1 << 62)
S_NS = 1_000_000_000


@dataclass
class Kernel:
    """`entries`, `draining`: the epoch of each VIP that the node answers for, or did until a moment ago."""

    epoch: str = ""
    fence_ns: int = 0
    lease_ns: int = 0
    entries: dict[str, str] = field(default_factory=dict)
    draining: dict[str, str] = field(default_factory=dict)
    fence_set_ns: int = NEVER
    term: str = ""
    looked: Json = field(default_factory=lambda: {"number": 0, "bound": False, "fence_ns": 0})  # as its agent saw last
    lines: dict[str, int] = field(default_factory=dict)  # the last about the fence, and about each VIP

    def may_answer(self, now_ns: int) -> bool:
        """By the API's fence: with a voucher it is silent earlier, which no agent sees."""
        return bool(self.epoch) and 0 < self.fence_ns - now_ns <= self.lease_ns

    def answers(self, vip: str, now_ns: int) -> bool:
        epoch = self.entries.get(vip) or self.draining.get(vip)
        return epoch == self.epoch and self.may_answer(now_ns)


@dataclass
class Term:
    """As its voucher has it. `noted_ns`: before the last grant was sent; `number`: of the line that adopted it."""

    voucher: str
    epoch: int
    d_ns: int
    adopted_ns: int
    line: int
    instance: str
    trial: bool
    bound: bool = False
    stamp_ns: int = 0
    noted_ns: int | None = None
    over: bool = False
    decided: bool = False


@dataclass
class Outages:
    """`lost_ns`: the last write of any node before this one could not renew; `over_ns`: when the last outage ended."""

    written_ns: int = 0
    lost_ns: int | None = None
    over_ns: int = NEVER

    def failed(self) -> None:
        if self.lost_ns is None:
            self.lost_ns = self.written_ns

    def renewed(self, now_ns: int, outage_ns: int) -> None:
        if self.lost_ns is not None and now_ns - self.lost_ns >= outage_ns:
            self.over_ns = now_ns
        self.lost_ns, self.written_ns = None, now_ns


@dataclass
class Agent:
    """One incarnation. `reach_ns`: how far its renewals allow the fence to go. `lets_answer_ns`: how long the renewal
    that is under way lets it answer, by the times that it had when it sent that.

    `claimed`: VIPs and epochs of CAS that succeeded, and when it heard that; `confirmed`: those with a renewal since.
    `seen`: when it first saw each version of a node's heartbeat, None for its absence.
    """

    times: Json
    epochs: set[str] = field(default_factory=set)  # that it knows the API server to have
    unread: bool = False  # a renewal failed, and it has not read its heartbeat since
    reach_ns: int = 0
    lets_answer_ns: int = 0
    renewed_ns: int = NEVER  # when the last renewal that was applied was sent
    claimed: dict[tuple[str, str], int] = field(default_factory=dict)
    confirmed: set[tuple[str, str]] = field(default_factory=set)
    seen: dict[str, dict[str | None, int]] = field(default_factory=lambda: defaultdict(dict))
    last_seen: dict[str, Json | None] = field(default_factory=dict)
    probed: set[str] = field(default_factory=set)  # VIPs that no host had when it probed last
    outages: Outages = field(default_factory=Outages)
    said: Json | None = None  # the last renewal, while it is certain that it was applied

    def answers_ns(self, renewal: Json) -> int:
        """How long after it was sent a renewal lets the kernel answer: rules 1 and 6, and V15."""
        lease_ns, times = renewal["duration_ns"], self.times
        if renewal["bound"] and times["bound_ns"] > times["duration_ns"]:
            return int(lease_ns - times["bound_margin_ns"])
        return int(lease_ns - lease_ns * times["margin_ns"] // times["duration_ns"])


@dataclass
class Stored:
    """What a version of an object replaced, and when. `void`: of a claim, whether its holder's epoch was over then."""

    before: Json | None
    at: int
    number: int
    void: bool = False


@dataclass
class Store:
    """The API server's Leases, by its journal."""

    heartbeats: dict[str, Json] = field(default_factory=dict)
    last: dict[str, Json] = field(default_factory=dict)  # the same, with those that were deleted
    claims: dict[str, Json] = field(default_factory=dict)
    versions: dict[str, Stored] = field(default_factory=dict)
    claim_of: dict[str, Json] = field(default_factory=dict)  # by version
    heartbeat_of: dict[str, Json] = field(default_factory=dict)  # by version
    ended: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # epochs of a node
    ended_early: set[tuple[str, str]] = field(default_factory=set)  # nodes, and epochs that others ended early
    made: dict[str, tuple[int, int]] = field(default_factory=dict)  # when an object came, by uid, and its lease
    epochs: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # that an object ever had, by uid
    longest_ns: dict[str, int] = field(default_factory=dict)  # what heartbeats of a node ever published
    over: dict[tuple[str, str, str], int] = field(default_factory=dict)  # when a node, epoch and instance ended
    terms: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # that a node ever named
    named: dict[int, tuple[str, Json]] = field(default_factory=dict)  # terms by number: the node, and its voucher

    def is_void(self, claim: Json) -> bool:
        heartbeat = self.heartbeats.get(claim["holder"])
        return heartbeat is not None and heartbeat["epoch"] not in ("", claim["epoch"])


@lru_cache(maxsize=10_000)
def term_number(uuid: str) -> int:
    """What kernels and vouchers call a term: 64 bits of a digest of its UUID; 0 for none."""
    if not uuid:
        return 0
    return int.from_bytes(hashlib.sha256(UUID(uuid).bytes).digest()[:8], "little") or 1


def uid(version: str) -> str:
    return version.partition("/")[0]


class Cluster:
    """All of it. `rates`: how fast the nodes' clocks run, where that is not 1."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rates = rates
        self.kernels: dict[str, Kernel] = defaultdict(Kernel)
        self.agents: dict[str, Agent] = {}
        self.traced: set[str] = set()  # instances: of agents without a trace only the API server's lines tell
        self.terms: dict[int, Term] = {}  # by number
        self._reach_ns: dict[int, int] = defaultdict(int)  # how far the grants of a term let a kernel answer
        self._carried_ns: dict[str, int] = defaultdict(int)  # the same of a node's terms before the present one
        self.revoked_by: dict[str, str | None] = {}  # epochs that nodes gave others: the version that they named
        self.store = Store()

    def now_ns(self, node: str, at: int) -> int:
        """What a node's boot clock shows."""
        return int(at * self._rates.get(node, 1.0))

    def vouched_ns(self, node: str) -> int:
        """How far all that was granted to a node lets its kernel answer; a new term keeps what the one before gave."""
        return max(self._carried_ns[node], self._reach_ns[self.kernels[node].looked["number"]])

    def take(self, line: Json, number: int) -> None:
        """The next line."""
        does = _TAKES.get(line["event"])
        if does is not None:
            does(self, line, number)

    # ---- lines of agents ----

    def _started(self, line: Json, number: int) -> None:
        kept, node = line["kept"], line["node"]
        agent = self.agents[node] = Agent(line["times"], {kept["epoch"]} - {""})
        agent.reach_ns = kept["fence_ns"]
        self.traced.add(line["instance"])
        self.kernels[node] = Kernel(
            epoch=kept["epoch"],
            fence_ns=kept["fence_ns"],
            lease_ns=max(line["times"].values()),
            entries=dict.fromkeys(kept["vips"], kept["epoch"]),
            term=str(kept["term"]["number"] or ""),
            looked=kept["term"],
            lines=dict.fromkeys(["fence", *kept["vips"]], number),
        )

    def _times_set(self, line: Json, _number: int) -> None:
        self.agents[line["node"]].times = line["times"]

    def _fence_set(self, line: Json, number: int) -> None:
        kernel, effect = self.kernels[line["node"]], line["effect"]
        kernel.epoch, kernel.fence_ns, kernel.lease_ns = effect["epoch"], effect["fence_ns"], effect["lease_ns"]
        kernel.fence_set_ns = line["ns"]
        kernel.lines["fence"] = number

    def _put_in(self, line: Json, number: int) -> None:
        kernel, effect = self.kernels[line["node"]], line["effect"]
        kernel.entries[effect["vip"]] = effect["epoch"]
        kernel.lines[effect["vip"]] = number

    def _taken_out(self, line: Json, number: int) -> None:
        kernel, effect = self.kernels[line["node"]], line["effect"]
        epoch = kernel.entries.pop(effect["vip"], "")
        if effect["drain"] and epoch:
            kernel.draining[effect["vip"]] = epoch
        kernel.lines[effect["vip"]] = number

    def _drained(self, line: Json, _number: int) -> None:
        self.kernels[line["node"]].draining.pop(line["vip"], None)

    def _term_set(self, line: Json, number: int) -> None:
        self._new_term(line["node"], line["effect"]["term"]["uuid"], number)

    def _term_cleared(self, line: Json, number: int) -> None:
        self._new_term(line["node"], "", number)

    def _new_term(self, node: str, uuid: str, number: int) -> None:
        kernel = self.kernels[node]
        self._carried_ns[node] = self.vouched_ns(node)
        kernel.term = uuid
        kernel.looked = {"number": term_number(uuid), "bound": False, "fence_ns": 0}
        kernel.lines["term"] = number

    def _looked_at(self, line: Json, number: int) -> None:
        kernel = self.kernels[line["node"]]
        if line["seen"]["number"] == kernel.looked["number"]:
            kernel.looked = line["seen"]
            kernel.lines["look"] = number

    # ---- lines of vouchers ----

    def _adopted(self, line: Json, number: int) -> None:
        """It may have been adopted before, and dropped: what was granted then still counts."""
        term, times = line["term"], (line["term"]["d_ns"], line["ns"])
        known = self.terms.get(term["number"])
        self.terms[term["number"]] = Term(
            line["node"], term["epoch"], *times, number, line["instance"], trial=term["trial"]
        )
        self.terms[term["number"]].stamp_ns = known.stamp_ns if known else 0

    def _granted(self, line: Json, _number: int) -> None:
        term, named = self.terms.get(line["number"]), self.store.named.get(line["number"])
        if term is None:
            return
        term.stamp_ns, term.noted_ns = max(term.stamp_ns, line["stamp_ns"]), line["noted_ns"]
        if named is not None:
            _, voucher = named
            reach_ns = line["stamp_ns"] + voucher["d_ns"] - voucher["m_ns"]
            self._reach_ns[line["number"]] = max(self._reach_ns[line["number"]], reach_ns)

    def _bound_seen(self, line: Json, _number: int) -> None:
        if line["number"] in self.terms:
            self.terms[line["number"]].bound = True

    def _term_over(self, line: Json, _number: int) -> None:
        if line["number"] in self.terms:
            term = self.terms[line["number"]]
            term.over, term.decided = True, line["event"] == "term decided"

    def _heartbeat_sent(self, line: Json, _number: int) -> None:
        agent, effect = self.agents[line["node"]], line["effect"]
        if effect["node"] != line["node"]:
            self.revoked_by[effect["epoch"]] = effect["version"]
        else:
            agent.lets_answer_ns = agent.answers_ns(effect)
            agent.reach_ns = min(agent.reach_ns, line["ns"] + agent.lets_answer_ns)

    def _heartbeat_answered(self, line: Json, _number: int) -> None:
        agent, sent = self.agents[line["node"]], line["sent"]
        applied = line["outcome"] == "applied"
        if sent["node"] != line["node"]:
            if applied:
                self._look(agent, sent["node"], {**sent, "instance": "", "version": line["version"]}, _event_ns(line))
            return
        agent.said = sent if applied else None
        if not applied:
            agent.outages.failed()
            agent.unread = True
            return

        agent.outages.renewed(_event_ns(line), agent.times["duration_ns"])
        agent.epochs.add(sent["epoch"])
        agent.renewed_ns = line["sent_ns"]
        agent.reach_ns = line["sent_ns"] + agent.lets_answer_ns
        agent.confirmed |= {each for each, heard_ns in agent.claimed.items() if heard_ns < line["sent_ns"]}

    def _heartbeat_seen(self, line: Json, _number: int) -> None:
        agent, of, found = self.agents[line["node"]], line["of"], line["found"]
        if of != line["node"]:
            self._look(agent, of, found, _event_ns(line))
        elif line["event"] == "heartbeat read":
            agent.unread = False
            if found is not None and found["instance"] == line["instance"]:
                agent.epochs.add(found["epoch"])

    def _look(self, agent: Agent, of: str, found: Json | None, now_ns: int) -> None:
        version = found["version"] if found else None
        before = agent.last_seen.get(of)
        if before and version and uid(version) == uid(before["version"]) and _is_older(version, before["version"]):
            return
        if of not in agent.last_seen or version != (before["version"] if before else None):
            agent.seen[of][version] = now_ns
            agent.outages.written_ns = now_ns
            agent.last_seen[of] = found

    def _not_read(self, line: Json, _number: int) -> None:
        if line["of"] == line["node"]:
            self.agents[line["node"]].outages.failed()

    def _claim_answered(self, line: Json, _number: int) -> None:
        agent, sent = self.agents[line["node"]], line["sent"]
        key = sent["vip"], sent["epoch"]
        if line["outcome"] == "applied" and sent["holder"] == line["node"]:
            agent.claimed[key] = line["ns"]
            agent.confirmed.discard(key)

    def _claim_sent(self, line: Json, _number: int) -> None:
        agent, effect = self.agents[line["node"]], line["effect"]
        if effect["holder"] != line["node"]:
            for claimed in [claimed for claimed in agent.claimed if claimed[0] == effect["vip"]]:
                del agent.claimed[claimed]
                agent.confirmed.discard(claimed)

    def _probed(self, line: Json, _number: int) -> None:
        probed = self.agents[line["node"]].probed
        (probed.add if line["taken_by"] is None else probed.discard)(line["vip"])

    # ---- lines of the API server ----

    def _heartbeat_stored(self, line: Json, number: int) -> None:
        store, node, found = self.store, line["of"], line["found"]
        before = store.heartbeats.pop(node, None)
        if found is None:
            return
        if found["instance"] and found["instance"] not in self.traced:  # no line says what its kernel answers for now
            self.kernels[node].entries.clear()
            self.kernels[node].draining.clear()
        store.heartbeats[node] = found
        store.versions[found["version"]] = Stored(before, line["at"], number)
        store.heartbeat_of[found["version"]] = found
        store.made.setdefault(uid(found["version"]), (line["at"], found["duration_ns"]))
        store.epochs[uid(found["version"])].add(found["epoch"])
        store.longest_ns[node] = max(store.longest_ns.get(node, 0), found["duration_ns"])
        if found["voucher"]:
            store.terms[node].add(found["voucher"]["term"])
            store.named[term_number(found["voucher"]["term"])] = node, found["voucher"]
        if before and before["epoch"] != found["epoch"]:
            store.ended[node].add(before["epoch"])
            if found["early"] or (before["bound"] and not found["instance"]):  # agents without vouching say no "early"
                store.ended_early.add((node, before["epoch"]))
        last = store.last.get(node)  # a deleted one is over, too, once the next one is there
        if last and any(last[each] != found[each] for each in ("epoch", "instance")):
            store.over[node, last["epoch"], last["instance"]] = line["at"]
        store.last[node] = found

    def _claim_stored(self, line: Json, number: int) -> None:
        store, vip, found = self.store, line["vip"], line["found"]
        before = store.claims.pop(vip, None)
        if found is not None:
            store.claims[vip] = found
            store.versions[found["version"]] = Stored(before, line["at"], number)
            store.claim_of[found["version"]] = found

    def _restored(self, line: Json, number: int) -> None:
        """What was written since the backup was made is gone, and its versions will be those of other writes."""
        store = self.store
        for each in (store.heartbeats, store.claims, store.versions, store.heartbeat_of, store.claim_of):
            each.clear()
        for name, found in line["objects"].items():
            stored = {"of": name, "vip": name, "found": found, "at": line["at"]}
            (self._claim_stored if "vip" in found else self._heartbeat_stored)(stored, number)


def _event_ns(line: Json) -> int:
    """The time by which the agent acts on it: on a busy machine it writes the line milliseconds later."""
    return int(line.get("now_ns", line["ns"]))


def _is_older(version: str, other: str) -> bool:
    mine, theirs = (each.partition("/")[2] for each in (version, other))
    return mine.isdecimal() and theirs.isdecimal() and int(mine) < int(theirs)


_TAKES = {
    "started": Cluster._started,
    "times set": Cluster._times_set,
    "fence set": Cluster._fence_set,
    "entry put in": Cluster._put_in,
    "entry taken out": Cluster._taken_out,
    "entry drained": Cluster._drained,
    "term set": Cluster._term_set,
    "term cleared": Cluster._term_cleared,
    "term looked at": Cluster._looked_at,
    "term adopted": Cluster._adopted,
    "granted": Cluster._granted,
    "bound seen": Cluster._bound_seen,
    "term decided": Cluster._term_over,
    "epoch over": Cluster._term_over,
    "heartbeat sent": Cluster._heartbeat_sent,
    "heartbeat answered": Cluster._heartbeat_answered,
    "heartbeat seen": Cluster._heartbeat_seen,
    "heartbeat read": Cluster._heartbeat_seen,
    "heartbeat not read": Cluster._not_read,
    "claim sent": Cluster._claim_sent,
    "claim answered": Cluster._claim_answered,
    "probe answered": Cluster._probed,
    "heartbeat stored": Cluster._heartbeat_stored,
    "claim stored": Cluster._claim_stored,
    "backup restored": Cluster._restored,
}
