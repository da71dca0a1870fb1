"""What agents answer, in the form that commands print with `-o json`: asked without a process for each question."""

from collections.abc import Callable
from typing import Any, TypeAlias

from google.protobuf.message import Message

from arpguard.addresses import Address
from arpguard.cli import client, documents
from arpguard.cli.client import AgentQuestions, Target, every_page
from arpguard.v1 import agent_pb2 as pb
from arpguard_lab.topology import AgentProcess

Json: TypeAlias = dict[str, Any]

_LIMIT_S = 60.0  # on a busy machine


def status(agent: AgentProcess) -> Json:
    """`arpguard status`. This and the others raise AskError when the agent does not answer, or refuses."""
    return _asked(agent, lambda it: it.get_status(pb.GetStatusRequest()))


def vips(agent: AgentProcess, address: Address) -> list[Json]:
    """The entries of `arpguard vips ADDRESS`, one for each link."""
    found: list[Json] = _asked(agent, lambda it: it.get_vip(pb.GetVipRequest(address=str(address))))["vips"]
    return found


def audits(agent: AgentProcess, address: Address | None = None) -> list[Json]:
    """`arpguard audit`: what the node found last, or what it finds about one VIP now."""

    def ask(it: AgentQuestions) -> Message:
        if address is None:
            return every_page(it.list_audits, pb.ListAuditsRequest())
        return it.audit_vip(pb.AuditVipRequest(address=str(address)))

    found: list[Json] = _asked(agent, ask)["audits"]
    return found


def conflicts(agent: AgentProcess, address: Address | None = None, link: str = "") -> list[Json]:
    """`arpguard conflicts`, of all VIPs and links or of one."""
    request = pb.ListConflictsRequest(vip=str(address or ""), link=link)
    found: list[Json] = _asked(agent, lambda it: every_page(it.list_conflicts, request))["conflicts"]
    return found


def _asked(agent: AgentProcess, question: Callable[[AgentQuestions], Message]) -> Json:
    with client.connected(Target(agent.api, timeout_s=_LIMIT_S)) as it:
        return documents.as_dict(question(it))
