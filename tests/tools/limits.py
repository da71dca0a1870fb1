"""Limits of the product's code, for `make lint`: what is larger is split. Exit code 1: something exceeds them.

- No class has more than ATTRIBUTES attributes or METHODS methods.
- No function has a cyclomatic complexity above BRANCHES, in `runtime` none above RUNTIME_BRANCHES (McCabe, as radon
  counts: boolean operators too).
- Of the functions whose body, without its docstring, has LONG lines or more, the lab's too, at most DENSE are without a
  blank line: those that are one table or one expression.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from radon.complexity import cc_visit_ast
from radon.visitors import Class, Function

AGENT = Path(__file__).parents[2] / "agent"
PRODUCT = AGENT / "arpguard"
GENERATED = PRODUCT / "v1"
ATTRIBUTES, METHODS = 20, 30
BRANCHES = 20  # above it radon's rank is D
RUNTIME_BRANCHES = 12
LONG, DENSE = 15, 0.1

# Larger than they may be, by qualified name: better none. One that keeps the limits has to be taken off.
EXCEPTIONS: frozenset[str] = frozenset()


def main() -> int:
    found = {
        name: what
        for path in _modules(PRODUCT)
        for name, what in exceeding(path.read_text(encoding="utf-8"), _module(path))
    }
    wrong = [f"{name}: {what}" for name, what in found.items() if name not in EXCEPTIONS]
    wrong += [f"{name}: keeps the limits, take it off the exceptions" for name in sorted(EXCEPTIONS - found.keys())]
    wrong += too_dense(AGENT)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


def exceeding(text: str, module: str) -> Iterator[tuple[str, str]]:
    """What exceeds the limits in a module: its qualified name, and by how much."""
    tree = ast.parse(text)
    for block in cc_visit_ast(tree):
        yield from _branches(block, module)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from _sizes(node, module)


def _branches(block: Function | Class, module: str) -> Iterator[tuple[str, str]]:
    limit = RUNTIME_BRANCHES if module.split(".")[1:2] == ["runtime"] else BRANCHES
    if isinstance(block, Function) and block.complexity > limit:
        yield f"{module}.{block.fullname}", f"complexity {block.complexity}, at most {limit}"


def _sizes(node: ast.ClassDef, module: str) -> Iterator[tuple[str, str]]:
    methods = sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
    attributes = len(set(_attributes(node)))
    sizes = [(attributes, ATTRIBUTES, "attributes"), (methods, METHODS, "methods")]
    over = [f"{size} {what}, at most {limit}" for size, limit, what in sizes if size > limit]
    if over:
        yield f"{module}.{node.name}", "; ".join(over)


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    """What an object of the class has: fields, and whatever its methods assign to `self`."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id
    for part in ast.walk(node):
        match part:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def too_dense(folder: Path) -> list[str]:
    """The long bodies that no blank line divides, where they are too many."""
    bodies = [
        (divided, f"{path.relative_to(folder)}:{line} {name}: {LONG} lines or more, and no blank line")
        for path in _modules(folder)
        for line, name, divided in long_bodies(path.read_text(encoding="utf-8"))
    ]
    dense = [text for divided, text in bodies if not divided]

    if len(dense) <= DENSE * len(bodies):
        return []
    return [*dense, f"{len(dense)} of {len(bodies)} long bodies have no blank line, at most {DENSE:.0%} may"]


def long_bodies(text: str) -> Iterator[tuple[int, str, bool]]:
    """The functions of a module with a long body: line, name, and whether a blank line divides it."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[1 if ast.get_docstring(node) is not None and len(node.body) > 1 else 0]
        body = lines[first.lineno - 1 : node.end_lineno]
        if len(body) >= LONG:
            yield node.lineno, node.name, not all(map(str.strip, body))


def _modules(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.py")) if GENERATED not in path.parents]


def _module(path: Path) -> str:
    parts = path.relative_to(PRODUCT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    sys.exit(main())
