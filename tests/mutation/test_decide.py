"""The mutator, and a few of the mutants that `make mutate` judges."""

import pytest

from mutation.cmutants import mutants_of
from mutation.decide import EQUIVALENT, KILLED, judge_all, line_of, text_of

FIRST, SOME = 20, 5  # of these, all are told by the quick checks

SMALL = """/* a && b */
#define A (1 == 2)
static int f(int a)
{
	if (a > 1 && !a)
		return 3;
	return (__u8)a;
}
"""


def changes(text: str) -> set[str]:
    return {mutant.what for mutant in mutants_of(text)}


@pytest.mark.parametrize(
    "change",
    [
        "'>' -> '>='",
        "'>' -> '<='",
        "'&&' -> '||'",
        "'!' -> ''",
        "'a > 1 &&' -> ''",
        "'&& !a' -> ''",
        "'(a > 1 && !a)' -> '(0)'",
        "'(a > 1 && !a)' -> '(1)'",
        "'(a > 1 && !a)' -> '(!(a > 1 && !a))'",
        "'3' -> '4'",
        "'return 3;' -> ';'",
        "'(__u8)a' -> 'a'",
    ],
)
def test_change_is_made(change):
    assert change in changes(SMALL)


def test_comments_and_directives_are_left_alone():
    assert all(mutant.line >= 5 for mutant in mutants_of(SMALL))


def test_every_statement_of_the_table_is_changed():
    text = text_of("decide.h")
    changed = {mutant.line for mutant in mutants_of(text)}
    deciding = {at for at, line in enumerate(text.splitlines(), 1) if "return" in line and not line.startswith(" *")}
    assert deciding - changed - comment_lines(text) == set()


def comment_lines(text: str) -> set[int]:
    return {at for at, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith(("/*", "*"))}


def test_what_is_excused_is_still_there():
    there = {(mutant.what, line_of("decide.h", mutant)) for mutant in mutants_of(text_of("decide.h"))}
    assert set(EQUIVALENT) <= there


@pytest.mark.parametrize("name", ["decide.h", "vouch.h"])
def test_some_mutants_are_noticed(name):
    mutants = list(mutants_of(text_of(name)))
    verdicts, survived = judge_all(name, mutants[FIRST :: len(mutants) // SOME])
    assert survived == []
    assert verdicts[KILLED] >= 3
