"""The diagrams of the running agent show the parts that the code below them makes, and no others."""

import ast
import re
from pathlib import Path

import pytest

import arpguard

FOLDER = Path(arpguard.__file__).parent / "runtime"
WORDS = {"API", "ARP", "NDP", "VIPs", "Services", "Nodes", "ConfigMap", "Leases", "Events"}
RESULTS = {"Asked", "Membership"}  # of calls of the parts
NO_PARTS = {"Agent", "Alarm", "Here", "Left", "AgentIdentity"}  # what consists of the parts, and what they share


def drawing_above(text: str, line: int) -> str:
    """The first paragraph of the comment above a line."""
    above = text.splitlines()[: line - 1]
    first = max(number for number, each in enumerate(above) if not each.startswith("#")) + 1
    return "\n".join(above[first:]).partition("\n#\n")[0]


def made_in(tree: ast.AST) -> set[str]:
    """The classes that it makes something of."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {call.id for call in calls if isinstance(call, ast.Name) and call.id[0].isupper()}


def given_in(tree: ast.AST) -> set[str]:
    """The classes of arguments."""
    annotations = (node.annotation for node in ast.walk(tree) if isinstance(node, ast.arg))
    return {each.id for each in annotations if isinstance(each, ast.Name)}


def parts_of(tree: ast.AST) -> set[str]:
    """What is imported from the running agent."""
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {name.name for node in froms if node.module.startswith("arpguard.runtime") for name in node.names}


def test_every_part_is_complete_when_it_is_made():
    """None gets another one afterwards."""
    tree = ast.parse((FOLDER / "wiring.py").read_text(encoding="utf-8"))

    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    assert [ast.unparse(node) for node in stored] == []


@pytest.mark.parametrize(("module", "name"), [("wiring.py", "build"), ("cluster/kubernetes.py", "Kubernetes")])
def test_a_diagram_has_the_parts_that_are_made(module, name):
    text = (FOLDER / module).read_text(encoding="utf-8")
    tree = ast.parse(text)
    (below,) = (node for node in tree.body if getattr(node, "name", "") == name)
    drawn = set(re.findall(r"\b[A-Z]\w+", drawing_above(text, below.lineno)))

    assert (made_in(below) & parts_of(tree)) - NO_PARTS - drawn == set(), "made, and not drawn"
    assert drawn - made_in(below) - given_in(below) - WORDS - RESULTS == set(), "drawn, and not made"
