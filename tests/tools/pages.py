"""How the product's pages read, for `make lint`: a long body is in paragraphs. Exit code 1: too many are not.

At most SHARE of the functions whose body (without its docstring) has LONG lines or more may be without a blank line:
those that are one table or one expression.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

AGENT = Path(__file__).parents[2] / "agent"
LONG = 15
SHARE = 0.1


def main() -> int:
    long, dense = 0, list[str]()
    for path in sorted(AGENT.rglob("*.py")):
        if not path.stem.endswith(("_pb2", "_pb2_grpc")):
            for line, name, in_paragraphs in long_bodies(path.read_text(encoding="utf-8")):
                long += 1
                dense += [] if in_paragraphs else [f"{path.relative_to(AGENT.parent)}:{line} {name}"]

    if len(dense) <= SHARE * long:
        return 0
    print(*dense, sep="\n")
    print(f"{len(dense)} of {long} bodies of {LONG} lines or more have no blank line, at most {SHARE:.0%} may")
    return 1


def long_bodies(text: str) -> Iterator[tuple[int, str, bool]]:
    """The functions of a module with a long body: line, name, and whether a blank line is in it."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first, *others = node.body
        begin = others[0] if others and ast.get_docstring(node) is not None else first
        body = lines[begin.lineno - 1 : node.end_lineno]
        if len(body) >= LONG:
            yield node.lineno, node.name, not all(line.strip() for line in body)


if __name__ == "__main__":
    sys.exit(main())
