"""The glossary's words mean one thing: what it names is there, and no other public type has such a name."""

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


def public_types():
    """Where each name of a public class or type alias is defined: of the agent, and of the lab."""
    found = {}
    for package in ("arpguard", "arpguard_lab"):
        for path in (ROOT / "agent" / package).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT / "agent").with_suffix("").parts)
            if ".v1." not in module:
                for node in ast.parse(path.read_text(encoding="utf-8")).body:
                    name = name_of_type(node)
                    if name and not name.startswith("_"):
                        found.setdefault(name, []).append(f"{module}.{name}".removeprefix("arpguard."))
    return found


def name_of_type(node):
    """The name of the class (an enum is one) or the type alias that a statement defines; None if it does not."""
    match node:
        case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
            return name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=maker))):
            return name if maker in ("Enum", "NamedTuple", "NewType") else None
    return None


def test_a_term_has_one_row_and_one_sentence():
    terms = [term.lower() for term, *_ in ROWS]

    assert 30 <= len(terms) <= 55
    assert [term for term in terms if terms.count(term) > 1] == []
    assert [term for term, means, *_ in ROWS if not re.fullmatch(r"[A-Z][^.]*\.", means)] == []


@pytest.mark.parametrize("term", NAMES)
def test_what_a_term_is_called_in_the_code_is_there(term):
    module, name = NAMES[term].rsplit(".", 1)

    assert hasattr(import_module(f"arpguard.{module}"), name)


def test_no_two_public_types_of_the_agent_share_a_name():
    agents = {
        name: [at for at in found if not at.startswith("arpguard_lab.")] for name, found in public_types().items()
    }

    assert {name: found for name, found in agents.items() if len(found) > 1} == {}


def test_no_type_has_a_terms_name_for_something_else():
    types = public_types()
    assert len(types) > 350

    elsewhere = {}
    for term, *_ in ROWS:
        code = NAMES.get(term, "")
        as_class = "".join(word[0].upper() + word[1:].lower() for word in term.split())
        for name in {as_class, code.rsplit(".", 1)[-1]}:
            others = [found for found in types.get(name, []) if found != code]
            if others:
                elsewhere[term] = others

    assert elsewhere == {}
