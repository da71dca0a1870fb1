"""`arpguard audit`: who answers for VIPs, the wrong ones first, and what it comes to."""

import re
import time
from pathlib import Path

import grpc
import pytest

from arpguard.v1 import agent_pb2 as pb

OWNER, STRANGER = "02:00:00:00:00:01", "02:00:00:00:00:99"
NODE = pb.Claimant(kind=pb.Claimant.KIND_CLUSTER_NODE, node="node-1")
OUTSIDE = pb.Claimant(kind=pb.Claimant.KIND_OUTSIDE)
OWNERS = pb.Answer(mac=OWNER, claimant=NODE, owner=True)
STRANGERS = pb.Answer(mac=STRANGER, claimant=OUTSIDE)


def an_audit(finding: str, *answers: pb.Answer, vip: str = "192.0.2.10", **fields) -> pb.Audit:
    right = {"right": finding == "OWNER", "owner": "node-1"} | fields
    return pb.Audit(vip=vip, link="eth0", finding=f"FINDING_{finding}", answers=answers, **right)


def cells(text: str) -> list[list[str]]:
    return [[cell for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


@pytest.fixture
def shown(run, agent):
    """What is printed of these audits, and the exit code."""

    def show(*audits: pb.Audit) -> tuple[int, list[list[str]]]:
        agent.prepared.answers["ListAudits"] = pb.ListAuditsResponse(audits=audits)
        code, out, err = run("audit")
        assert err == ""
        return code, [[cell.strip() for cell in row[:-1] or row] for row in cells(out)]

    return show


def test_owner_that_answers_alone_is_right(shown):
    code, rows = shown(an_audit("OWNER", OWNERS))

    assert code == 0
    assert rows[1] == ["192.0.2.10", "eth0", "owner", "node-1", OWNER, "node-1"]
    assert rows[-1] == ["1 VIP: only the owner answers"]


def test_vip_that_may_be_silent_is_right_but_its_owner_does_not_answer(shown):
    code, rows = shown(an_audit("OWNER", OWNERS), an_audit("NONE", right=True, vip="192.0.2.11"))

    assert code == 0
    assert rows[-1] == ["2 VIPs: no host but the owner answers"]


def test_each_host_that_answers_has_a_line_and_the_wrong_vip_is_the_first(shown):
    code, rows = shown(an_audit("OWNER", OWNERS), an_audit("SEVERAL", OWNERS, STRANGERS, vip="192.0.2.11"))

    assert code == 1
    assert rows[1][:4] == ["192.0.2.11", "eth0", "several", "node-1"]
    assert rows[2][0] == STRANGER
    assert rows[3][0] == "192.0.2.10"
    assert rows[-1] == ["1 of 2 VIPs: another host answers, or the owner does not"]


def test_page_shows_what_is_printed(run, agent):
    """docs/audit.md, but for how long ago it was."""
    page = (Path(__file__).resolve().parents[3] / "docs/audit.md").read_text(encoding="utf-8")
    (shown_there,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    found = an_audit("SEVERAL", OWNERS, STRANGERS, vip="198.51.100.50")
    found.time.FromNanoseconds(time.time_ns() - 3 * 10**9)
    agent.prepared.answers["ListAudits"] = pb.ListAuditsResponse(audits=[found])

    _, out, _ = run("audit")
    assert re.sub(r"\d+s$", "3s", out, count=1, flags=re.MULTILINE) == shown_there


@pytest.mark.parametrize(
    ("audit", "words"),
    [
        (an_audit("NONE"), ["nobody", "node-1", "-"]),
        (an_audit("NONE", right=True, owner=""), ["nobody", "-"]),
        (an_audit("ANOTHER", STRANGERS), ["another", STRANGER, "outside"]),
        (
            an_audit("ANOTHER", pb.Answer(mac=STRANGER, claimant=pb.Claimant(kind=2, node="node-7"))),
            ["another", "node-7"],
        ),
        (an_audit("SEVERAL", STRANGERS, own=True), ["this node", STRANGER]),
        (an_audit("SEVERAL", *[pb.Answer(mac=OWNER, claimant=OUTSIDE, owner=True)] * 2), ["perhaps the owner"]),
        (an_audit("OWNER", pb.Answer(mac=OWNER, claimant=OUTSIDE, owner=True)), ["perhaps node-1"]),
        (an_audit("SEVERAL", *[STRANGERS] * 9), ["and 5 more"]),
        (pb.Audit(vip="192.0.2.10", finding=99), ["192.0.2.10"]),
    ],
    ids=str,
)
def test_what_is_found_in_words(run, agent, audit, words):
    agent.prepared.answers["ListAudits"] = pb.ListAuditsResponse(audits=[audit])
    code, out, _ = run("audit")

    assert code == (0 if audit.right else 1)
    assert not [word for word in words if word not in out], out


@pytest.mark.parametrize("owner", ["a host outside", OWNER])
def test_host_outside_that_owns_a_vip_is_not_guessed(shown, owner):
    code, rows = shown(an_audit("OWNER", pb.Answer(mac=OWNER, claimant=OUTSIDE, owner=True), owner=owner))

    assert code == 0
    assert rows[1][3:] == [owner, OWNER, owner]


SEVERAL = [pb.Answer(mac=mac, claimant=OUTSIDE, owner=True) for mac in (OWNER, STRANGER)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", True),
        ("--vip 192.0.2.10", True),
        ("--vip 192.0.2.11", False),
        ("--link eth1", False),
    ],
)
def test_list_of_claims_tells_what_the_agents_own_audit_found_besides(run, agent, words, said):
    agent.prepared.answers["ListConflicts"] = pb.ListConflictsResponse()
    agent.prepared.answers["ListAudits"] = pb.ListAuditsResponse(
        audits=[an_audit("SEVERAL", *SEVERAL), an_audit("OWNER", OWNERS, vip="192.0.2.11")]
    )
    code, out, err = run("conflicts", *words.split())

    assert (code, err) == (0, "")
    last = out.splitlines()[-1]
    assert (last == "`arpguard audit` shows 1 VIP for which another host answers, or the owner does not") is said


def test_address_is_asked_for_now(run, agent):
    agent.prepared.answers["AuditVip"] = pb.AuditVipResponse(audits=[an_audit("OWNER", OWNERS)])
    code, out, _ = run("audit", "192.0.2.10")

    assert (code, agent.prepared.requests[-1]) == (0, pb.AuditVipRequest(address="192.0.2.10"))
    assert OWNER in out


def test_nothing_found_yet_says_what_to_do(run, agent):
    agent.prepared.answers["ListAudits"] = pb.ListAuditsResponse()
    code, out, _ = run("audit")

    assert code == 0
    assert "`arpguard audit ADDRESS` audits a VIP now" in out


def test_what_to_do_is_told_in_lines_that_fit(run, agent, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    agent.prepared.answers["ListAudits"] = pb.ListAuditsResponse()
    _, out, _ = run("audit")

    assert max(map(len, out.splitlines())) <= 80


def test_node_that_cannot_ask_says_why(run, agent):
    agent.prepared.answers["AuditVip"] = grpc.StatusCode.FAILED_PRECONDITION, "address: 192.0.2.10: node-1 cannot ask"

    assert run("audit", "192.0.2.10") == (1, "", "arpguard audit: ADDRESS: 192.0.2.10: node-1 cannot ask\n")
