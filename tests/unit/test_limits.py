"""The limits that `make lint` holds find what is larger than it may be, and nothing else."""

import pytest

pytest.importorskip("radon", reason="radon is missing: `make lint` installs it")

from tools import limits


def found(text: str, module: str = "arpguard.core.some") -> dict[str, str]:
    return dict(limits.exceeding(text, module))


def with_branches(count: int) -> str:
    """A function of this complexity: each `and` is a branch."""
    return f"def choose(a):\n    return {' and '.join(['a'] * count)}\n"


def test_boolean_operators_are_branches():
    assert found(with_branches(20)) == {}
    assert found(with_branches(21)) == {"arpguard.core.some.choose": "complexity 21, at most 20"}


def test_runtime_has_a_limit_of_its_own():
    assert found(with_branches(12), "arpguard.runtime.kernel.some") == {}
    assert found(with_branches(13), "arpguard.runtime.kernel.some").keys() == {"arpguard.runtime.kernel.some.choose"}


@pytest.mark.parametrize("kind", ["", "async "])
def test_methods_are_counted(kind):
    methods = "".join(f"    {kind}def do_{number}(self): pass\n" for number in range(31))
    assert found(f"class Many:\n{methods}") == {"arpguard.core.some.Many": "31 methods, at most 30"}


def test_an_attribute_counts_once_wherever_it_is_set():
    fields = "".join(f"    field_{number}: int = 0\n" for number in range(20))
    again = "    def set(self):\n        self.field_0 = self.other\n"
    one_more = "    def grow(self):\n        self.more += 1\n"
    assert found(f"class Full:\n{fields}{again}") == {}
    assert found(f"class Full:\n{fields}{again}{one_more}") == {"arpguard.core.some.Full": "21 attributes, at most 20"}


def test_exception_that_keeps_the_limits_has_to_be_taken_off(monkeypatch, capsys):
    monkeypatch.setattr(limits, "PRODUCT", limits.PRODUCT / "observe")
    monkeypatch.setattr(limits, "EXCEPTIONS", limits.EXCEPTIONS | {"arpguard.core.some.gone"})
    assert limits.main() == 1
    assert "arpguard.core.some.gone: keeps the limits" in capsys.readouterr().out


STEPS = ["    step()"] * 14
DENSE = "\n".join(["def work():", '    """Works.', "", '    Hard."""', *STEPS, "    step()"])
IN_PARAGRAPHS = "\n".join(["async def work():", '    """Works."""', *STEPS, "", "    step()"])
SHORT = "\n".join(["def work():", '    """Works."""', *STEPS])


def test_blank_line_in_a_docstring_is_no_paragraph():
    assert list(limits.long_bodies(DENSE)) == [(1, "work", False)]


def test_body_in_paragraphs_is_told():
    assert list(limits.long_bodies(IN_PARAGRAPHS)) == [(1, "work", True)]


def test_short_body_does_not_count():
    assert list(limits.long_bodies(SHORT)) == []


@pytest.mark.parametrize(("dense", "told"), [(1, []), (2, ["2 of 10 long bodies have no blank line, at most 10% may"])])
def test_one_in_ten_may_be_dense(tmp_path, dense, told):
    for number in range(10):
        (tmp_path / f"page_{number}.py").write_text(DENSE if number < dense else IN_PARAGRAPHS, encoding="utf-8")
    assert limits.too_dense(tmp_path)[dense:] == told
