"""How the rows about the shipped install are judged; a name states the fact."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from neighbours import shipped
from neighbours.shipped import DELEGATED, ROWS, VIPS, Row, _silent, removal, rows_of, uninstall


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


@pytest.mark.parametrize(
    ("pinned", "lost", "is_right"), [((), 0, True), (("node-2",), 0, False), ((), 1, False)], ids=str
)
def test_removal_leaves_nothing_and_costs_a_vip_of_another_owner_no_request(pinned, lost, is_right):
    stream = SimpleNamespace(lost={DELEGATED: lost}.get)
    row = removal("the namespace", pinned, SimpleNamespace(stream=stream, sent=1000))

    assert row.is_right is is_right
    assert row.was == f"guard left on {len(pinned)} of 2 nodes; {lost} of 1000 requests lost"


def test_removal_that_nobody_asked_during_shows_nothing():
    stream = SimpleNamespace(lost=lambda _: 0)
    assert not removal("the namespace", (), SimpleNamespace(stream=stream, sent=0)).is_right


class Uninstalled:
    """A cluster whose guard stays on a node for so many looks after each command."""

    def __init__(self, folder, looks: int) -> None:
        self.folder, self.nodes, self._looks, self._left = folder, [SimpleNamespace(bind=lambda *_: None)], looks, 0
        self.plane = SimpleNamespace(kubectl=lambda *_: "")
        self.done: list[str] = []

    @contextmanager
    def watch(self, vips, _interval_s, _addresses):
        self.done.append(f"watch {vips[0]}")
        yield SimpleNamespace(stream=SimpleNamespace(lost=lambda _: 0), sent=9)
        self.done.append("watched")

    def delete(self, *words):
        self.done.append(f"delete {words[0]}")
        self._left = self._looks

    def pinned(self):
        self._left = max(0, self._left - 1)
        return ["node-2"] if self._left else []

    def until(self, condition, _limit_s, what):
        assert condition() or self._looks > 99, what

    def is_gone(self, *words):
        return words[0] == "namespace"

    agents = install = rollout = settle = lambda *_, **__: None


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(shipped, "REMOVED_S", 1.0)
    monkeypatch.setattr(shipped, "_as_documented", lambda cluster: cluster.delete("documented"))
    monkeypatch.setattr(shipped, "cleanup", lambda cluster: cluster.done.append("cleanup"))


@pytest.mark.parametrize(("looks", "is_right"), [(3, True), (1000, False)])
def test_guard_may_take_its_time_to_go_but_not_stay_in_whatever_order_things_are_deleted(
    tmp_path, quick, looks, is_right
):
    cluster = Uninstalled(tmp_path, looks)
    rows = list(uninstall(cluster))

    assert [row.is_right for row in rows] == [is_right] * 3
    deleted = [text for text in cluster.done if text.startswith("delete")]
    assert deleted == ["delete documented", "delete -k", "delete namespace"]
    assert cluster.done[:3] == [f"watch {DELEGATED}", "delete documented", "watched"], "asked all the time"
    assert cluster.done.count("cleanup") == (0 if is_right else 3)


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
