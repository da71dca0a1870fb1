"""Which modules the image holds: what import statements can reach, and what of Debian's libraries need."""

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.locks import ROOT

sys.path.append(str(ROOT / "deploy/image"))

from elf import needed
from imports import Tree, imports, reachable
from packages import followed, merged

FILES = {
    "site/program/__init__.py": "",
    "site/program/main.py": "from . import other\nimport spread.second, missing\nNAME = 'lazy.part'\n",
    "site/program/other.py": "def late():\n    from deep.below import thing\n",
    "site/program/aside.py": "import never_here\n",
    "site/deep/__init__.py": "from . import unwanted\n",
    "site/deep/below.py": "import typing\nif typing.TYPE_CHECKING:\n    import for_checkers\nelse:\n    import both\n",
    "site/deep/unwanted.py": "NAME = 'lazy.other'\n",
    "site/both.py": "if __name__ == '__main__':\n    import for_programs\nimport native\n",
    "site/native.cpython-311-aarch64-linux-gnu.so": "",
    "site/lazy/part.py": "import tools.cut\n",
    "site/lazy/other.py": "",
    "site/for_checkers.py": "",
    "site/for_programs.py": "",
    "site/spread/__init__.py": "",
    "library/spread/second.py": "",
    "library/tools/__init__.py": "",
    "library/tools/cut.py": "",
}


@pytest.fixture
def tree(tmp_path) -> Tree:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return Tree([tmp_path / "site", tmp_path / "library"])


def test_what_statements_and_texts_of_the_program_name_is_found_and_nothing_else(tree):
    found = reachable(tree, ["program.main"], program="program", not_run={"deep"}, never={"tools.cut"})
    packages = {"program", "deep", "lazy", "spread", "tools"}
    modules = {"program.main", "program.other", "deep.below", "both", "native", "lazy.part", "spread.second"}
    assert found == packages | modules


def test_a_package_that_is_run_imports_what_it_imports(tree):
    found = reachable(tree, ["program.main"], program="program")
    assert found >= {"deep.unwanted", "tools.cut"}
    assert "lazy.other" not in found, "only texts of the program count"


def test_modules_of_a_package_are_listed(tree):
    assert set(tree.below("program")) == {"program", "program.main", "program.other", "program.aside"}


@pytest.mark.parametrize(
    ("line", "package", "names"),
    [
        ("import a.b, c", "p", ["a.b", "c"]),
        ("from a import b, c", "p", ["a", "a.b", "a.c"]),
        ("from . import b", "p.q", ["p.q", "p.q.b"]),
        ("from .. import b", "p.q", ["p", "p.b"]),
        ("from ..a import b", "p.q", ["p.a", "p.a.b"]),
        ("try:\n    import a\nexcept ImportError:\n    import b", "p", ["a", "b"]),
        ("x = 'a.b'", "p", []),
    ],
)
def test_statements_name_modules(line, package, names):
    assert list(imports(line.encode(), package)) == names


def test_libraries_that_a_file_needs_are_those_that_the_loader_says():
    """Of this interpreter; readelf(1) reads the same section."""
    file = Path(sys.executable).resolve()
    said = subprocess.run(["readelf", "--dynamic", "--wide", file], capture_output=True, text=True, check=True).stdout
    listed = [line.partition("[")[2].rstrip("]") for line in said.splitlines() if "(NEEDED)" in line]
    assert listed
    assert needed(file) == listed
    assert needed(Path(__file__)) == []


@pytest.mark.parametrize(
    ("file", "target", "place"),
    [
        ("usr/lib/a/libz.so.1", "libz.so.1.2", "usr/lib/a/libz.so.1.2"),
        ("usr/lib64/ld.so.2", "/lib/a/ld.so.2", "usr/lib/a/ld.so.2"),
        ("etc/os-release", "../usr/lib/os-release", "usr/lib/os-release"),
    ],
)
def test_links_are_followed_as_where_usr_is_merged(file, target, place):
    assert followed(file, target) == place
    assert merged(place) == place
