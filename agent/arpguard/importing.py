"""Imports the parts of large libraries that the agent uses, without the rest of them.

`import kubernetes` runs the package's `__init__`, which imports the synchronous client, all helpers and pydantic:
28 MB resident (37.0.2, Python 3.11). The transport needs 9 MB, which is aiohttp. `import pyroute2` imports whatever
netlink can do, in 0.1 s and 12 MB; rtnetlink needs half of both (0.9.7). So the packages above these parts are put into
`sys.modules` without running their `__init__`. A program that has imported a library before keeps what it has; one
that imports it later in this process finds its submodules by their names.

The module that reads kubeconfig files imports ApiClient, and with it pydantic (10 MB), for functions that the agent
never calls. So import_part puts a function in place of that class. rtnetlink imports unittest (2 MB) to mock a queue
that the agent never uses; import_part gives it a module with only that class.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

NOT_RUN = ("kubernetes", "kubernetes.aio", "kubernetes.aio.utils", "kubernetes.aio.config", "pyroute2")

UNUSED = {"kubernetes.aio.config.kube_config": ("kubernetes.aio.client", "ApiClient")}  # what each imports in vain


def import_part(name: str) -> ModuleType:
    """One module of a library, such as "kubernetes.aio.client.rest"; ImportError when that is not installed."""
    library = name.partition(".")[0]
    for package in NOT_RUN:
        if package.partition(".")[0] == library and package not in sys.modules:
            _enter(package)
    if name in UNUSED:
        return _import_without(*UNUSED[name], name)
    if library == "pyroute2":
        with _standing_in_for_unittest():
            return importlib.import_module(name)
    return importlib.import_module(name)


@contextmanager
def _standing_in_for_unittest() -> Iterator[None]:
    if "unittest" in sys.modules:
        yield
        return
    stand_in = ModuleType("unittest")
    vars(stand_in)["mock"] = SimpleNamespace(Mock=object)
    sys.modules["unittest"] = stand_in
    try:
        yield
    finally:
        sys.modules.pop("unittest", None)


def _import_without(package: str, unused: str, name: str) -> ModuleType:
    """Imports a module with a function in place of a class; calling it imports the class and returns an instance."""
    source = importlib.import_module(package)
    if name in sys.modules or unused in vars(source):
        return importlib.import_module(name)

    def stand_in(*words: object, **names: object) -> object:
        return getattr(source, unused)(*words, **names)

    setattr(source, unused, stand_in)
    try:
        return importlib.import_module(name)
    finally:
        vars(source).pop(unused, None)


def _enter(package: str) -> None:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ImportError(f"{package} is not installed: pip install {package.partition('.')[0]}")
    sys.modules[package] = importlib.util.module_from_spec(spec)
