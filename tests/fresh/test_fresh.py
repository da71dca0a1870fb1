"""What `make fresh` makes of a command's output; the rest of it is run before a release."""

import pytest

from fresh.run import TOP, complaints, tally

SKIPS = """
SKIPPED [1] tests/deploy/test_image.py:24: ARPGUARD_TEST_IMAGE names no image: `make image` builds and tests one
SKIPPED [2] tests/unit/wire/test_capture.py:268: editcap is not installed (Debian: wireshark-common)
FAILED tests/netns/test_link_life.py::test_x - AssertionError
=========== 1 failed, 15427 passed, 47 skipped in 1380.20s (0:23:00) ===========
"""


def test_skip_that_a_package_would_cure_is_named():
    assert complaints(SKIPS) == [
        "skipped: tests/unit/wire/test_capture.py:268: editcap is not installed (Debian: wireshark-common)"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "left out: keepalived: keepalived is missing: apt-get install keepalived",
        "helm could not be fetched or built: tests that need it are skipped",
    ],
)
def test_what_was_left_out_is_named(line):
    assert complaints(f"flux: ok\n{line}\n") == [line]


def test_nothing_is_said_of_a_run_without_skips():
    assert complaints("17 steps, all as expected\n==== 3 passed in 0.01s ====\n") == []


def test_tally_is_the_last_line_of_pytest():
    assert tally(SKIPS) == ": 1 failed, 15427 passed, 47 skipped in 1380.20s (0:23:00)"
    assert tally("17 steps, all as expected\n") == ""


def test_commands_are_those_of_the_readme():
    """And in that order."""
    recipe = (TOP / "Makefile").read_text(encoding="utf-8").partition("\nfresh:")[2].partition("\n\n")[0]

    assert "```console\n# make lab\n# make test\n```" in (TOP / "README.md").read_text(encoding="utf-8")
    assert 0 < recipe.index("make lab") < recipe.index("make test")
