"""Programs that are forked from a process that has imported everything: nobody can tell them from those that start."""

import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from arpguard_lab import warm
from arpguard_lab.netns import Netns
from support.netns.waiting import ANSWER_S, HUNG_S, until
from support.warming import a_fork_server

pytestmark = pytest.mark.netns

SERVER = [sys.executable, "-m", "arpguard_lab.apiserver", "--http"]
AS_ASKED = {**os.environ, "SOME": "value", "NO_COLOR": ""}
LIKE_ITS_PARENT = ["SigBlk", "SigIgn", "SigCgt", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Uid", "Threads"]


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARPGUARD_ADDRESS", "unix:///of-the-server")
        with a_fork_server() as pid:
            patch.delenv("ARPGUARD_ADDRESS")
            yield pid


@pytest.fixture
def netns() -> Iterator[Netns]:
    made = Netns(f"arpguard-{os.getpid()}-warm")
    yield made
    made.remove()


@pytest.fixture
def listens() -> Iterator:
    """Starts an API server, warm or not, and gives it once it listens."""
    started: list[warm.Process] = []

    def start(words: list[str], **how: object) -> warm.Process:
        reading, writing = os.pipe()
        with open(reading, "rb") as said, tempfile.TemporaryFile() as errors:
            with open(writing, "wb") as out:
                started.append(warm.popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, **how))
            assert said.readline().startswith(b"http://")
        return started[-1]

    yield start
    for process in started:
        process.send_signal(signal.SIGKILL)
        process.wait()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def seen(pid: int) -> dict[str, object]:
    """What /proc shows of a process."""
    proc = Path(f"/proc/{pid}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text(encoding="utf-8").splitlines())
    files = sorted(re.sub(r"/tmp/\S+|:\[\d+]", "", os.readlink(path)) for path in (proc / "fd").iterdir())
    return {
        **{name: status[name] for name in ("Name", "Umask", *LIKE_ITS_PARENT)},
        **{name: (proc / name).read_bytes() for name in ("cmdline", "comm", "cgroup", "limits", "oom_score_adj")},
        **{name: os.readlink(proc / name) for name in ("cwd", "exe", "root", "ns/net", "ns/mnt", "ns/pid")},
        "environ": sorted((proc / "environ").read_bytes().split(b"\0")),
        "nice": os.getpriority(os.PRIO_PROCESS, pid),
        "files": files,
    }


def test_child_looks_like_a_process_that_was_started(listens, netns, server, tmp_path, monkeypatch):
    listens(SERVER)  # of which the next child sees nothing
    monkeypatch.chdir(tmp_path)
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + 1)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
    try:
        words = [*netns.prefix(), *SERVER]
        forked = listens(words, env=AS_ASKED)
        monkeypatch.delenv(warm.VARIABLE)
        begun = listens(words, env=AS_ASKED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 1)

    assert (parent_of(forked.pid), parent_of(begun.pid)) == (server, os.getpid())
    assert seen(forked.pid) == seen(begun.pid)
    assert os.getsid(forked.pid) == forked.pid
    assert os.readlink(f"/proc/{forked.pid}/ns/net").endswith(f"[{netns.path.stat().st_ino}]")


@pytest.mark.parametrize("words", [["--version"], ["nonsense"], ["status"], []])
def test_command_says_and_returns_the_same(words, monkeypatch):
    command = [sys.executable, "-m", "arpguard", *words]
    forked = warm.run(command)
    monkeypatch.delenv(warm.VARIABLE)
    begun = warm.run(command)
    assert vars(forked) == vars(begun)
    assert forked.stdout + forked.stderr


def test_it_ends_by_a_signal(listens):
    forked = listens(SERVER)
    assert forked.poll() is None
    forked.send_signal(signal.SIGKILL)
    assert forked.wait(HUNG_S) == forked.poll() == -signal.SIGKILL
    forked.send_signal(signal.SIGKILL)


def test_it_ends_by_itself_when_asked_to(listens):
    forked = listens(SERVER)
    forked.send_signal(signal.SIGTERM)
    assert forked.wait(HUNG_S) == 0


def test_waiting_for_it_is_over_in_time(listens):
    with pytest.raises(subprocess.TimeoutExpired):
        listens(SERVER).wait(0.01)


def test_what_takes_too_long_is_killed():
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run([*SERVER, "--listen", "127.0.0.1:0"], timeout=0.2)


def test_all_others_are_started_as_ever(listens, monkeypatch):
    assert warm.run(["echo", "said"]).stdout == "said\n"
    assert warm.run([sys.executable, "-m", "this"]).stdout.startswith("The Zen")
    assert isinstance(listens(SERVER), warm.Forked)
    assert isinstance(listens(["env", *SERVER]), subprocess.Popen)
    assert isinstance(listens(SERVER, env={**os.environ, "PYTHONHASHSEED": "1"}), subprocess.Popen)
    monkeypatch.setenv(warm.VARIABLE, "/nowhere")
    assert isinstance(listens(SERVER), subprocess.Popen)


ASKS = f"""
import sys, tempfile
from arpguard_lab import warm
with tempfile.TemporaryFile() as file:
    process = warm.popen({SERVER!r}, stdout=file, stderr=file)
    print(type(process).__name__, process.pid)
"""


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ([], "Forked"),
        (["unshare", "--net"], "Forked"),
        (["prlimit", "--nofile=512:512"], "Forked"),
        (["unshare", "--mount"], "Popen"),
        (["unshare", "--uts"], "Popen"),
        (["setpriv", "--bounding-set=-sys_time"], "Popen"),
        (["setpriv", "--no-new-privs"], "Popen"),
        (["taskset", "1"], "Popen"),
    ],
)
def test_who_differs_in_what_a_child_inherits_starts_its_own(how, kind):
    done = subprocess.run([*how, sys.executable, "-c", ASKS], stdout=subprocess.PIPE, text=True, check=True)
    name, pid = done.stdout.split()
    assert name == kind
    if kind == "Popen":  # as with any parent that ends
        os.kill(int(pid), signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}/cwd").exists(), 10, "what was forked for one who is gone ends")


ASKS_AND_GOES = """
import json, os, socket
from arpguard_lab import warm
pipe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
pipe.connect(os.environ[warm.VARIABLE])
wanted = ["arpguard", ["python", "-m", "arpguard"], dict(os.environ), "/", 0]
socket.send_fds(pipe, [json.dumps(wanted).encode()], [0, 1, 2, 0])
"""


@pytest.mark.parametrize("asks", [ASKS_AND_GOES, ASKS_AND_GOES.partition("socket.send")[0]], ids=["all", "nothing"])
def test_who_asks_and_goes_leaves_the_server_as_it_was(listens, server, asks):
    os.kill(server, signal.SIGSTOP)
    try:
        subprocess.run([sys.executable, "-c", asks], check=True)
    finally:
        os.kill(server, signal.SIGCONT)
    assert isinstance(listens(SERVER), warm.Forked)


def test_children_end_with_the_server(listens):
    with a_fork_server():
        forked = listens(SERVER)
    assert isinstance(forked, warm.Forked)
    assert forked.wait(HUNG_S) == -signal.SIGKILL
    until(lambda: not Path(f"/proc/{forked.pid}/cwd").exists(), 10, "it is gone")


def test_everybody_starts_their_own_once_the_server_has_ended(listens, monkeypatch):
    with a_fork_server():
        place = os.environ[warm.VARIABLE]
    monkeypatch.setenv(warm.VARIABLE, place)
    assert isinstance(listens(SERVER), subprocess.Popen)


def test_server_ends_at_once_where_the_kernel_lacks_what_it_needs():
    change = "from arpguard_lab import forkserver as it; it._PR_SET_MM_MAP_SIZE = -1; it.main()"
    done = subprocess.run([sys.executable, "-c", change, "-1"], stdin=subprocess.DEVNULL, check=False, timeout=HUNG_S)
    assert done.returncode == 0


def test_who_has_asked_when_the_server_ends_starts_their_own(listens, monkeypatch, tmp_path):
    monkeypatch.setenv(warm.VARIABLE, str(tmp_path / "socket"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        started = pool.submit(listens, SERVER)
        assert select.select([listener], [], [], ANSWER_S)[0], "somebody asks"
        listener.close()
        assert isinstance(started.result(), subprocess.Popen)
