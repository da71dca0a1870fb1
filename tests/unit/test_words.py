"""Phrases that make a native reader stop are in no message, page, docstring, comment or manifest.

What people see names its actors ("no node answers", "another host claims it"), in the usual order of words.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {".venv", ".cache", ".pytest_cache", "dist", "mutants", "v1"}
PHRASES = {
    "is no X: is not a X": r"(?<!there )(?<!There )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|fewer\b)\w",
    "is none of: is not one of": r"\b(?:is|are|was|were) none of\b",
    "is told: learns, knows": r"\b(?:is|are|was|were|be|been) told\b",
    "nobody's: no host's": r"\b(?:nobody|somebody)'s\b",
    "nobody, somebody: no node, another host": r"\b(?:no|some)body\b",
    "of which: which ... of, whose": r"\bof which\b",
    "goes on: continues, keeps": r"\b(?:go|goes|went) on\b(?! [`\w]*(?:eth|lo\b|the))",
    "as it was asked for: as configured": r"\bas it was asked for\b",
}
# Kept out of what operators read. Docstrings are fragments, which may begin with "What is ...".
FOR_OPERATORS = {
    "heard of: learned of, renewed": r"\b(?:heard|hears?) of\b",
    "anew: again, re-": r"(?<!`)\banew\b(?!`)",
    "mend: fix, repair": r"(?<!`)\bmend(?:ed|s|ing)?\b(?!`)",
    "the own: its own, this node's": r"\b(?:the|an) own\b",
    "for it is: because": r"[,;] for (?:it|they|there|nothing|each|the \w+) (?:is|are|was|has|have|can|may|does)\b",
    "Read are: inverted order": r"(?:^|[.;:] )(?:Read|Shown|Listed|Counted|Named|Kept|Refused) (?:is|are|was|were)\b",
    "What is ...: name the thing": r"(?:^|[.;] )(?-i:What) (?:is|are|was|has|cannot|can|may|must|it|they)\b[^?|]*$",
    "Who is ...: name the actor": r"(?:^|[.;] )(?-i:Who|Whoever) (?:is|was|has|may|can|takes|runs|floods)\b[^?|]*$",
}
# Where a phrase may stand: a share ("70 MiB, of which 2.5 MiB are ..."), a value of a column.
ALLOWED = {
    "of which": re.compile(r"\d[^.]*, of which|clocks, of which each|1,074,943 requests"),
    "nobody": re.compile(r"^nobody(?: yet)?$"),
}
HISTORY = {"CHANGELOG.md"}
# Fragments, which may begin with "What is ...", as docstrings may.
FRAGMENTS = {"comments of the agent", "comments of the programs", "dashboard"}


def _markdown() -> Iterator[tuple[str, str]]:
    """Every line of a page that is not code, with where it is."""
    for page in sorted(ROOT.rglob("*.md")):
        below = page.relative_to(ROOT)
        if LEFT_OUT & set(below.parts) or str(below) in HISTORY:
            continue
        text = re.sub(
            r"^```.*?^```$",
            lambda found: "\n" * found[0].count("\n"),
            page.read_text(encoding="utf-8"),
            flags=re.MULTILINE | re.DOTALL,
        )
        for number, line in enumerate(text.splitlines(), 1):
            yield f"{below}:{number}", re.sub(r"`[^`]*`", "`code`", line)


def _messages(folder: str) -> Iterator[tuple[str, str]]:
    """Every string of a package but its docstrings, with where it is."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        if LEFT_OUT & set(path.relative_to(ROOT).parts):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def _docstrings() -> Iterator[tuple[str, str]]:
    """Every docstring of the program and the lab, with where it is."""
    for folder in ("agent/arpguard", "agent/arpguard_lab"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not LEFT_OUT & set(path.relative_to(ROOT).parts):
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", str(node.value.value)


def _comments(name: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
        yield f"{name}:{number}", line


def _python_comments() -> Iterator[tuple[str, str]]:
    """The comments of the program and the lab, those on neighbouring lines together."""
    for folder in ("agent/arpguard", "agent/arpguard_lab", "agent/arpguard_build"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not LEFT_OUT & set(path.relative_to(ROOT).parts):
                yield from _together(path, _tokens(path.read_text(encoding="utf-8")))


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.match(r"# (?:noqa|type: ignore|fmt:)", token.string):
            yield token.start[0], re.sub(r" *# (?:noqa|type: ignore).*", "", token.string).removeprefix("#").strip()


def _together(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """Comments on neighbouring lines as one text, with where it begins."""
    begun, last, text = 0, -1, ""
    for number, line in lines:
        if number != last + 1:
            if text:
                yield f"{path.relative_to(ROOT)}:{begun}", text
            begun, text = number, ""
        last, text = number, f"{text} {line}".strip()
    if text:
        yield f"{path.relative_to(ROOT)}:{begun}", text


def _program_comments() -> Iterator[tuple[str, str]]:
    """The comments of the BPF programs, each as one line."""
    for path in sorted((ROOT / "bpf").glob("*.[ch]")):
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"/\*(.*?)\*/|//([^\n]*)", text, re.DOTALL):
            said = " ".join(re.sub(r"^\s*\*", "", line).strip() for line in (found[1] or found[2]).splitlines())
            yield f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}", said.strip()


def _dashboard() -> Iterator[tuple[str, str]]:
    """What the dashboard says in words: titles, descriptions and names of columns."""
    name = "deploy/monitoring/arpguard.json"
    for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
        if found := re.match(r'\s*"(?:title|description|noValue|displayName|text)": "(.*)"', line):
            yield f"{name}:{number}", found[1]


def _manifests() -> Iterator[tuple[str, str]]:
    """Comments of the manifests, the chart's values and notes, and of the units of systemd."""
    kinds = {".yaml", ".txt", ".service", ".env", ".tpl", ".conf", ".tmpfiles"}
    for path in sorted((ROOT / "deploy").rglob("*")):
        if path.suffix in kinds and "lock" not in path.parts:
            lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            whole = path.name == "NOTES.txt"
            said = ((number, line if whole else line.partition("# ")[2]) for number, line in lines)
            yield from _together(path, ((number, text) for number, text in said if text))


def _changelog() -> Iterator[tuple[str, str]]:
    for number, line in enumerate((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines(), 1):
        yield f"CHANGELOG.md:{number}", re.sub(r"`[^`]*`", "`code`", line)


SOURCES = {
    "pages": _markdown,
    "messages": lambda: _messages("agent/arpguard"),
    "messages of the lab": lambda: _messages("agent/arpguard_lab"),
    "docstrings": _docstrings,
    "comments of the API": lambda: _comments("proto/arpguard/v1/agent.proto"),
    "comments of the agent": _python_comments,
    "comments of the programs": _program_comments,
    "dashboard": _dashboard,
    "manifests": _manifests,
    "changelog": _changelog,
    "alerts": lambda: _comments("deploy/monitoring/alerts.yaml"),
}


def stumbles(text: str, *, names_actors: bool = True) -> list[str]:
    """The phrases in a text, each with what to write instead."""
    phrases = {**PHRASES, **FOR_OPERATORS} if names_actors else PHRASES
    return [
        advice
        for advice, phrase in phrases.items()
        if (names_actors or "nobody," not in advice)
        and re.search(phrase, text, re.IGNORECASE)
        and not any(word in advice and allowed.search(text) for word, allowed in ALLOWED.items())
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_no_phrase_makes_a_reader_stop(source):
    names_actors = source not in {"messages of the lab", "docstrings"}  # steps that say "nobody answers", and expect it
    found = [(where, text, stumbles(text, names_actors=names_actors)) for where, text in SOURCES[source]()]
    if source in FRAGMENTS:
        found = [(where, text, [each for each in advice if "What is ..." not in each]) for where, text, advice in found]
    assert [f"{where}: {'; '.join(advice)}: {text.strip()}" for where, text, advice in found if advice] == []


@pytest.mark.parametrize(
    "text",
    [
        "'x' is no NAMESPACE/NAME",
        "A name that is none of a Node",
        "the kernel was told another",
        "a claim that is nobody's",
        "somebody else claims it",
        "the address of which nothing is known",
        "the guard goes on",
        "what is not as it was asked for",
        "Leases are not heard of",
        "the entries are written anew",
        "the next pass mends it",
        "a renewal of the own heartbeat",
        "it waits, for the server may refuse",
        "Read are pcap and pcapng",
        "It reports drift. What is missing is put back.",
        "Who is slow loses its place.",
    ],
)
def test_phrase_is_found(text):
    assert stumbles(text)


@pytest.mark.parametrize(
    "text",
    [
        "there is no route",
        "What is measured, and on what?",
        "it is no longer master",
        "70 MiB, of which 2.5 MiB are the kernel's",
        "no node answers",
    ],
)
def test_ordinary_english_is_not(text):
    assert not stumbles(text)
