"""Rules of the claim protocol, broken: by a scenario, by chance, or by Hypothesis, each has to be told."""

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from arpguard.core.ownership.fence import Fence
from arpguard.core.ownership.heartbeat import OwnHeartbeat
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.steps import Steps
from support.protocol.stories import (
    backup_is_restored,
    frozen_watch,
    hand_over,
    host_outside_came_while_all_were_away,
    no_heartbeat,
    no_heartbeat_of_a_long_lease,
    outage,
    parting,
    partition,
    release_on_its_way,
    renewal_under_way,
    revoked,
    shrinking,
    slow_answers,
    stale_watch,
    stuck_create,
)

Edit: TypeAlias = tuple[type, str, str, str]  # of a method of a class: what its source says, and what instead


def apply(edit: Edit, name: str, monkeypatch) -> None:
    """Puts another method in the place of one."""
    owner, method, old, new = edit
    found = inspect.getattr_static(owner, method)
    function = found.fget if isinstance(found, property) else found
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{name}: the source has changed"
    made: dict[str, object] = {}
    exec(source.replace(old, new), dict(vars(inspect.getmodule(owner))), made)
    monkeypatch.setattr(owner, method, made[method])


@dataclass(frozen=True)
class BrokenRule:
    """A rule of the protocol, broken: `old` in the source of `method` is `new`. `scenario` tells."""

    name: str
    method: tuple[type, str]
    old: str
    new: str
    scenario: Callable[[], None]

    def apply(self, monkeypatch) -> None:
        apply((*self.method, self.old, self.new), self.name, monkeypatch)


RULES = [
    BrokenRule(
        "fence counted from the response",
        (Ownership, "heartbeat_written"),
        "version, sent_ns, now_ns), now",
        "version, now_ns, now_ns), now",
        slow_answers,
    ),
    BrokenRule("no margin", (Times, "answers_ns"), " - self.margin_ns", "", partition),
    BrokenRule("half the margin", (Times, "answers_ns"), " - self.margin_ns", " - self.margin_ns // 2", partition),
    BrokenRule("revoked too early", (Peers, "lapse_ns"), "= max(", "= 0.5 * max(", partition),
    BrokenRule("revoked a little too early", (Peers, "lapse_ns"), "= max(", "= 0.95 * max(", partition),
    BrokenRule(
        "published lease ignored",
        (Peers, "lapse_ns"),
        "peer.lease_ns",
        "0",
        parting,
    ),
    BrokenRule(
        "unknown renewal counted",
        (OwnHeartbeat, "written"),
        "if outcome is not Outcome.APPLIED:",
        "if outcome not in (Outcome.APPLIED, Outcome.UNKNOWN):",
        partition,
    ),
    BrokenRule(
        "late taken for void without a revocation",
        (Steps, "_wait_for_holder"),
        "if void:",
        "if void or not self._peers.alive(claim.holder, moment.now_ns):",
        frozen_watch,
    ),
    BrokenRule(
        "silence in an outage held against others",
        (Peers, "lapse_ns"),
        "self.silences.since_ns + self.times.duration_ns)",
        "0)",
        outage,
    ),
    BrokenRule(
        "lease of a deleted heartbeat forgotten",
        (Peers, "lapse_ns"),
        "peer.lease_ns",
        "(peer.lease_ns if peer.known else 0)",
        no_heartbeat_of_a_long_lease,
    ),
    BrokenRule(
        "void concluded from a stale heartbeat",
        (Peers, "is_void"),
        "True if settled and peer.was_read_since(seen_ns) else None",
        "True if settled else None",
        stale_watch,
    ),
    BrokenRule(
        "void by an object that was made just now",
        (Peers, "is_void"),
        "settled = epoch in peer.epochs or now_ns >= self.settled_ns(peer)",
        "settled = True",
        stuck_create,
    ),
    BrokenRule(
        "release of an epoch that is over taken for a hand-over",
        (Steps, "_was_answered"),
        "(claim.external or claim.epoch)",
        "claim.external",
        host_outside_came_while_all_were_away,
    ),
    BrokenRule(
        "missing heartbeat taken for void",
        (Peers, "is_void"),
        "        return None\n",
        "        return True\n",
        no_heartbeat,
    ),
    BrokenRule(
        "same epoch kept after a revocation",
        (OwnHeartbeat, "_begin_anew"),
        "self.epoch = self._new_epoch()",
        "self.epoch = self.epoch or self._new_epoch()",
        revoked,
    ),
    BrokenRule(
        "answered before a renewal confirms",
        (Steps, "_confirming"),
        "moment.renewal is None or moment.renewal <= stage.renewal",
        "False",
        renewal_under_way,
    ),
    BrokenRule(
        "answered after a renewal that was sent before",
        (Steps, "_confirming"),
        "moment.renewal <= stage.renewal",
        "moment.renewal < stage.renewal",
        renewal_under_way,
    ),
    BrokenRule(
        "answered on the strength of a read",
        (Steps, "_take"),
        "        return self._claim(state, moment)\n\n    effects",
        "        state.stage = Owned()\n        return [SetEntry(state.vip, moment.epoch)]\n\n    effects",
        release_on_its_way,
    ),
    BrokenRule(
        "released before it is cleared",
        (Steps, "_owned"),
        "state.move(cause)\n    return [",
        "state.stage = Idle()\n    return [*self._end(state, cause, moment), ",
        hand_over,
    ),
    BrokenRule(
        "released before it is drained",
        (Steps, "_owned"),
        "state.move(cause)\n    return [ClearEntry(state.vip, drain=True, why=state.in_words(cause))]",
        "state.stage = Idle()\n    return [ClearEntry(state.vip, drain=True), *self._end(state, cause, moment)]",
        hand_over,
    ),
    BrokenRule(
        "a shorter lease published under a longer fence",
        (Fence, "shorten"),
        "if self._told_ns > ",
        "if 0 > ",
        parting,
    ),
    BrokenRule(
        "a cut fence extended again",
        (Fence, "shorten"),
        "self._reach_ns = min(self._reach_ns, now_ns + lease.answers_ns)",
        "pass",
        shrinking,
    ),
    BrokenRule(
        "older heartbeat taken for this node's last one",
        (OwnHeartbeat, "read"),
        "found is not None and found.version.is_older_than(self._version)",
        "False",
        backup_is_restored,
    ),
]
