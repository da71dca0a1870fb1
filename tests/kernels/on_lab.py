"""Scenarios of `arpguard lab` whose outcome depends on the kernel, as users run them.

Run in a guest of `make kernels`.
"""

import subprocess
import sys

import pytest

SCENARIOS = ("flux", "lvs-dr")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_ends_as_expected(scenario):
    words = [sys.executable, "-m", "arpguard", "lab", "--scenario", scenario, "--output", "wide"]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
