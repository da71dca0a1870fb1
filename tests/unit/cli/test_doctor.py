"""What `arpguard doctor` prints."""

import pytest

from arpguard.cli import doctor
from arpguard.core.checkup.findings import Finding, Grade, ok, unknown
from arpguard.core.checkup.table import CHECKS, Result
from support.cli import HOSTILE, lines_of

SYSCTL = "sysctl -w net.ipv4.conf.eth0.arp_ignore=1"


def bad(about: str = "eth0", commands: tuple[str, ...] = (SYSCTL,)) -> Finding:
    return Finding(Grade.BAD, "seen", about, "it hurts", "mend it", commands)


def result(number: int, *findings: Finding) -> Result:
    return Result(CHECKS[number], findings)


def test_hints_are_commands_once_with_what_they_mend_before():
    lines = doctor.hints([result(0, bad("a"), ok("fine")), result(1, bad("b", (SYSCTL, "kubectl x")))])
    assert lines == [
        f"# {CHECKS[0].name} a: mend it",
        SYSCTL,
        f"# {CHECKS[1].name} b: mend it",
        "kubectl x",
        doctor._KEEP,
    ]


def test_hints_leave_alone_what_is_not_bad():
    careful = Finding(Grade.WARN, "seen", commands=(SYSCTL,))
    assert doctor.hints([result(0, careful, unknown("hidden"))]) == ["# nothing to fix"]


def test_hints_have_no_line_that_others_can_write():
    found = doctor.hints([result(0, bad("eth0\nrm -rf /", ("sysctl -w 'a\nb'", SYSCTL)))])
    assert found == [f"# {CHECKS[0].name} eth0 rm -rf /: mend it", SYSCTL, doctor._KEEP]


def test_page_shows_a_few_findings_of_a_check_and_how_many_more():
    page = doctor.page([result(0, *[bad(f"link{number}") for number in range(9)]), result(1, ok("fine"))])
    rows = [line for line in page.splitlines() if line.startswith(CHECKS[0].name + " ")]
    assert sum("link" in row for row in rows) == 2 * doctor.MOST_SHOWN
    assert any("4 more" in row for row in rows)
    assert page.splitlines()[-1] == "2 checks: 1 ok, 1 bad; --fix-hints prints the commands that fix what is bad"


def test_page_ends_with_lines_that_fit(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    grades = ("ok", "skip", "bad", "unknown", "warn")
    last = doctor.page([result(0, Finding(Grade(grade), "seen")) for grade in grades]).rpartition("\n\n")[2]

    assert last.replace("\n", " ").endswith("; --fix-hints prints the commands that fix what is bad")
    assert all(len(line) <= 80 for line in last.splitlines())


def test_page_begins_with_the_worst():
    grades = ("ok", "skip", "bad", "unknown", "warn")
    shown = doctor.page([result(0, Finding(Grade(grade), f"seen {grade}")) for grade in grades]).splitlines()

    assert [line.split()[1] for line in shown[1:6]] == ["bad", "warn", "unknown", "ok", "skip"]


def test_page_says_what_it_means_and_what_to_run():
    page = doctor.page([result(0, bad(commands=(SYSCTL, "second line")))])
    for text in ("means  it hurts", "fix    mend it", f"run    {SYSCTL}", "       second line"):
        assert text in page


def test_page_is_safe_for_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    hostile = Finding(Grade.BAD, HOSTILE, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,))
    lines_of(doctor.page([result(0, hostile)]))
    assert all(line.isprintable() for line in doctor.hints([result(0, hostile)]))


@pytest.mark.parametrize(("findings", "verdict"), [((ok("x"),), "ok"), ((ok("x"), bad()), "bad")])
def test_json_has_all_findings_and_the_worst_verdict(findings, verdict):
    document = doctor.as_json("node-1", [result(0, *findings)])
    assert (document["node"], document["verdict"]) == ("node-1", verdict)
    assert document["checks"][0]["check"] == CHECKS[0].name
    assert [finding["verdict"] for finding in document["checks"][0]["findings"]] == [f.grade.value for f in findings]


def test_an_agent_that_is_not_there_is_said_to_be_missing(tmp_path):
    assert (
        doctor._ask_agent("").why == "grpc.listen is empty in the agent's configuration, so the agent cannot be reached"
    )
    missing = f"unix://{tmp_path}/none.sock"
    assert doctor._ask_agent(missing).why == f"no agent listens at {missing}"
    dead = tmp_path / "dead.sock"
    dead.touch()
    assert str(dead) in doctor._ask_agent(f"unix://{dead}").why
