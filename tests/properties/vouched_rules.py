"""Rules of vouching, broken: each, as docs/vouching-model.md lists them, has to be told by a story."""

from collections.abc import Callable
from dataclasses import dataclass

from arpguard.core.ownership.fence import Fence
from arpguard.core.ownership.heartbeat import OwnHeartbeat
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.naming import Naming
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.reading import PeerReads
from arpguard.core.ownership.relying import Reliance
from arpguard.core.ownership.revoking import Revocations
from arpguard.core.ownership.silences import Silences
from arpguard.core.ownership.sweeping import Sweeping
from arpguard.core.vouching.voucher import Adoption, Voucher
from properties.broken_rules import Edit, apply
from support.protocol.simulation import Api, Kernel, Node
from support.protocol.vouched_stories import (
    agent_is_killed,
    agent_that_was_replaced,
    back_to_the_first,
    chain,
    chain_from_the_side,
    chain_of_one_that_is_not_bound,
    claim_from_before_vouching,
    cut_off,
    cut_off_and_restarts,
    decision_after_it_was_un_bound,
    decision_that_is_late,
    grants_are_lost,
    heartbeat_of_a_bound_node_is_deleted,
    heartbeat_of_a_parted_node_is_deleted,
    named_again,
    node_dies_with_its_voucher,
    outage_leaves_vouchers,
    outage_that_few_notice,
    parts,
    quiet_agent_is_killed,
    quiet_heartbeat_is_deleted,
    quiet_node_dies,
    quiet_node_dies_with_its_voucher,
    quiet_nodes,
    renaming_that_is_stuck,
    revocation_of_a_quiet_node_on_its_way,
    revocation_on_its_way,
    revoked_and_back,
    ring,
    slow_grant,
    slow_ping,
    two_terms,
    un_named,
    voucher_dies,
    voucher_in_another_epoch,
    voucher_restarts_after_it_decided,
    voucher_restarts_without_a_right,
    voucher_that_cannot_revoke,
    voucher_that_looked_early,
    voucher_that_rests,
)


@dataclass(frozen=True)
class BrokenVouching:
    """`name`: of RULES as in the model, which is searched with the same rule broken. `story` tells."""

    name: str
    story: Callable[[], None]
    edits: tuple[Edit, ...]

    def apply(self, monkeypatch) -> None:
        for edit in self.edits:
            apply(edit, self.name, monkeypatch)


def broken(name: str, story: Callable[[], None], *edits: Edit) -> BrokenVouching:
    return BrokenVouching(name, story, edits)


ANY_INSTANCE = (
    (Voucher, "adopt", "term.instance != self._instance or ", ""),
    (
        Revocations,
        "vouches_for",
        "(voucher.node, voucher.instance, voucher.epoch) == me",
        "(voucher.node, voucher.epoch) == (me[0], me[2])",
    ),
)
WITHOUT_VERSION = (
    Api,
    "write",
    "old.version != effect.version:",
    'old.version != effect.version and getattr(effect, "instance", "-"):',
)
ANY_VERSION = (PeerReads, "replace_early", "if not self._peers.is_hidden(peer):", "if True:")
NO_RIGHT = (Adoption, "pong", "right is not None and now_ns < right.until_ns", "True")
NO_CUT = (Fence, "shorten", "if self._told_ns > ", "if 0 > ")

RULES = [
    broken("v-no-fence", cut_off, (Kernel, "right", "if self.bound and not ", "if False and not ")),
    broken("v-no-bound", grants_are_lost, (Adoption, "decides", "self._bound and ", "")),
    broken("v-early", cut_off, (Adoption, "_over_ns", "+ self.term.d_ns", "+ self.term.d_ns * 3 // 4")),
    broken(
        "v-count-from-ping",
        slow_ping,
        (Adoption, "pong", "self._note(now_ns)\n        effects", "self._note(pong.number)\n        effects"),
    ),
    broken(
        "v-grants-on",
        decision_that_is_late,
        (
            Voucher,
            "emptied",
            "self._finish(number)",
            "if number in self._over:\n        return []\n    self._over.add(number)",
        ),
    ),
    broken("v-late-fence", slow_grant, (Kernel, "grant", "stamp + self.window", "now + self.window")),
    broken(
        "v-unbinds-early",
        cut_off,
        (
            OwnHeartbeat,
            "_write",
            "now_ns), renewal]",
            "now_ns), *(self.naming.begin_anew() if voucher is None else []), renewal]",
        ),
    ),
    broken(
        "v-unbinds-unsure",
        cut_off,
        (OwnHeartbeat, "_failed", "return []", "return self.naming.applied(self.epoch, now_ns)"),
    ),
    broken(
        "v-restart-unbinds",
        cut_off_and_restarts,
        (Node, "boot", "self.kernel.on_wire.clear()", "self.kernel.bound_term = 0"),
    ),
    broken(
        "v-term-first",
        revoked_and_back,
        (
            OwnHeartbeat,
            "_begin_anew",
            "[*self.fence.drop(self.epoch, self.lease.published), *self.naming.begin_anew()]",
            "[*self.naming.begin_anew(), *self.fence.drop(self.epoch, self.lease.published)]",
        ),
    ),
    broken(
        "v-binds-early",
        renaming_that_is_stuck,
        (OwnHeartbeat, "_write", "now_ns), renewal]", "now_ns), *self.naming.applied(self.epoch, now_ns), renewal]"),
    ),
    broken(
        "v-no-reread",
        decision_after_it_was_un_bound,
        (
            Revocations,
            "_names_this",
            "return named == (self._node, self._instance, term)",
            'return known is not None and known.instance != ""',
        ),
    ),
    broken("v-no-version", revocation_on_its_way, WITHOUT_VERSION),
    broken(
        "v-term-again",
        back_to_the_first,
        (
            Naming,
            "publish",
            "self._new_term()",
            "__import__('uuid').uuid5(__import__('uuid').NAMESPACE_DNS, voucher.node).__str__()",
        ),
    ),
    broken(
        "v-bound-for-all",
        named_again,
        (Adoption, "pong", "self._bound = True", "self._bound = Adoption.ever_bound = True"),
        (Adoption, "decides", "self._bound and", 'getattr(Adoption, "ever_bound", False) and'),
    ),
    broken(
        "v-other-term",
        two_terms,
        (Kernel, "grant", "if term == self.term and", "term = self.term\n    if"),
        (Kernel, "pong", "term == self.term", "True"),
    ),
    broken("v-old-grants", voucher_restarts_after_it_decided, *ANY_INSTANCE),
    broken(
        "v-old-revokes",
        voucher_restarts_without_a_right,
        *ANY_INSTANCE,
        (
            Adoption,
            "_over_ns",
            "None if self.term.trial or self._noted_ns is None else self._noted_ns + self.term.d_ns",
            "self._adopted_ns",
        ),
        (
            Revocations,
            "_names_this",
            "(voucher.node, voucher.instance, voucher.term)",
            "(voucher.node, self._instance, voucher.term)",
        ),
    ),
    broken(
        "v-late-write",
        agent_that_was_replaced,
        (
            Node,
            "boot",
            "self.todo.clear()",
            "self.late.extend(each for each in self.todo if isinstance(each, ClearTerm))\n    self.todo.clear()",
        ),
    ),
    broken("v-thin-margin", cut_off, (Kernel, "set_term", "term.d_ns - term.m_ns", "term.d_ns - term.m_ns // 4")),
    broken("v-no-margin", cut_off, (Kernel, "set_term", "term.d_ns - term.m_ns", "term.d_ns")),
    broken("v-flat-margin", agent_is_killed, (Times, "at_bound", "self.bound_margin_ns", "self.margin_ns")),
    broken("v-no-cut", un_named, NO_CUT),
    broken("v-short-wait", agent_is_killed, (Peers, "lapse_ns", "peer.lease_ns", "0")),
    broken(
        "v-chain-unbound", chain_of_one_that_is_not_bound, (Revocations, "_revocable_ns", "not known.bound", "False")
    ),
    broken(
        "v-says-early",
        grants_are_lost,
        (Naming, "_is_bound", "self.kernel.bound and self.kernel.number == voucher.number", "True"),
    ),
    broken("v-chain-early", chain, (Revocations, "_judge", "now_ns + voucher.d_ns", "now_ns")),
    broken("v-chain-no-version", chain_from_the_side, WITHOUT_VERSION),
    broken("v-chain-grants-on", chain, (Voucher, "pong", "right.epoch != adoption.term.epoch", "False"), NO_RIGHT),
    broken(
        "v-parts-swapped",
        parts,
        (
            OwnHeartbeat,
            "part",
            "return self.tick(now_ns)",
            "self.naming.named = None\n    return [*self.naming.begin_anew(), *self.tick(now_ns)]",
        ),
    ),
    broken("v-parts-uncut", parts, NO_CUT),
    broken(
        "v-settles-early",
        heartbeat_of_a_bound_node_is_deleted,
        (Peers, "settled_ns", ", self._longest_of(peer)", ""),
        (Peers, "replace", "if peer.known is None:", "if False:"),
    ),
    broken("v-mutual-no-right", chain, NO_RIGHT),
    broken(
        "v-mutual-api-right",
        ring,
        (Node, "right", "self.kernel.right(self.now())", "self.kernel.fence_at(self.now())"),
    ),
    broken("v-ring-no-right", ring, NO_RIGHT),
    broken(
        "v-mutual-looks-early",
        voucher_that_looked_early,
        (Node, "grant", "self.right(), self.now()", "*self.looked"),
        (
            Node,
            "vouches",
            "self.do_vouching(self.voucher.tick(self.now()))",
            "self.do_vouching(self.voucher.tick(self.now()))\n    self.looked = self.right(), self.now()",
        ),
    ),
    broken(
        "v-mutual-regrant",
        voucher_in_another_epoch,
        (Voucher, "pong", "right.epoch != adoption.term.epoch", "False"),
        (
            Revocations,
            "vouches_for",
            "(voucher.node, voucher.instance, voucher.epoch) == me",
            "(voucher.node, voucher.instance) == me[:2]",
        ),
    ),
    broken(
        "v-quiet-lease-shown",
        voucher_that_rests,
        (
            Peers,
            "seen",
            "peer.show(heartbeat, now_ns)",
            "peer.show(heartbeat, peer.since_ns if as_of_ns and before and before.bound else now_ns)",
        ),
    ),
    broken("v-quiet-no-version", revocation_of_a_quiet_node_on_its_way, WITHOUT_VERSION),
    # Nobody answers in the end.
    broken(
        "v-keeps-term", voucher_dies, (Naming, "_show", "if number == self.kernel.number:", "if self.kernel.number:")
    ),
    broken("v-never-unbinds", voucher_dies, (Naming, "_next", "self._lapsing or ", "")),
    broken("v-quiet-decided-unread", quiet_node_dies, ANY_VERSION),
    broken("v-quiet-chain-unread", quiet_node_dies_with_its_voucher, ANY_VERSION),
    broken("v-quiet-unswept", agent_is_killed, (Sweeping, "sweep", "looks or ", "")),
    broken(
        "v-quiet-swept-once",
        quiet_agent_is_killed,
        (PeerReads, "look_ns", "_look_after_ns(peer, until_ns)", "until_ns"),
        (PeerReads, "look", "_look_after_ns(self._peers.peer(node), until_ns)", "until_ns"),
    ),
]

# What the model does not tell apart.
OTHER_RULES = [
    broken(
        "settles when a bound node would be silent",
        heartbeat_of_a_parted_node_is_deleted,
        (Peers, "seen", "peer.show(heartbeat, now_ns)", "peer.show(heartbeat, now_ns)\n        peer.longest_ns = 0"),
    ),
    broken(
        "a claim that names no heartbeat is void by any",
        claim_from_before_vouching,
        (Peers, "is_void", "uid == peer.known.version.uid", 'uid in ("", peer.known.version.uid)'),
    ),
    broken(
        "revoked by one that has not renewed since",
        outage_that_few_notice,
        (Silences, "counts", "self._renewed_ns is None or self._renewed_ns < from_ns", "False"),
    ),
    broken(
        "silence in an outage held against others",
        outage_that_few_notice,
        (Silences, "renewed", "self.since_ns = now_ns", "pass"),
    ),
    broken(
        "V19: rests on a voucher that cannot revoke",
        voucher_that_cannot_revoke,
        (Naming, "_next", " or self.is_behind", ""),
    ),
    broken(
        "V19: leaves it for what was silent in an outage",
        outage_leaves_vouchers,
        (Reliance, "judge", "self._peers.silences.counts(named.node, behind_ns, now_ns)", "now_ns >= behind_ns"),
    ),
    broken(
        "a bound node is silent because its renewals are not shown",
        quiet_nodes,
        (Peers, "_late_ns", "if self.is_hidden(peer) and ", "if False and "),
    ),
    broken(
        "V19: leaves a voucher because its renewals are not shown",
        quiet_nodes,
        (Reliance, "judge", "not self._reading.has_not_renewed(named.node, behind_ns)", "False"),
    ),
    broken(
        "nobody makes a heartbeat again that was deleted unseen",
        quiet_heartbeat_is_deleted,
        (Sweeping, "sweep", "self._reading.is_missing, self._swept", "self._reading.is_missing, ()"),
    ),
    broken(
        "a renewal that says something new is not shown",
        node_dies_with_its_voucher,
        (OwnHeartbeat, "_write", "replace(said, version=self._version) == renewal", "True"),
    ),
]
