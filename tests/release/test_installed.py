"""What `make release` made, installed in clean places, and used there."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from arpguard_lab.apiserver.embedded import running
from deploy.locks import ROOT
from deploy.releasing import sha256
from release.roots import Clean, a_clean
from support.kube.manifests import KUBE_VERSION, RELEASE, built, parsed, tool

MADE = Path(os.environ.get("ARPGUARD_TEST_RELEASE", ""))
VERSION = RELEASE["VERSION"]
RECORD = os.environ.get("ARPGUARD_RECORD", "")
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
ELF = {"amd64": 62, "arm64": 183}  # e_machine: EM_X86_64, EM_AARCH64
SUITES = os.environ.get("ARPGUARD_SUITES", "bookworm trixie").split()
AFTER_INSTALLATION = (
    "for page in /usr/share/man/man1/arpguard*.gz; do zcat $page | grep -q '^[.]SH SYNOPSIS'; done",
    "echo '# mine' >> /etc/arpguard/config.yaml; apt-get remove -qq -y arpguard; grep mine /etc/arpguard/config.yaml",
    "apt-get purge -qq -y arpguard; ! ls -d /etc/arpguard /usr/lib/arpguard /usr/bin/arpguard /usr/share/*/arpguard",
)
SHOWN = "with it only the owner"  # the head of the scenario `flux`
PAGE = (ROOT / "docs/install.md").read_text(encoding="utf-8")
pytestmark = [
    pytest.mark.bpf,
    pytest.mark.netns,
    pytest.mark.timeout(3600),  # what is downloaded takes as long as it takes
    pytest.mark.skipif(
        "ARPGUARD_TEST_RELEASE" not in os.environ,
        reason="ARPGUARD_TEST_RELEASE names no folder: `make release` fills one and tests it",
    ),
]


@pytest.fixture(scope="module", params=SUITES)
def clean(request) -> Iterator[Clean]:
    """With what a host has that runs the agent and the lab."""
    with a_clean(request.param) as root:
        root.put(MADE / f"arpguard-{VERSION}-py3-none-any.whl", *MADE.glob(f"*_{ARCHITECTURE}.deb"))
        root.run("apt-get update -qq")
        yield root


def record(what: str, name: str, how: str) -> None:
    """Notes for docs/support.md what a test has run on, in the file that ARPGUARD_RECORD names."""
    if not RECORD:
        return
    path = Path(RECORD)
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    day = time.strftime("%Y-%m-%d", time.gmtime())
    rows = [row for row in rows if (row["what"], row["name"], row["how"]) != (what, name, how)]
    rows.append({"what": what, "name": name, "how": how, "day": day})
    path.write_text(json.dumps(sorted(rows, key=lambda row: list(row.values())), indent=1) + "\n", encoding="utf-8")


def told(section: str) -> str:
    """What a section of docs/install.md tells to type."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return "".join(f"{line}\n" for line in re.findall(r"^# (.+)$", text, re.MULTILINE))


def used(section: str) -> str:
    """The same, and what says which version it is."""
    return f"{told(section)}arpguard --version\n"


def guards(said: str) -> None:
    """Whether the commands showed that the guard guards."""
    assert f"arpguard {VERSION}" in said
    assert SHOWN in said
    assert "NOT AS EXPECTED" not in said


# ---- wheel and sdist -----------------------------------------------------------------------------------------------


def venv(folder: Path, *words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/pip", "install", "--quiet", *words], check=True)


def files(folder: Path) -> dict[str, bytes]:
    (packages,) = folder.glob("lib/python*/site-packages")
    found = [path for name in ("arpguard", "arpguard_lab") for path in (packages / name).rglob("*")]
    return {str(path.relative_to(packages)): path.read_bytes() for path in found if path.is_file()}


def test_wheel_runs_in_a_clean_environment_of_this_python(tmp_path):
    script = (
        used("Any other Linux").replace("/opt/arpguard", f"{tmp_path}/venv").replace("python3 ", f"{sys.executable} ")
    )
    done = subprocess.run(["bash", "-ec", script], cwd=MADE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    guards(done.stdout)
    record("Python", ".".join(platform.python_version_tuple()[:2]), "wheel: the lab")
    record("Kernels", "Linux " + ".".join(platform.release().split(".")[:2]), "wheel: the lab")
    record("Architectures", ARCHITECTURE, "wheel: the lab")


def test_sdist_installs_what_the_wheel_does(tmp_path):
    for name in (f"arpguard-{VERSION}-py3-none-any.whl", f"arpguard-{VERSION}.tar.gz"):
        venv(tmp_path / name, "--no-deps", "--no-compile", MADE / name)
    wheel, sdist = (files(path) for path in sorted(tmp_path.iterdir()))
    assert wheel == sdist
    assert "arpguard/dataplane/programs.json" in wheel


def test_wheel_runs_on_a_clean_system(clean):
    clean.run("apt-get install -qq -y --no-install-recommends python3-venv libbpf1 ethtool iproute2 procps")
    guards(clean.run(used("Any other Linux")))
    python = clean.run("python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'").strip()
    record("Python", python, "wheel: the lab")
    record("Distributions", clean.name, "wheel: the lab")


def test_sums_say_what_was_downloaded(tmp_path):
    (command,) = re.findall(r"^# (sha256sum .+)$", PAGE, re.MULTILINE)
    for name in ("SHA256SUMS", f"arpguard-{VERSION}.tar.gz"):
        shutil.copy(MADE / name, tmp_path)
    assert subprocess.run(["bash", "-c", command], cwd=tmp_path, check=False).returncode == 0
    (tmp_path / f"arpguard-{VERSION}.tar.gz").write_bytes(b"something else")
    assert subprocess.run(["bash", "-c", command], cwd=tmp_path, check=False).returncode == 1


# ---- krew ----------------------------------------------------------------------------------------------------------


def test_plugin_for_krew_runs_from_its_archive(tmp_path):
    """As krew does: the archive of this architecture is unpacked, and a link leads to the command."""
    manifest = yaml.safe_load((MADE / "krew.yaml").read_text(encoding="utf-8"))
    (ours,) = (
        each for each in manifest["spec"]["platforms"] if each["selector"]["matchLabels"]["arch"] == ARCHITECTURE
    )
    shutil.unpack_archive(MADE / ours["uri"].rpartition("/")[2], tmp_path / "store")
    (tmp_path / "kubectl-arpguard").symlink_to(tmp_path / "store" / ours["bin"])
    path = f"{tmp_path}:{os.environ['PATH']}"
    kubectl = [tool("kubectl"), "arpguard"]

    def run(*words):
        environment = {"PATH": path, "KUBECONFIG": f"{tmp_path}/nothing", "HOME": str(tmp_path)}
        return subprocess.run([*kubectl, *words], env=environment, capture_output=True, text=True, check=False)

    assert run("--version").stdout == f"kubectl arpguard {VERSION}\n"
    done = run("vips")
    assert (done.returncode, "No such file or directory" in done.stderr) == (2, True)


# ---- Debian package ------------------------------------------------------------------------------------------------


def test_deb_installs_guards_and_goes_without_a_trace(clean):
    said = clean.run(used("Debian and Ubuntu"))
    guards(said)
    assert "/etc/arpguard/config.yaml: ok" in said
    assert clean.run("dpkg --verify arpguard") == ""
    assert clean.run("sed -n s/^ExecStart=//p /usr/lib/systemd/system/arpguard.service").startswith(
        "/usr/bin/arpguard "
    )
    early = clean.run("cat /usr/lib/systemd/system/arpguard-early.service")
    assert "\nExecStart=/usr/bin/arpguard early " in early
    assert "/opt/" not in early

    for script in AFTER_INSTALLATION:
        clean.run(script)
    record("Distributions", clean.name, "Debian package: the lab")


def test_shells_take_the_completions_of_the_deb(clean):
    script = """
    apt-get install -qq -y --no-install-recommends fish zsh
    dpkg-deb --extract arpguard_*.deb unpacked
    for program in arpguard kubectl-arpguard; do
        bash -n unpacked/usr/share/bash-completion/completions/$program
        zsh -n unpacked/usr/share/zsh/vendor-completions/_$program
        test -e unpacked/usr/share/fish/vendor_completions.d/$program.fish
    done
    fish -c 'source unpacked/usr/share/fish/vendor_completions.d/arpguard.fish; complete -C "arpguard de"'
    """
    assert re.search(r"^decisions\b", clean.run(script), re.MULTILINE)


def test_debs_have_modules_of_their_architecture(tmp_path):
    lists = {}
    for architecture, machine in ELF.items():
        (deb,) = MADE.glob(f"*_{architecture}.deb")
        subprocess.run(["dpkg-deb", "--extract", deb, tmp_path / architecture], check=True)
        modules = [path for path in (tmp_path / architecture).rglob("*.so") if path.is_file()]
        assert {int.from_bytes(path.read_bytes()[18:20], "little") for path in modules} == {machine}
        names = [re.sub(r"(x86_64|aarch64)-", "", str(path.relative_to(tmp_path / architecture))) for path in modules]
        lists[architecture] = sorted(names)

    assert lists["amd64"] == lists["arm64"]
    assert not any("pydantic" in name for name in lists["amd64"])
    for architecture in ELF:
        record("Architectures", architecture, "Debian package: contains compiled modules for it")


# ---- Kubernetes ----------------------------------------------------------------------------------------------------


@pytest.fixture
def kubernetes(tmp_path) -> Iterator[dict[str, str]]:
    """The environment of a shell in which kubectl and helm reach the lab's API server."""
    programs = {str(Path(tool(name)).parent) for name in ("kubectl", "helm")}
    with running() as server:
        server.do(lambda it: it.add_client("admin"))
        server.do(lambda it: it.write_kubeconfig(tmp_path / "kubeconfig", "admin", ""))
        path = os.pathsep.join((*programs, os.environ["PATH"]))
        yield {**os.environ, "PATH": path, "KUBECONFIG": str(tmp_path / "kubeconfig"), "HOME": str(tmp_path)}


def typed(script: str, environment: dict[str, str]) -> str:
    """What a shell prints for what the page tells to type, beside the files."""
    done = subprocess.run(
        ["bash", "-ec", script], cwd=MADE, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kubectl_applies_the_manifest_which_is_the_base(kubernetes):
    (command,) = (line for line in told("Kubernetes").splitlines() if "install.yaml" in line)
    assert parsed((MADE / "install.yaml").read_text(encoding="utf-8")) == parsed(built("base"))
    applied = typed(command, kubernetes).splitlines()
    assert len(applied) == len(parsed(built("base")))
    assert all(line.endswith(" created") for line in applied)


def test_helm_would_install_the_chart_and_kubectl_applies_it(kubernetes):
    """`kubectl create`, and helm for its own records, send protobuf, which the lab's API server does not read.

    `helm template` prints the uninstall hook, too, which would remove what kubectl applies.
    """
    create, label, install = (line for line in told("Kubernetes").splitlines() if "install.yaml" not in line)
    typed(f"{create} --dry-run=client -o yaml | kubectl apply -f -\n{label}", kubernetes)
    assert "STATUS: pending-install" in typed(f"{install} --dry-run=server", kubernetes)

    template = f"helm template arpguard ./arpguard-*.tgz -n arpguard --kube-version {KUBE_VERSION} --no-hooks"
    applied = typed(f"{template} | kubectl apply -f -", kubernetes).splitlines()
    assert "daemonset.apps/arpguard created" in applied
    assert all(line.endswith(" created") for line in applied)


def test_index_has_the_chart_beside_it():
    (entry,) = yaml.safe_load((MADE / "index.yaml").read_text(encoding="utf-8"))["entries"]["arpguard"]
    assert (entry["version"], entry["urls"]) == (VERSION, [f"arpguard-{VERSION}.tgz"])
    assert sha256(MADE / entry["urls"][0]) == entry["digest"]
