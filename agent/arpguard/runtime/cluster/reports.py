"""What this node posts as Events about Services, Nodes and the ConfigMap.

If all nodes find something, one of them posts the Event (`core.members.speaker`); if only one does, that node.
"""

from collections.abc import Iterable

from arpguard.addresses import Address, MacAddress
from arpguard.core.auditing import Audited
from arpguard.core.claimants import OUTSIDE, Claimant
from arpguard.core.cluster import ConfigMap
from arpguard.core.decisions import Report
from arpguard.core.electing import Wishes
from arpguard.core.members import Member, speaker
from arpguard.core.ownership.records import Holder
from arpguard.core.reporting import Notice, Subject
from arpguard.kube.events import EventWriter
from arpguard.runtime.cluster.objects import Cluster
from arpguard.runtime.cluster.outlook import Outlook
from arpguard.verdict import Verdict

_SHOWN = 4  # MACs in a note


class Reports:
    """Puts what happens into words, names the object it is about, and posts it."""

    def __init__(self, node: str, events: EventWriter, cluster: Cluster, outlook: Outlook) -> None:
        self._node = node
        self.events = events
        self._cluster = cluster
        self._outlook = outlook
        self._posted: frozenset[Notice] = frozenset()
        self._is_full = False

    # ---- what all nodes find ----

    def configuration(self, found: ConfigMap, wrong: str, members: Iterable[Member]) -> None:
        """The ConfigMap is wrong; until the nodes are known, each of them posts it."""
        subject = Subject("v1", "ConfigMap", found.namespace, found.name, found.uid)
        members = tuple(members)
        if not members or self._speaks_for(subject, members):
            self.events.post(Notice(subject, "BadConfiguration", "Configure", wrong))

    def news(self, members: Iterable[Member], elections: Wishes) -> None:
        """Posts what the last look at the objects found, once the nodes are known."""
        members = tuple(members)
        if not members:
            return
        collected = self._outlook.collected
        now = frozenset((*collected.notices, *collected.own_notices, *self._of_elections(elections)))
        for notice in now - self._posted:
            if notice in collected.own_notices or self._speaks_for(notice.subject, members):
                self.events.post(notice)
        self._posted = now

    def _of_elections(self, wishes: Wishes) -> Iterable[Notice]:
        for address in wishes.nobody:
            note = f"no node is eligible to own {address}: `arpguard explain {address}` says why for each node"
            yield Notice(self._subject(address), "NobodyEligible", "Elect", note)
        for address in wishes.apart:
            lead = self._outlook.lead(address)
            note = f"no node is eligible to own both {lead} and {address}, so each gets an owner of its own"
            yield Notice(self._subject(address), "FamiliesApart", "Elect", note)

    def _speaks_for(self, subject: Subject, members: Iterable[Member]) -> bool:
        return speaker(subject, members) == self._node

    # ---- what happens on this node ----

    def map_full(self, *, is_full: bool) -> None:
        """The map of this node has become full, or has room again."""
        if is_full and not self._is_full:
            node = self._node
            note = (
                f"the map on {node} is full: the VIPs that its agent's log names are not guarded there; raise "
                "bpf.max_entries"
            )
            self.events.post(Notice(self._node_subject(), "MapFull", "Guard", note))
        self._is_full = is_full

    def owned(self, address: Address, holder: Holder) -> None:
        """This node has begun to answer for a VIP."""
        if holder.transitions:  # a first owner is not a change, and there may be thousands
            note = f"{self._node} now answers for {address}"
            self.events.post(Notice(self._subject(address), "OwnerChanged", "Elect", note, warning=False))

    def taken_outside(self, address: Address, mac: MacAddress, claimant: Claimant) -> None:
        """A probe found a host outside the cluster, or a node without an agent."""
        who = f"outside the cluster by {mac}" if claimant == OUTSIDE else f"by {claimant}, {mac}"
        note = f"{address} is in use {who}: no node answers for it until that host falls silent"
        self.events.post(Notice(self._subject(address), "VIPTakenOutside", "Probe", note))

    def claimed(self, report: Report, claimant: Claimant, owner: str) -> None:
        """Another host claims a VIP of `owner` (empty: no node's); a claim that may be the owner's is not posted."""
        decision = report.decision
        vip = decision.key.vip
        if claimant.is_node:
            holder = owner or "no node"
            note = (
                f"{self._node} hears {claimant} claim {vip} on {report.link} with MAC {decision.sha}, but {holder} "
                "owns it: two nodes may be answering"
            )
            self.events.post(Notice(self._subject(vip), "VIPSplitBrain", "Guard", note))
        elif decision.verdict is Verdict.CONFLICT:
            who = "" if claimant == OUTSIDE else f" ({claimant})"
            note = (
                f"{decision.sha}{who} claims {vip} on {report.link} of {self._node}, but is not its owner: remove the "
                "address from that host"
            )
            self.events.post(Notice(self._subject(vip), "VIPConflict", "Guard", note))

    def answered_by_others(self, audited: Audited) -> None:
        """This node asked for a VIP, and hosts other than its owner answered."""
        vip, who = audited.key.vip, audited.expected.who
        whose = f"whose owner is {who}" if who else "which has no known owner"
        answers = " and ".join(map(str, audited.answers[:_SHOWN]))
        verb = "answers" if len(audited.answers) == 1 else "answer"
        note = f"{self._node} asked on {audited.link}: {answers} {verb} for {vip}, {whose}"
        self.events.post(Notice(self._subject(vip), "VIPAnsweredByOthers", "Audit", note))

    # ---- the objects ----

    def _subject(self, address: Address) -> Subject:
        """The object that makes an address a VIP; this node's own if that is the configuration."""
        vip = self._outlook.collected.vips.get(address)
        if vip is not None and vip.service is not None:
            namespace, name = vip.service
            service = self._cluster.services.get(vip.service)
            return Subject("v1", "Service", namespace, name, service.uid if service else "")
        return self._node_subject()

    def _node_subject(self) -> Subject:
        node = self._cluster.nodes.get(self._node)
        return Subject("v1", "Node", "", self._node, node.uid if node else "")
