"""Whatever Hypothesis thinks of, at most one answers; and when all is well again, exactly one does."""

import os

from hypothesis.stateful import run_state_machine_as_test

from cluster_machine import Cluster, bounded

RUNS = int(os.environ.get("ARPGUARD_RUNS", "60"))


def test_never_two_answer_and_one_does_in_the_end():
    run_state_machine_as_test(Cluster, settings=bounded(2 * RUNS))
