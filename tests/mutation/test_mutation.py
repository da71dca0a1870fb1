"""The part of `make mutate` that takes seconds."""

from mutation.ownership import LEAST, prepare, run, run_table, show

MODULE, SOME = "lease.py", "*mutmut_2"  # one of each of its functions: making mutants of all takes half a minute


def test_nearly_all_of_some_mutants_are_noticed(tmp_path):
    prepare(tmp_path, MODULE)

    found = run(tmp_path, [SOME])

    assert found.percent >= LEAST, "\n".join(show(tmp_path, name) for name in found.survived)
    assert found.mutants >= 5


def test_rows_of_the_table_of_transitions_are_noticed(tmp_path):
    prepare(tmp_path)

    found = run_table(tmp_path, every=12)

    assert found.survived == ()
    assert found.mutants >= 3
