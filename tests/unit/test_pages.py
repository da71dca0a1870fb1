"""The bar for long bodies, which `make lint` holds, tells those in paragraphs from those that are not."""

import pytest

from tools import pages

STEPS = ["    step()"] * 14
DENSE = "\n".join(["def work():", '    """Works.', "", '    Hard."""', *STEPS, "    step()"])
IN_PARAGRAPHS = "\n".join(["async def work():", '    """Works."""', *STEPS, "", "    step()"])
SHORT = "\n".join(["def work():", '    """Works."""', *STEPS])


def test_blank_line_in_a_docstring_is_no_paragraph():
    assert list(pages.long_bodies(DENSE)) == [(1, "work", False)]


def test_body_in_paragraphs_is_told():
    assert list(pages.long_bodies(IN_PARAGRAPHS)) == [(1, "work", True)]


def test_short_body_does_not_count():
    assert list(pages.long_bodies(SHORT)) == []


@pytest.mark.parametrize(("dense", "code"), [(1, 0), (2, 1)])
def test_one_in_ten_may_be_dense(tmp_path, monkeypatch, capsys, dense, code):
    for number in range(10):
        (tmp_path / f"page_{number}.py").write_text(DENSE if number < dense else IN_PARAGRAPHS, encoding="utf-8")
    monkeypatch.setattr(pages, "AGENT", tmp_path)

    assert pages.main() == code
    assert ("2 of 10 bodies" in capsys.readouterr().out) == bool(code)
