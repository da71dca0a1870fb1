"""Every small change of a C source, by tables: operators, conditions, constants, names, statements.

Works on tokens, not on text: comments and directives are left alone. Not every mutant compiles.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<space>\s+|/\*.*?\*/|//[^\n]*|^\#(?:\\\n|[^\n])*)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|\d+[uUlL]*)"
    r"|(?P<sign>->|\+\+|--|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)",
    re.DOTALL | re.MULTILINE,
)
_SIGNS = {
    "==": ("!=",),
    "!=": ("==",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "&&": ("||",),
    "||": ("&&",),
    "&": ("|",),
    "|": ("&",),
    "^": ("&",),
    "+": ("-",),
    "-": ("+",),
    "<<": (">>",),
    ">>": ("<<",),
    "!": ("",),
}
# Names that could be mistaken for one another: each becomes the next one.
_ALIKE = (
    ("VERDICT_PASS", "VERDICT_SUPPRESS", "VERDICT_ANSWER", "VERDICT_REPORT", "VERDICT_CONFLICT", "VERDICT_REWRITE"),
    ("KIND_OWNED", "KIND_DELEGATED", "KIND_FOREIGN", "KIND_EXTERNAL", "KIND_UNCLAIMED", "KIND_CLOSED"),
    ("OP_REQUEST", "OP_REPLY"),
    ("OP_SOLICIT", "OP_ADVERTISE"),
    ("MODE_ENFORCE", "MODE_OBSERVE"),
    ("spa", "tpa"),
    ("sha", "eth_src", "eth_dst", "tha"),
    ("link", "own"),
    ("link_mac", "answer_mac", "owner_mac"),
    ("fence_ns", "lease_ns", "now_ns"),
    ("ipv4_is_special", "ipv6_is_special"),
    ("ipv6_is_multicast", "is_solicited_node"),
    ("BE16", "BE32"),
)
_NEXT = {name: names[(at + 1) % len(names)] for names in _ALIKE for at, name in enumerate(names)}
_OPENING, _CLOSING = {"(", "[", "{"}, {")", "]", "}"}
_ENDS_AN_OPERAND = {"&&", "||", "?", ":", ",", ";", "=", "return"}


@dataclass(frozen=True)
class Mutant:
    """`what` was changed at `line`, and the whole text that comes of it."""

    line: int
    what: str
    text: str


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


class _Source:
    def __init__(self, text: str) -> None:
        self.text = text
        found = (_Token(m.lastgroup or "", m[0], m.start(), m.end()) for m in _TOKEN.finditer(text))
        self.tokens = [token for token in found if token.kind != "space"]

    def mutant(self, start: int, end: int, new: str) -> Mutant:
        """`new` in the place of tokens `start` to `end`, the last included."""
        first, last = self.tokens[start].start, self.tokens[end].end
        old = " ".join(self.text[first:last].split())
        line = self.text.count("\n", 0, first) + 1
        return Mutant(line, f"{old!r} -> {new!r}", self.text[:first] + new + self.text[last:])

    def is_at(self, at: int, *texts: str) -> bool:
        return 0 <= at < len(self.tokens) and self.tokens[at].text in texts

    def end_of_operand(self, at: int, step: int) -> int:
        """The last token of an operand of && or ||, from its first one on; backwards when `step` is -1."""
        opening, closing = (_OPENING, _CLOSING) if step > 0 else (_CLOSING, _OPENING)
        depth = 0
        while True:
            text = self.tokens[at].text
            depth += (text in opening) - (text in closing)
            if depth < 0 or (depth == 0 and text in _ENDS_AN_OPERAND):
                return at - step
            at += step

    def closing(self, at: int) -> int:
        """The token that closes what is opened at `at`."""
        depth = 0
        while True:
            depth += (self.tokens[at].text in _OPENING) - (self.tokens[at].text in _CLOSING)
            if depth == 0:
                return at
            at += 1


def mutants_of(text: str) -> Iterator[Mutant]:
    """All of them, in the order of the text; no two are the same."""
    source = _Source(text)
    seen = {text}
    for at in range(len(source.tokens)):
        for changed in (_sign, _number, _name, _operand, _condition, _statement, _cast):
            for mutant in changed(source, at):
                if mutant.text not in seen:
                    seen.add(mutant.text)
                    yield mutant


def _sign(source: _Source, at: int) -> Iterator[Mutant]:
    token = source.tokens[at]
    if token.kind == "sign":
        for other in _SIGNS.get(token.text, ()):
            yield source.mutant(at, at, other)


def _number(source: _Source, at: int) -> Iterator[Mutant]:
    token = source.tokens[at]
    if token.kind == "number":
        value = int(token.text.rstrip("uUlL"), 0)
        for other in {value + 1, max(value - 1, 0)} - {value}:
            yield source.mutant(at, at, str(other))


def _name(source: _Source, at: int) -> Iterator[Mutant]:
    token = source.tokens[at]
    if token.text in _NEXT:
        yield source.mutant(at, at, _NEXT[token.text])
    elif token.text.startswith("REASON_"):
        yield source.mutant(at, at, "REASON_UNSET" if token.text != "REASON_UNSET" else "REASON_NOT_GUARDED")
        yield source.mutant(at, at, "REASON_NO_LINK" if token.text != "REASON_NO_LINK" else "REASON_FENCED")


def _operand(source: _Source, at: int) -> Iterator[Mutant]:
    """Of a && b and a || b one is left."""
    if source.is_at(at, "&&", "||"):
        left, right = source.end_of_operand(at - 1, -1), source.end_of_operand(at + 1, 1)
        yield source.mutant(left, at, "")
        yield source.mutant(at, right, "")


def _condition(source: _Source, at: int) -> Iterator[Mutant]:
    """A condition holds always, never, or when it did not."""
    if source.is_at(at, "if", "while"):
        end = source.closing(at + 1)
        condition = source.text[source.tokens[at + 1].start : source.tokens[end].end]
        for other in ("(0)", "(1)", f"(!{condition})"):
            yield source.mutant(at + 1, end, other)
    if source.is_at(at, "?"):
        start = source.end_of_operand(at - 1, -1)
        for other in ("0", "1"):
            yield source.mutant(start, at - 1, other)


def _statement(source: _Source, at: int) -> Iterator[Mutant]:
    """A statement is left out; what is returned is 0, or 1."""
    if not source.is_at(at - 1, ";", "{", "}", ")", "else"):
        return
    end = next((i for i in range(at, len(source.tokens)) if source.is_at(i, ";", "{", "}")), at)
    declares = source.tokens[at].text.startswith(("__", "struct", "const", "int", "static", "enum"))
    if not source.is_at(end, ";") or declares or source.is_at(at, ";", "{", "}", ")"):
        return
    yield source.mutant(at, end, ";")
    if source.is_at(at, "return") and end > at + 1:
        for other in ("0", "1"):
            yield source.mutant(at + 1, end - 1, other)


def _cast(source: _Source, at: int) -> Iterator[Mutant]:
    """A number keeps bits that it should lose."""
    if source.is_at(at, "(") and source.is_at(at + 1, "__u8", "__u16", "__u32") and source.is_at(at + 2, ")"):
        yield source.mutant(at, at + 3, source.tokens[at + 3].text)
