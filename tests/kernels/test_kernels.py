"""Which package of a series is taken, and what runs are written as; a name states the fact."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from kernels import suites
from kernels.boot import AFTER, BEFORE, FOREIGN, OWN, OWNED, judged
from kernels.incident import Row, equal
from kernels.packages import Kernel, newest
from kernels.run import Run, table
from kernels.suites import SUITES, Outcome, Suite, outcome_of, suites_of
from kernels.suites import Run as SuitesRun
from kernels.suites import table as suites_table

LISTED = [
    "linux-image-6.1.0-9-amd64",
    "linux-image-6.1.0-56-amd64",
    "linux-image-6.1.0-57-rt-amd64",
    "linux-image-6.1.0-57-cloud-amd64",
    "linux-image-6.1.0-57-amd64-dbg",
    "linux-image-6.1.0-57-amd64-unsigned",
    "linux-image-6.12.100+deb12-amd64",
    "linux-image-6.12.99+deb12-amd64",
    "linux-image-6.12.117+deb12-cloud-amd64",
]


@pytest.mark.parametrize(
    ("series", "package"),
    [("6.1", "linux-image-6.1.0-56-amd64"), ("6.12", "linux-image-6.12.100+deb12-amd64"), ("6.17", None)],
)
def test_the_newest_plain_kernel_of_a_series_is_taken(series, package):
    assert newest(series, LISTED) == package


def test_what_is_not_as_expected_is_bold():
    rows = [equal("a", "x", "x"), equal("b", "x", "y"), Row("c", "one of them", "node-2", holds=True)]
    lines = table([Run("6.12.1", 120.0, rows)]).splitlines()
    cells = [line.split("|")[3].strip() for line in lines if line.startswith("| ")]
    assert cells == ["Linux 6.12.1", "as expected", "**y**", "node-2", "2 min"]


REPORT = """<testsuites><testsuite>
<testcase name="one"><properties><property name="figure" value="7 of 9"/></properties></testcase>
<testcase name="two"><skipped message="no TCX"/></testcase>
{more}
</testsuite></testsuites>"""
FAILURES = """<testcase name="four"><failure message="lost 3&#10;of 100">...</failure></testcase>
<testcase name="five"><error message="no lab">...</error></testcase>"""


def test_outcome_of_a_suite_is_what_its_report_says():
    whole, broken = (outcome_of(REPORT.format(more=more)) for more in ("", FAILURES))
    assert whole == Outcome(1, 1, (), "7 of 9")
    assert broken == Outcome(1, 1, ("four: lost 3", "five: no lab"), "7 of 9")
    assert [whole.holds, broken.holds, Outcome(0, 1, ()).holds] == [True, False, False]


class Guest:
    """In place of a machine: runs the commands here, where `python` is a shell script."""

    def __init__(self, _kernel, shared, _cables, _processors):
        self.shared = shared

    def run(self, words, _environment, _timeout_s, meanwhile):
        subprocess.run(list(map(str, words)), check=True)
        meanwhile()


def test_each_suite_has_a_report_and_one_that_has_none_did_not_hold(tmp_path, monkeypatch):
    python = tmp_path / "python"
    report = REPORT.format(more="").replace('"', "'")
    python.write_text(f"""#!/bin/sh
case "$*" in *test_bad*) echo killed; exit 1;; esac
for word; do case $word in --junitxml=*) echo "{report}" >"${{word#--junitxml=}}";; esac; done
""")
    python.chmod(0o755)
    monkeypatch.setattr(suites, "Machine", Guest)
    kernel = Kernel("6.1", "6.1.0-arm64", tmp_path, "arm64", str(python))
    told = []
    wanted = [Suite("good", ("bpf/test_good.py",)), Suite("bad", ("bpf/test_bad.py", "bpf/test_c.py"))]

    found = suites.run(kernel, tmp_path, wanted, tmp_path, lambda *each: told.append(each), short=False)
    assert found == {
        "good": Outcome(1, 1, (), "7 of 9"),
        "bad": Outcome(0, 0, ("did not run to its end: killed",)),
    }
    assert told == [*found.items()]


def test_table_of_suites_has_a_column_for_each_kernel():
    first = SuitesRun("6.1.0", 600.0, {"a": Outcome(3, 1, (), "7 of 9"), "c": Outcome(1, 0, ("four: lost",))})
    assert suites_table([first, first]).splitlines() == [
        "| what ran | Linux 6.1.0 | Linux 6.1.0 |",
        "|---|---|---|",
        "| a | 3 passed; 1 not applicable; 7 of 9 | 3 passed; 1 not applicable; 7 of 9 |",
        "| c | **1 failed** | **1 failed** |",
        "| duration of the run | 10 min | 10 min |",
    ]


def test_a_suite_that_a_kernel_does_not_run_has_an_empty_cell():
    first = SuitesRun("6.1.0-amd64", 600.0, {"a": Outcome(3, 0, ()), "c": Outcome(1, 0, ())})
    second = SuitesRun("6.1.0-arm64", 300.0, {"a": Outcome(2, 0, ())})
    assert suites_table([first, second]).splitlines()[2:4] == ["| a | 3 passed | 2 passed |", "| c | 1 passed | |"]


def test_on_arm64_run_the_suites_that_need_little_but_python():
    here, there = (Kernel("6.1", f"6.1.0-{name}", Path("/"), name) for name in ("amd64", "arm64"))
    assert suites_of(here, short=False) == [*SUITES]
    assert {folder for suite in suites_of(there, short=False) for folder in _folders(suite)} == {"bpf", "kernels"}
    assert {"kernels/on_lab.py", "bpf/test_verdict_table.py"} <= {
        file for suite in suites_of(there, short=False) for file in suite.files
    }


def _folders(suite: Suite) -> set[str]:
    return {file.partition("/")[0] for file in suite.files}


OPEN = Counter({(BEFORE, OWN): 100, (BEFORE, OWNED): 90, (BEFORE, FOREIGN): 80})
CLOSED = Counter({(BEFORE, OWN): 100, (AFTER, OWN): 200, (AFTER, OWNED): 150})


def test_a_boot_in_which_nobody_answered_before_the_agent_holds_and_says_what_the_kernel_did_without_the_file():
    found = judged(OPEN, CLOSED)
    assert (found.passed, found.failed) == (5, ())
    assert found.figure == "0 answers for two VIPs before the agent ran, 170 without the file"


@pytest.mark.parametrize("vip", [OWNED, FOREIGN])
def test_one_answer_before_the_agent_is_too_much(vip):
    assert judged(OPEN, CLOSED + Counter({(BEFORE, vip): 1})).failed == ("with it for none: no",)


def test_a_boot_shows_nothing_where_the_kernel_would_not_answer_and_where_no_agent_does():
    assert judged(CLOSED, CLOSED).failed == ("without the file the kernel answers for both VIPs: no",)
    assert judged(OPEN, CLOSED - Counter({(AFTER, OWNED): 100})).failed == (
        "the agent answers for the VIP that it owns: no",
    )
    assert judged(OPEN, CLOSED + Counter({(AFTER, FOREIGN): 1})).failed == ("and never for another: no",)
