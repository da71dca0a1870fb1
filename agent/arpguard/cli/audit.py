"""`arpguard audit`: which hosts answer for the VIPs."""

import argparse
from collections.abc import Iterable, Sequence

from arpguard.cli import client, documents, everywhere, exits
from arpguard.cli.client import AgentQuestions, every_page
from arpguard.cli.render import Styled, bad, clean, good, paragraphs, table
from arpguard.cli.tables import claimant
from arpguard.cli.targets import target
from arpguard.cli.words import NONE, counted, seconds_since, span
from arpguard.v1 import agent_pb2 as pb

_COLUMNS = ("VIP", "LINK", "ANSWERS", "OWNER", "MAC", "WHO", "AGE")
_EXTERNAL = "a host outside"  # the API's word for an owner outside the cluster whose MAC is unknown
_SHOWN = 4  # of the hosts that answer for one VIP
_FINDINGS = {
    pb.Audit.FINDING_OWNER: "owner",
    pb.Audit.FINDING_NONE: "nobody",
    pb.Audit.FINDING_ANOTHER: "another",
    pb.Audit.FINDING_SEVERAL: "several",
}
_WRONG = "another host answers, or the owner does not"
_NOTHING = """this node has not audited any VIP yet, or other nodes audit all of them
`arpguard audit ADDRESS` audits a VIP now, and `arpguard audit --all-nodes` shows what all nodes found"""
_NOTHING_ANYWHERE = "no node that was reached has audited any VIP yet: name an ADDRESS to audit it now"


def audit(options: argparse.Namespace) -> int:
    """`arpguard audit`; exit code 1 when not exactly the owner answers for a VIP."""

    def ask(agent: AgentQuestions) -> pb.ListAuditsResponse:
        if options.vip:
            return pb.ListAuditsResponse(audits=agent.audit_vip(pb.AuditVipRequest(address=options.vip)).audits)
        return every_page(agent.list_audits, pb.ListAuditsRequest())

    if options.all_nodes:
        return everywhere.show(options, ask, OF_NODES)
    with client.connected(target(options)) as agent:
        answer = ask(agent)
    documents.show(options, answer, audits)
    return exits.OK if is_right(answer) else exits.NOT_RIGHT


def is_right(answer: pb.ListAuditsResponse) -> bool:
    """Whether exactly the owner answers for each VIP."""
    return all(found.right for found in answer.audits)


def audits(answer: pb.ListAuditsResponse) -> str:
    """The results, wrong ones first, and a summary."""
    rows = [row for found in _wrong_first(answer.audits) for row in _rows(found)]
    return f"{table(_COLUMNS, rows, yielding='OWNER')}\n\n{_verdict(answer.audits)}" if rows else paragraphs(_NOTHING)


def _of_nodes(answers: Sequence[tuple[str, pb.ListAuditsResponse]]) -> str:
    """The results of all nodes, wrong ones first, and a summary."""
    asked = [(node, found) for node, answer in answers for found in answer.audits]
    asked.sort(key=lambda pair: pair[1].right)
    rows = [(node if row[0] else "", *row) for node, found in asked for row in _rows(found)]
    head = ("NODE", *_COLUMNS)
    return (
        f"{table(head, rows, yielding='OWNER')}\n\n{_verdict([found for _, found in asked])}"
        if rows
        else _NOTHING_ANYWHERE
    )


OF_NODES = everywhere.View(_of_nodes, lambda answers: all(map(is_right, answers)))


def _wrong_first(audits: Iterable[pb.Audit]) -> list[pb.Audit]:
    return sorted(audits, key=lambda found: found.right)


def _rows(found: pb.Audit) -> list[tuple[object, ...]]:
    """A line for each host that answers, or one that says that none does."""
    text = _FINDINGS.get(found.finding, NONE)
    answers = Styled(text) if found.right else bad(text)
    first = (found.vip, found.link, answers, found.owner or NONE)
    hosts: list[tuple[object, object]] = [(_mac(answer), _who(found, answer)) for answer in found.answers[:_SHOWN]]
    if found.own:
        hosts = [(NONE, "this node"), *hosts]
    if len(found.answers) > _SHOWN:
        hosts.append((NONE, f"and {counted(len(found.answers) - _SHOWN, 'more host')}"))

    lines = [(*first, *(hosts[0] if hosts else (NONE, NONE)), span(seconds_since(found.time)).partition(" ")[0])]
    return [*lines, *(("", "", "", "", *host, "") for host in hosts[1:])]


def _mac(answer: pb.Answer) -> Styled:
    return Styled(answer.mac) if answer.owner else bad(answer.mac)


def _who(found: pb.Audit, answer: pb.Answer) -> object:
    """Whose a MAC is; without a cluster nobody knows which MACs a node has."""
    outside = answer.claimant.kind == pb.Claimant.KIND_OUTSIDE
    if answer.owner and outside and len(found.answers) > 1:
        return "perhaps the owner"
    if answer.owner:
        guessed = outside and found.owner not in ("", _EXTERNAL, answer.mac)
        return f"perhaps {clean(found.owner)}" if guessed else clean(found.owner) or NONE
    name = clean(answer.claimant.node) or claimant(pb.Conflict(claimant=answer.claimant))
    return bad("outside" if outside else name)


def of_wrong(answer: pb.ListAuditsResponse, vip: str, link: str) -> str:
    """A line for a list that does not show what an audit found; empty if that is right, on that VIP and link."""
    listed = (found for found in answer.audits if vip in ("", found.vip) and link in ("", found.link))
    wrong = {found.vip for found in listed if not found.right}
    return f"`arpguard audit` shows {counted(len(wrong), 'VIP')} for which {_WRONG}" if wrong else ""


def _verdict(audits: Sequence[pb.Audit]) -> Styled:
    wrong = len({found.vip for found in audits if not found.right})
    total = len({found.vip for found in audits})
    if wrong:
        return bad(f"{wrong:,} of {counted(total, 'VIP')}: {_WRONG}")
    silent = any(found.finding == pb.Audit.FINDING_NONE for found in audits)
    return good(f"{counted(total, 'VIP')}: {'no host but the owner' if silent else 'only the owner'} answers")
