"""The glossary's words mean one thing: what it names is there, and no other public class has such a name."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/glossary.md"
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| term ")
]
NAMES = {term: code.strip("`") for term, _, code, *_ in ROWS if code}


def public_classes():
    """Where each name of a public class is defined: of the agent, and of the lab."""
    found = {}
    for package in ("arpguard", "arpguard_lab"):
        for path in (ROOT / "agent" / package).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT / "agent").with_suffix("").parts)
            if ".v1." not in module:
                for node in ast.parse(path.read_text(encoding="utf-8")).body:
                    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                        found.setdefault(node.name, []).append(f"{module}.{node.name}".removeprefix("arpguard."))
    return found


def test_a_term_has_one_row_and_one_sentence():
    terms = [term.lower() for term, *_ in ROWS]

    assert 30 <= len(terms) <= 55
    assert [term for term in terms if terms.count(term) > 1] == []
    assert [term for term, means, *_ in ROWS if not re.fullmatch(r"[A-Z][^.]*\.", means)] == []


@pytest.mark.parametrize("term", NAMES)
def test_what_a_term_is_called_in_the_code_is_there(term):
    module, name = NAMES[term].rsplit(".", 1)

    assert hasattr(import_module(f"arpguard.{module}"), name)


def test_no_two_public_classes_of_the_agent_share_a_name():
    agents = {
        name: [at for at in found if not at.startswith("arpguard_lab.")] for name, found in public_classes().items()
    }

    assert {name: found for name, found in agents.items() if len(found) > 1} == {}


def test_no_class_has_a_terms_name_for_something_else():
    classes = public_classes()
    assert len(classes) > 300

    elsewhere = {}
    for term, *_ in ROWS:
        code = NAMES.get(term, "")
        as_class = "".join(word[0].upper() + word[1:].lower() for word in term.split())
        for name in {as_class, code.rsplit(".", 1)[-1]}:
            others = [found for found in classes.get(name, []) if found != code]
            if others:
                elsewhere[term] = others

    assert elsewhere == {}
