"""`make fresh`: the README's commands in a root that has Debian's minbase, git and make, and nothing else.

    python3 tests/fresh/run.py "make lab" "make test"

The root is a clone of the commit that is checked out, in mount and process namespaces of its own; the network is the
machine's. Packages, wheels and Go modules are kept in .cache/fresh, and so are the root's archive and the logs.
The standard library alone: this runs where nothing is installed yet.

Exit code 0: every command succeeded, nothing was left out, and no test was skipped that a package would have let run.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
TOP = HERE.parents[1]
KEPT = TOP / ".cache/fresh"
# Skips that no package cures, by their reason. Whatever else is skipped is a package that the Makefile lacks.
ALLOWED = {
    "ARPGUARD_TEST_KUBECONFIG": "a cluster",
    "ARPGUARD_TEST_IMAGE": "an image: `make image` builds and tests one",
    "ARPGUARD_TEST_RELEASE": "a release: `make release` makes and tests one",
    "CONFIG_TIME_NS": "another kernel",
    "this kernel has": "another kernel: `make kernels` runs these tests there",
    "needs two CPUs": "another machine",
    "SCHED_RR is refused": "a cgroup that may run in real time",
}
# How this machine reaches registries. What has a path of this machine in it stays behind.
_PASSED = re.compile(
    r"(?i)(https?|ftp|all|no)_proxy|GOPROXY|GONOPROXY|GOSUMDB|PIP_(INDEX_URL|EXTRA_INDEX_URL|DEFAULT_TIMEOUT)"
)
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_AUTHORITIES_INSIDE = "/etc/authorities.crt"
_TRUST = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SKIPPED = re.compile(r"^(?:\[\w+\] )?SKIPPED (?:\[\d+\] )?(?P<where>\S+?):? (?P<why>.+)$", re.MULTILINE)
_LEFT_OUT = re.compile(r"^(?:left out: .+|\w+ could not be fetched or built: .+)$", re.MULTILINE)
_TALLY = re.compile(r"^=+ (.*\b(?:passed|failed|error).*) =+$", re.MULTILINE)


def main() -> int:
    """Makes the root, runs the commands, and tells what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="bookworm", help="Debian's release (default: bookworm)")
    parser.add_argument("command", nargs="+", help="what to run in the clone, one after the other")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what runs inside ends, the root goes

    commit = _output("git", "-C", str(TOP), "rev-parse", "--short", "HEAD")
    if _output("git", "-C", str(TOP), "status", "--porcelain"):
        print("fresh: what is not committed is left out", file=sys.stderr)
    with a_root(options.suite) as root:
        logs = KEPT / "logs" / root.name
        logs.mkdir(parents=True)
        print(f"fresh: {options.suite}, commit {commit}; logs in {logs}", flush=True)
        accounts = [attempt(root, command, logs / f"{number}.log") for number, command in enumerate(options.command, 1)]
    return 0 if all(accounts) else 1


def attempt(root: Path, command: str, log: Path) -> bool:
    """Runs one command and prints an account of it; whether all is well."""
    start = time.monotonic()
    with log.open("wb") as out:
        code = subprocess.run(
            _inside(root, command), stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        ).returncode
    text = log.read_text(encoding="utf-8", errors="replace")
    wrong = complaints(text) + ([f"exit code {code}: see {log}"] if code else [])
    print(f"{'failed' if wrong else 'ok'}: `{command}` in {time.monotonic() - start:.0f} s{tally(text)}")
    for line in wrong:
        print(f"    {line}")
    sys.stdout.flush()
    return not wrong


def complaints(text: str) -> list[str]:
    """Of what a command printed: what was left out, and each skip that a package would cure."""
    skips = [(found["where"], found["why"]) for found in _SKIPPED.finditer(text)]
    curable = [f"skipped: {where}: {why}" for where, why in skips if not any(word in why for word in ALLOWED)]
    return [*_LEFT_OUT.findall(text), *dict.fromkeys(curable)]


def tally(text: str) -> str:
    """pytest's last line, if there is one."""
    found = _TALLY.findall(text)
    return f": {found[-1]}" if found else ""


@contextmanager
def a_root(suite: str) -> Iterator[Path]:
    """With a clone in /srv, where any user may read it."""
    with a_system(suite) as root:
        _run("git", "-C", str(TOP), "bundle", "create", "--quiet", str(root / "root/arpguard.bundle"), "HEAD")
        _run(*enter(root, "/srv", "git -c advice.detachedHead=false clone --quiet /root/arpguard.bundle arpguard"))
        yield root


@contextmanager
def a_system(suite: str) -> Iterator[Path]:
    """Minbase, git and make, in a folder; removed in the end."""
    archive = _archive(suite)
    for name in ("apt", "home/.cache", "home/go"):
        (KEPT / name).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="root-", dir=KEPT, ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        _run("tar", "-C", folder, "-xf", str(archive))
        _reach_registries(root)
        _link_packages(KEPT / "apt", root / "var/cache/apt/archives")
        try:
            yield root
        finally:
            _link_packages(root / "var/cache/apt/archives", KEPT / "apt")


def _archive(suite: str) -> Path:
    """The root as debootstrap leaves it; made once."""
    archive = KEPT / f"{suite}.tar"
    if not archive.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        print(f"fresh: debootstrap {suite}", flush=True)
        with tempfile.TemporaryDirectory(prefix="base-", dir=KEPT) as folder:
            _run(
                "debootstrap",
                "--variant=minbase",
                "--include=git,make",
                suite,
                f"{folder}/root",
                stdout=subprocess.DEVNULL,
            )
            draft = Path(folder, "tar")
            _run("tar", "-C", f"{folder}/root", "-cf", str(draft), ".")
            draft.rename(archive)
    return archive


def _reach_registries(root: Path) -> None:
    """Name resolution, proxies of apt, and the authorities that this machine trusts."""
    for name in ("resolv.conf", "hosts"):
        shutil.copyfile(f"/etc/{name}", root / "etc" / name)
    if _AUTHORITIES.exists():
        shutil.copyfile(_AUTHORITIES, root / _AUTHORITIES_INSIDE.lstrip("/"))
    proxies = [
        line for line in _output("apt-config", "dump").splitlines() if re.match(r"(?i)acquire::\w+::proxy\b", line)
    ]
    (root / "etc/apt/apt.conf.d/10registries").write_text("".join(f"{line}\n" for line in proxies), encoding="utf-8")


def _link_packages(source: Path, into: Path) -> None:
    """What is there already stays."""
    for package in source.glob("*.deb"):
        if not (into / package.name).exists():
            os.link(package, into / package.name)


def _inside(root: Path, command: str) -> list[str]:
    return enter(root, "/srv/arpguard", command)


def enter(root: Path, folder: str, command: str) -> list[str]:
    """The words that run a command in the root, in a folder of it."""
    environment = ["HOME=/root", f"PATH={_PATH}", f"TERM={os.environ.get('TERM', 'dumb')}"]
    environment += [f"{name}={value}" for name, value in os.environ.items() if _PASSED.fullmatch(name)]
    environment += [f"{name}={_AUTHORITIES_INSIDE}" for name in _TRUST if _AUTHORITIES.exists()]
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    words = [*unshare, "sh", str(HERE / "enter.sh"), str(root), str(KEPT / "home")]
    return [*words, "env", "-i", *environment, "bash", "-c", f"cd {shlex.quote(folder)} && {command}"]


def _output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def _run(*words: str, stdout: int | None = None) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=stdout)


if __name__ == "__main__":
    sys.exit(main())
