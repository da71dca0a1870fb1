"""The table of coverage: a package that has too little fails it, and says so."""

import json

import pytest

from tools.coverage_table import main


def a_report(**packages: tuple[int, int, int, int]) -> dict:
    """Statements that ran, all of them, and the same of branches; of one file in each package."""
    names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    return {
        "files": {
            f"agent/{name}": {"summary": dict(zip(names, counts, strict=True))} for name, counts in packages.items()
        }
    }


@pytest.mark.parametrize(
    ("packages", "code"),
    [
        ({"arpguard/core/a.py": (10, 10, 4, 4), "arpguard/cli/a.py": (90, 100, 0, 0)}, 0),
        ({"arpguard/core/a.py": (10_000, 10_000, 9_999, 10_000)}, 1),
        ({"arpguard/wire/deep/a.py": (10, 10, 3, 4)}, 1),
        ({"arpguard/cli/a.py": (80, 80, 9, 20)}, 1),
        ({"arpguard/cli/a.py": (80, 80, 10, 20), "arpguard_lab/cluster/a.py": (10, 10, 0, 0)}, 0),
        ({"arpguard_lab/a.py": (90, 100, 0, 0), "arpguard_lab/cluster/a.py": (80, 100, 0, 0)}, 1),
        ({"arpguard/cli/a.py": (1, 10, 0, 0), "arpguard/cli/b.py": (90, 90, 0, 0)}, 0),
        ({"arpguard/config.py": (8, 10, 0, 0)}, 1),
    ],
)
def test_each_package_has_to_have_its_share(tmp_path, capsys, packages, code):
    path = tmp_path / "coverage.json"
    path.write_text(json.dumps(a_report(**packages)))

    assert main(path) == code
    assert ("TOO LITTLE" in capsys.readouterr().out) is bool(code)
