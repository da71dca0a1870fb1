"""Which modules a program can import, found by reading its import statements: what is not among them need not be there.

Nothing is imported and nothing runs, so the modules may be those of another architecture. Every statement counts,
also inside functions; what only type checkers read does not, nor what runs only if a module is the program itself.
"""

import ast
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_NEVER_SO = re.compile(r"(\w+\.)?TYPE_CHECKING|__name__ == '__main__'")
_DOTTED = re.compile(r"[a-z_]\w*(\.\w+)+")


@dataclass(frozen=True)
class Module:
    """Where a module is: its file, none for a namespace; and where its submodules are, if it is a package."""

    file: Path | None
    inside: tuple[Path, ...] = ()


class Tree:
    """Folders in which modules are looked for, in this order, as in sys.path."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)

    def find(self, name: str) -> Module | None:
        """A module by its full name."""
        found, folders = None, self._folders
        for part in name.split("."):
            found = _find_in(folders, part)
            if found is None:
                return None
            folders = found.inside
        return found

    def below(self, package: str) -> Iterator[str]:
        """The name of a package, and those of all modules in it that are written in Python."""
        module = self.find(package)
        for folder in module.inside if module else ():
            for file in folder.rglob("*.py"):
                parts = file.relative_to(folder).with_suffix("").parts
                yield ".".join((package, *(part for part in parts if part != "__init__")))


def _find_in(folders: Sequence[Path], part: str) -> Module | None:
    """A package may be spread over folders."""
    having = [(folder, there) for folder in folders if (there := _modules_in(folder).get(part))]
    inside = tuple(folder / part for folder, there in having if "" in there)
    for folder, there in having:
        if "" in there and "__init__.py" in _names_in(folder / part):
            return Module(folder / part / "__init__.py", inside)
        for suffix in sorted(there - {""}):
            return Module(folder / f"{part}{suffix}")
    return Module(None, inside) if inside else None


@cache
def _names_in(folder: Path) -> frozenset[str]:
    return frozenset(os.listdir(folder))


@cache
def _modules_in(folder: Path) -> dict[str, set[str]]:
    """What of a folder can be imported: the names, and the rest of their files' names; of folders "", first of all."""
    found = defaultdict(set)
    for name in _names_in(folder):
        part, dot, suffix = name.partition(".")
        if suffix == "py" or suffix.endswith("so") or (not dot and (folder / name).is_dir()):
            found[part].add(dot + suffix)
    return found


def reachable(
    tree: Tree, roots: Iterable[str], *, program: str, not_run: Collection[str] = (), never: Collection[str] = ()
) -> set[str]:
    """The names of all modules that `roots` can import.

    The package `program` also imports what it names in text, like "package.module". Of the packages in `not_run` only
    the name is there: what their `__init__` would import is not. What is in `never`, or below it, is left out.
    """
    found: set[str] = set()
    waiting = [each for root in roots for each in _with_parents(root)]
    while waiting:
        name = waiting.pop()
        if name in found or any(f"{name}.".startswith(f"{each}.") for each in never):
            continue
        module = tree.find(name)
        if module is None:
            continue
        found.add(name)
        if module.file and module.file.suffix == ".py" and name not in not_run:
            package = name if module.inside else name.rpartition(".")[0]
            in_text = f"{name}.".startswith(f"{program}.")
            for imported in imports(module.file.read_bytes(), package, in_text=in_text):
                waiting += _with_parents(imported)
    return found


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def imports(source: bytes, package: str, *, in_text: bool = False) -> Iterator[str]:
    """What a module's statements import: of `from a import b` both a and a.b, which may be a module."""
    for node in _run(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (base, *(f"{base}.{each.name}" for each in node.names))
        elif in_text and isinstance(node, ast.Constant) and _DOTTED.fullmatch(str(node.value)):
            yield str(node.value)


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one, without those that are not run when the module is imported or used."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _NEVER_SO.fullmatch(ast.unparse(child.test)):
            yield from _run(ast.Module(child.orelse, []))
        else:
            yield child
            yield from _run(child)
