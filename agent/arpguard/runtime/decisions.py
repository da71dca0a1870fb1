"""What the agent does with the decisions that the kernel reports."""

from arpguard.model import Decision
from arpguard.node import ThisNode
from arpguard.runtime.auditing import Auditing
from arpguard.runtime.controlplane import ControlPlane
from arpguard.runtime.serving import Serving
from arpguard.verdict import Verdict


class Decisions:
    """Lists decisions, sends them to API clients that watch, and reports rival claims to the control plane.

    It ignores answers that an audit caused and that may be the owner's: the audit judges those.
    """

    def __init__(self, node: ThisNode, serving: Serving, auditing: Auditing, plane: ControlPlane) -> None:
        self._node = node
        self._serving = serving
        self._auditing = auditing
        self._plane = plane

    def take(self, decision: Decision) -> None:
        """The kernel reports a decision."""
        report = self._node.decisions.add(decision, self._node.link_name(decision.key.ifindex))
        self._serving.publish(report)
        claims = decision.verdict in (Verdict.CONFLICT, Verdict.REPORT)
        if claims and not self._auditing.heard(decision):
            self._plane.claimed(report)
