"""Imports the parts of the official client that the agent uses, without the rest of it.

`import kubernetes` runs the package's `__init__`, which imports the synchronous client, all helpers and pydantic:
28 MB resident (37.0.2, Python 3.11). The transport needs 9 MB, which is aiohttp. So the packages above it are put into
`sys.modules` without running their `__init__`. A program that has imported `kubernetes` before keeps what it has; one
that imports it later in this process finds its submodules by their names.
"""

import importlib
import importlib.util
import sys
from types import ModuleType

NOT_RUN = ("kubernetes", "kubernetes.aio", "kubernetes.aio.utils", "kubernetes.aio.config")


def import_part(name: str) -> ModuleType:
    """One module of the package, such as "kubernetes.aio.client.rest"; ImportError when it is not installed."""
    for package in NOT_RUN:
        if package not in sys.modules:
            _enter(package)
    return importlib.import_module(name)


def _enter(package: str) -> None:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ImportError(f"{package} is not installed: pip install kubernetes")
    sys.modules[package] = importlib.util.module_from_spec(spec)
