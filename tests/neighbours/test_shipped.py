"""How the rows about the shipped install are judged; a name states the fact."""

from types import SimpleNamespace

import pytest

from neighbours.shipped import ROWS, VIPS, Row, _silent, rows_of


def a_watch(longest_ms: int, lost: int = 0, findings: tuple = ()) -> SimpleNamespace:
    """The last of the VIPs was silent for so long."""
    silences = {vip: SimpleNamespace(length_ms=longest_ms if vip == VIPS[-1] else 0) for vip in VIPS}
    stream = SimpleNamespace(silence=silences.get, lost=lambda vip: lost if vip == VIPS[0] else 0)
    return SimpleNamespace(stream=stream, sent=1000, findings=list(findings))


@pytest.mark.parametrize(
    ("longest_ms", "at_most_ms", "is_right"), [(0, 0, True), (1500, 1500, True), (1501, 1500, False)]
)
def test_the_longest_silence_of_any_vip_decides(longest_ms, at_most_ms, is_right):
    assert _silent("x", "y", a_watch(longest_ms, lost=3), at_most_ms).is_right is is_right


def test_two_answers_are_wrong_however_short_the_silence():
    row = _silent("x", "y", a_watch(0, findings=(object(),)), 1500)
    assert not row.is_right
    assert row.was == "0 of 1000 lost, longest silence 0.00 s, 1 doubled"


def test_what_is_wrong_is_bold():
    assert str(Row("a", "b", "c", is_right=True)) == "| a | b | c |"
    assert str(Row("a", "b", "c", is_right=False)) == "| a | b | **c** |"


def test_a_row_that_cannot_go_on_is_wrong_and_says_why(monkeypatch):
    def fails(_cluster):
        yield Row("a", "b", "c", is_right=True)
        raise RuntimeError("kubectl: not\nthere")

    monkeypatch.setitem(ROWS, "drain", fails)
    first, last = rows_of(None, "drain")
    assert first.is_right
    assert (last.done, last.was, last.is_right) == ("drain", "kubectl: not there", False)
