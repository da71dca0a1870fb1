"""Which package of a series is taken, and what runs are written as; a name states the fact."""

import pytest

from kernels.incident import Row, equal
from kernels.packages import newest
from kernels.run import Run, table
from kernels.suites import Outcome, Suite, outcomes
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


def test_what_is_not_as_it_has_to_be_is_bold():
    rows = [equal("a", "x", "x"), equal("b", "x", "y"), Row("c", "one of them", "node-2", holds=True)]
    lines = table([Run("6.12.1", 120.0, rows)]).splitlines()
    cells = [line.split("|")[3].strip() for line in lines if line.startswith("| ")]
    assert cells == ["Linux 6.12.1", "so it is", "**y**", "node-2", "2 min"]


REPORT = """<testsuites><testsuite>
<testcase classname="tests.bpf.test_a" name="one"><properties><property name="figure" value="7 of 9"/></properties>
</testcase>
<testcase classname="tests.bpf.test_a" name="two"><skipped message="no TCX"/></testcase>
<testcase classname="tests.bpf.test_a_b" name="three"/>
<testcase classname="tests.netns.test_c" name="four"><failure message="lost 3&#10;of 100">...</failure></testcase>
<testcase classname="tests.netns.test_c.TestClass" name="five"><error message="no lab">...</error></testcase>
</testsuite></testsuites>"""


def test_each_suite_has_the_tests_of_its_files():
    suites = [Suite("a", ("bpf/test_a.py",)), Suite("c", ("netns/test_c.py",)), Suite("none", ("netns/test_d.py",))]
    found = outcomes(REPORT, suites)
    assert found == {
        "a": Outcome(1, 1, (), "7 of 9"),
        "c": Outcome(0, 0, ("four: lost 3", "five: no lab")),
        "none": Outcome(0, 0, ()),
    }
    assert [each.holds for each in found.values()] == [True, False, False]


def test_table_of_suites_has_a_column_for_each_kernel():
    first = SuitesRun("6.1.0", 600.0, {"a": Outcome(3, 1, (), "7 of 9"), "c": Outcome(1, 0, ("four: lost",))})
    assert suites_table([first, first]).splitlines() == [
        "| what ran | Linux 6.1.0 | Linux 6.1.0 |",
        "|---|---|---|",
        "| a | 3 passed; 1 not for it; 7 of 9 | 3 passed; 1 not for it; 7 of 9 |",
        "| c | **1 failed** | **1 failed** |",
        "| time it took | 10 min | 10 min |",
    ]
