"""Capabilities: a test that needs what this machine lacks is skipped, and says why.

ARPGUARD_REQUIRE=bpf,netns (as in CI) turns such skips into failures (support/required.py).
"""

import functools
import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from arpguard.dataplane import syscall
from arpguard_build.errors import BuildError
from arpguard_build.headers import find_headers
from arpguard_lab.warm import VARIABLE
from support.netns.foreign import lacks_tcx
from support.netns.waiting import SLOWNESS
from support.required import REQUIRED
from support.warming import a_fork_server

# In the background (`nohup make test &`, CI runners) SIGINT is ignored, and what tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Without this a forked child can hang: its garbage collector destroys a grpc.aio server of the parent, and waits for a
# thread that only the parent has.
os.register_at_fork(after_in_child=gc.freeze)
# Tables are as wide as without a terminal; xdist tells its workers of 80 columns.
os.environ.pop("COLUMNS", None)
# How long an example takes says something about the machine, not about the code.
settings.register_profile("arpguard", deadline=None)
settings.load_profile("arpguard")


@functools.cache
def _lacking_netns() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "network namespaces are refused"


@functools.cache
def _lacking_bpf() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    try:
        syscall.program_by_id(0xFFFFFFFF)
    except FileNotFoundError:
        pass
    except OSError as error:
        return f"bpf(2) is refused ({error.strerror})"
    return None


@functools.cache
def _lacking_compiler() -> str | None:
    try:
        find_headers()
    except BuildError as error:
        return str(error)
    bcc = Path("/usr/lib/python3/dist-packages/bcc").is_dir()
    return _lacking_bpf() if bcc else "python3-bpfcc is not installed"


@functools.cache
def _lacking_tcx() -> str | None:
    return _lacking_bpf() or ("this kernel is older than TCX (6.6)" if lacks_tcx() else None)


_LACKING = {"bpf": _lacking_bpf, "compiler": _lacking_compiler, "netns": _lacking_netns, "tcx": _lacking_tcx}


# Clusters of agents, whose leases run out on a machine that is too busy: one of each group at a time, before all
# others. Groups take about as long. What neither has namespaces nor waits for a server gives way to what does.
_GROUPS = {
    "tests/lab/test_kubernetes": "scenarios",
    "tests/bench/": "rounds",
    "tests/chaos/": "rounds",
    "tests/soak/": "rounds",
    "tests/api/test_cluster": "clusters",
    "tests/kube/test_burst": "runtimes",
    "tests/kube/test_cluster_runtime": "runtimes",
    "tests/kube/test_conflicts": "runtimes",
    "tests/kube/test_dual_stack": "runtimes",
    "tests/kube/test_faults": "runtimes",
    "tests/kube/test_leaving": "runtimes",
    "tests/kube/test_membership": "runtimes",
    "tests/netns/test_kube": "clusters",
    "tests/netns/test_link_cluster": "clusters",
    "tests/netns/test_flood": "clusters",
    "tests/netns/test_scale": "clusters",
}
_CLUSTERS = tuple(_GROUPS)
_FIRST = (*_CLUSTERS, "tests/api/", "tests/deploy/", "tests/kube/", "tests/lab/", "tests/netns/")
# Files that would be the last to end, so that one processor has nothing to do: workers share them.
_PARTS = {"tests/mutation/test_by_hand.py": 2, "tests/model/test_model.py": 3, "tests/properties/test_traces.py": 3}


class _Scheduling(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        group = next((group for prefix, group in _GROUPS.items() if nodeid.startswith(prefix)), None)
        file = super()._split_scope(nodeid)
        return group or f"{file} {crc32(nodeid.encode()) % _PARTS.get(file, 1)}"


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Iterator[None]:
    """Files that run side by side, or on a slow machine, share a fork server, which coverage.py cannot follow."""
    is_alone = not (config.getoption("numprocesses") or SLOWNESS > 1) or "COVERAGE_PROCESS_CONFIG" in os.environ
    with nullcontext() if is_alone else a_fork_server():
        return (yield)


@pytest.fixture(scope="module")
def without_fork_server() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE, raising=False)
        yield


@pytest.fixture(scope="module")
def without_authorities() -> Iterator[None]:
    """Each client reads all certificates that the system trusts, in 50 ms; no server of a test has one of those."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", os.devnull)
        yield


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    return _Scheduling(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.setpriority(os.PRIO_PROCESS, 0, 0 if item.nodeid.startswith(_FIRST) else 10)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """The garbage collector spent a fifth of the time on thousands of tests, none of which is garbage."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (not item.nodeid.startswith(_CLUSTERS), not item.nodeid.startswith(_FIRST)))
    for item in items:
        for name, lacking in _LACKING.items():
            if item.get_closest_marker(name) is None:
                continue
            reason = lacking()
            if reason is not None and name in REQUIRED:
                raise pytest.UsageError(f"ARPGUARD_REQUIRE={name}, but {reason}")
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=f"{name}: {reason}"))
