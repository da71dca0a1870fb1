"""The container image: what is in it, for all architectures; and run, as the DaemonSets do.

Programs of another architecture run under QEMU, in user space. It has no bpf(2), so no agent guards there.
"""

import base64
import json
import os
import platform
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from arpguard_lab.topology import AgentProcess
from deploy.cluster import START_S, VIP, Cluster, a_cluster, asked_for
from deploy.containers import pod, runtime_default
from deploy.image import IMAGE, MACHINES, PYTHON, Built, command, modules_of, unpacked
from deploy.locks import locked
from support.netns.cable import Pair, a_pair
from support.netns.waiting import until
from support.netns.wire import a_wire

MB = 1_000_000
MOST_MB = 100
MOST_COMPRESSED_MB = 37
SLOW_START_S = 60.0
WAITS_S = 4
COMMANDS = (
    *("agent", "status", "links", "vips", "decisions", "conflicts", "explain"),
    *("watch", "whohas", "doctor", "replay", "config", "cleanup", "completion"),
)
HELP = """
import sys
from arpguard.cli.main import main
for name in sys.argv[1:]:
    sys.argv = ["arpguard", name, "--help"]
    try: main()
    except SystemExit: pass
"""
AGENT = """
import arpguard.api.server, arpguard.observe.exporter, arpguard.runtime.startup, arpguard.runtime.wiring
import arpguard.runtime.cluster.kubernetes, google.protobuf.message
from arpguard.importing import import_part
for part in ("client.rest", "config.incluster_config", "config.kube_config"): import_part(f"kubernetes.aio.{part}")
"""
HERE = {architecture for architecture, machine in MACHINES.items() if machine == platform.machine()}
PROFILE = "PYTHONPROFILEIMPORTTIME=1"
PROFILED = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
# Without what makes a checkout importable.
CHECKOUT = [sys.executable, "-S", "-c", "import sys; from arpguard.cli.main import main; sys.exit(main())"]
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
pytestmark = [
    pytest.mark.bpf,
    pytest.mark.netns,
    pytest.mark.skipif(not IMAGE, reason="ARPGUARD_TEST_IMAGE names no image: `make image` builds and tests one"),
]


@pytest.fixture(scope="module")
def images() -> Iterator[dict[str, Built]]:
    with unpacked() as found:
        yield found


@pytest.fixture(params=MACHINES)
def image(images, request) -> Built:
    return images[request.param]


# ---- what is in it -----------------------------------------------------------------------------------------------


def test_there_is_one_for_each_architecture(images):
    assert images.keys() == MACHINES.keys()
    for architecture, image in images.items():
        assert image.config["architecture"] == architecture
        kinds = {path.read_bytes()[18] for path in image.files() if path.name.endswith(".so") and not path.is_symlink()}
        assert kinds == {{"amd64": 62, "arm64": 183}[architecture]}, "all of it (e_machine of the ELF header)"


def test_it_is_small(image):
    size = sum(path.stat().st_size for path in image.files() if path.is_file() and not path.is_symlink())
    print(
        f"{image.architecture}: {size / MB:.1f} MB, {image.compressed / MB:.1f} MB compressed, layers: {image.layers}"
    )

    assert size < MOST_MB * MB
    assert image.compressed < MOST_COMPRESSED_MB * MB


def test_nothing_runs_but_python_and_the_agent(image):
    """No shell, no package manager, no compiler: whatever its name would be."""
    executable = {
        str(path.relative_to(image.root))
        for path in image.files()
        if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o111
    }
    programs = {path for path in executable if not re.search(r"\.so(\.\d+)*$", path)}

    assert programs == {"opt/arpguard/bin/arpguard", "usr/bin/python3.11"}


def test_nobody_but_root_can_change_it_and_nothing_gives_rights(image):
    for path in image.files():
        is_now = path.lstat()
        assert (is_now.st_uid, is_now.st_gid) == (0, 0), path
        assert path.is_symlink() or not is_now.st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWGRP | stat.S_IWOTH), (
            path
        )
        assert path.is_symlink() or path.is_dir() or path.is_file(), path
        assert not any(name.startswith("security.") for name in os.listxattr(path, follow_symlinks=False)), path


def test_no_link_leads_out_of_it_or_nowhere(image):
    for path in (path for path in image.files() if path.is_symlink()):
        target = os.readlink(path)
        place = image.root / target.lstrip("/") if target.startswith("/") else path.parent / target
        assert place.is_symlink() or place.exists(), path
        assert place.is_symlink() or place.resolve().is_relative_to(image.root), path


def test_every_library_has_what_it_needs(image):
    """The loader itself is asked, for each of them, and to look every symbol up at once."""
    libraries = [f"/{path.relative_to(image.root)}" for path in image.files() if re.search(r"\.so(\.\d+)*$", path.name)]
    assert len(libraries) > 40
    code = "import ctypes, os, sys\nfor each in sys.argv[1:]: ctypes.CDLL(each, os.RTLD_NOW)"

    image.says(PYTHON, "-c", code, *libraries)


def test_everything_of_the_agent_can_be_imported(image):
    folder = image.root / "opt/arpguard/lib/python3.11/site-packages"
    names = [
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        for path in (folder / "arpguard").rglob("*.py")
    ]
    names.remove("arpguard.__main__")
    assert len(names) > 150

    image.says(PYTHON, "-c", "import importlib, sys\nfor each in sys.argv[1:]: importlib.import_module(each)", *names)


def test_nothing_of_pydantic_is_there(image):
    assert [path for path in image.files() if "pydantic" in path.name] == []


def test_compiled_modules_are_used(image):
    code = "import arpguard.cli.main, json, sys; print([m for m in (json, arpguard.cli.main) if not m.__cached__])"
    assert image.says(PYTHON, "-c", code) == "[]\n"
    sources = {path for path in image.files() if path.suffix == ".py"}
    # Each architecture has one of its own, which is compiled where the image was built only.
    sources -= {path for path in sources if path.name.startswith("_sysconfigdata") and image.architecture not in HERE}
    compiled = {
        path.parents[1] / f"{path.name.partition('.')[0]}.py" for path in image.files() if path.suffix == ".pyc"
    }
    assert compiled == sources
    # PEP 552: 1 is a hash that is never checked. Times of files mean nothing in an image.
    flags = {int.from_bytes(path.read_bytes()[4:8], "little") for path in image.files() if path.suffix == ".pyc"}
    assert flags == {1}


def test_scanners_see_all_packages(image):
    folder = image.root / "var/lib/dpkg/status.d"
    told = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert told.keys() >= {"base-files", "libbpf1", "libc6", "libssl3", "python3.11-minimal", "zlib1g"}
    for name, text in told.items():
        assert re.search(rf"^Package: {re.escape(name)}$", text, re.MULTILINE)
        assert re.search(rf"^Architecture: (all|{image.architecture})$", text, re.MULTILINE)
        assert (image.root / f"usr/share/doc/{name}/copyright").stat().st_size > 0
    assert "ID=debian\n" in (image.root / "etc/os-release").read_text(encoding="utf-8")

    document = json.loads((image.root / "opt/arpguard/sbom.cdx.json").read_text(encoding="utf-8"))
    found = {each["name"]: each for each in document["components"]}
    fixed = {name: number for name, (number, _) in locked("run").items()}
    python = {name: each["version"] for name, each in found.items() if each["purl"].startswith("pkg:pypi/")}
    assert python.pop("arpguard") == IMAGE.rpartition(":")[2]
    assert python.items() <= fixed.items()
    assert python.keys() >= {"aiohttp", "grpcio", "kubernetes", "protobuf", "pyroute2", "pyyaml"}
    assert told.keys() == found.keys() - python.keys() - {"arpguard"}
    assert all(f"arch={image.architecture}" in found[name]["purl"] for name in ("libc6", "libbpf1"))


def test_commands_run(image, tmp_path):
    (tmp_path / "config.yaml").write_text("mode: enforce\nvips: []\n", encoding="utf-8")
    program = [PYTHON, "/opt/arpguard/bin/arpguard"]

    assert image.says(*program, "--version") == f"arpguard {IMAGE.rpartition(':')[2]}\n"
    assert "ok, mode enforce" in image.says(*program, "config", "check", "/etc/arpguard/config.yaml", config=tmp_path)
    assert image.execute(*program, "lab", "--list").stderr.startswith("arpguard lab: the lab is not installed here")
    helps = image.says(PYTHON, "-c", HELP, *COMMANDS)
    assert re.findall(r"^usage: arpguard (\w+)", helps, re.MULTILINE) == list(COMMANDS)


def test_text_is_utf_8(image):
    code = "import os, sys; print(sys.stdout.encoding, sys.getfilesystemencoding(), 'é ✓')"
    assert image.says(PYTHON, "-c", code) == "utf-8 utf-8 é ✓\n"


# ---- run ---------------------------------------------------------------------------------------------------------


def test_commands_import_what_they_import_elsewhere():
    """A module that Python does without, where it is missing, is missed by nobody else."""
    for words in (["--version"], ["status"], ["doctor"], ["cleanup", "--help"], ["config", "check", "/dev/null"]):
        here = subprocess.run([*CHECKOUT, *words], capture_output=True, text=True, check=False, env=PROFILED)
        flags = ["--network=none", f"--env={PROFILE}", IMAGE]
        there = subprocess.run(command(*flags, *words), capture_output=True, text=True, check=False)
        assert there.returncode == here.returncode, there.stderr[-2000:]
        assert modules_of(here.stderr) - modules_of(there.stderr) == frozenset(), words


def privileges(folder: Path, container: dict) -> list[str]:
    """The security context of a manifest as podman's flags."""
    profile = folder / "seccomp.json"
    profile.write_text(json.dumps(runtime_default(knows_cap_bpf=True)), encoding="utf-8")
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    added = [f"--cap-add={','.join(context['capabilities']['add'])}"] if "add" in context["capabilities"] else []
    options = [
        "--security-opt=no-new-privileges",
        f"--security-opt=seccomp={profile}",
        f"--user={context['runAsUser']}",
    ]
    return ["--read-only", "--read-only-tmpfs=false", "--cap-drop=all", *added, *options]


class InImage:
    """An agent in the image, with the privileges and mounts of the DaemonSet, and its files in the pair's folder."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._agent = pair.agent()
        (self.container,) = pod()["containers"]
        self._run = pair.folder / "run"
        self._run.mkdir()

    def flags(self) -> list[str]:
        mounts = [
            f"{self._agent.config.parent}:/etc/arpguard:ro",
            f"{self._run}:/run/arpguard",
            "/sys/fs/bpf:/sys/fs/bpf",
        ]
        network = f"--network=ns:{self._pair.node.netns.path}"
        return [*privileges(self._pair.folder, self.container), network, *(f"--volume={each}" for each in mounts)]

    def configure(self, text: str) -> str:
        self._agent.config.write_text(f"bpf: {{pin_dir: {self._agent.pin_dir}}}\n{text}", encoding="utf-8")
        return f"/etc/arpguard/{self._agent.config.name}"

    def start(self, flags: list[str], args: list[str]) -> AgentProcess:
        with self._agent.log.open("wb") as log:
            words = command(*self.flags(), *flags, IMAGE, *args)
            self._agent._process = subprocess.Popen(words, stdout=log, stderr=log)
        self._agent.wait_for("ready:", SLOW_START_S)
        return self._agent

    def execute(self, *words: str, program: str = "/opt/arpguard/bin/arpguard") -> "subprocess.CompletedProcess[str]":
        """As `kubectl exec` does, but in a container of its own like that one."""
        words = tuple(command(*self.flags(), f"--entrypoint={program}", IMAGE, *words))
        return subprocess.run(words, capture_output=True, text=True, check=False)


def test_agent_guards_with_the_privileges_of_the_manifest_and_probes_and_commands_find_it():
    with a_pair("image") as pair:
        inside = InImage(pair)
        file = inside.configure(f"mode: enforce\nvips: [{{address: {VIP}, owner: {{node: node-1}}}}]\n")
        agent = inside.start(["--env=NODE_NAME=node-1"], ["agent", "--config", file])
        with a_wire(pair.client) as wire:
            assert wire.who(VIP, mark=pair.node.address) == [pair.node.mac]
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                program, *rest = inside.container[name]["exec"]["command"]
                assert inside.execute(*rest, program=program).stdout == "SERVING\n"
            assert str(VIP) in inside.execute("vips").stdout
            assert "ENFORCE" in inside.execute("status", "-o", "json").stdout
            doctor = inside.execute("doctor", "--config", file, "-o", "json").stdout
            assert {each["check"]: each["verdict"] for each in json.loads(doctor)["checks"]}["capabilities"] == "ok"
            agent.kill(signal.SIGTERM)
            assert "stopped: the guard stays in place" in agent.log.read_text(encoding="utf-8")

            assert wire.who(VIP, mark=pair.node.address) == [pair.node.mac]
            done = inside.execute("cleanup", "--config", file)
            assert done.returncode == 0, done.stderr
            assert wire.who(VIP, mark=pair.node.address) == []


def account(cluster: Cluster, folder: Path) -> list[str]:
    """podman's flags for the service account that a kubeconfig is of, as the kubelet mounts one."""
    folder.mkdir()
    settings = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
    (server,), (user,) = settings["clusters"], settings["users"]
    (folder / "ca.crt").write_bytes(base64.b64decode(server["cluster"]["certificate-authority-data"]))
    (folder / "token").write_text(user["user"]["token"], encoding="ascii")
    url = urlsplit(server["cluster"]["server"])
    assert url.scheme == "https"
    where = {"KUBERNETES_SERVICE_HOST": url.hostname, "KUBERNETES_SERVICE_PORT": url.port}
    return [f"--volume={folder}:{ACCOUNT}:ro", *(f"--env={name}={value}" for name, value in where.items())]


def test_agent_takes_a_vip_of_an_api_server_by_its_service_account():
    with a_pair("image-kube") as pair:
        inside = InImage(pair)
        (agent,) = pair.agents
        with a_cluster(pair, agent) as cluster:
            args, env = asked_for(cluster)
            args[args.index("--config") + 1] = inside.configure("mode: observe\n")
            given = [f"--env={name}={value}" for name, value in env.items()]
            inside.start([*account(cluster, pair.folder / "account"), *given], args)
            until(lambda: f"vip.{VIP}" in cluster.leases(), START_S)
            agent.kill(signal.SIGTERM)


def test_agent_imports_what_it_imports_elsewhere():
    """With a kubeconfig, too, for which most is needed."""
    here = subprocess.run([*CHECKOUT[:-1], AGENT], capture_output=True, text=True, check=True, env=PROFILED)
    flags = ["--network=none", f"--env={PROFILE}", f"--entrypoint={PYTHON}", IMAGE]
    there = subprocess.run(command(*flags, "-c", AGENT), capture_output=True, text=True, check=False)
    assert there.returncode == 0, there.stderr[-2000:]
    assert modules_of(here.stderr) - modules_of(there.stderr) == frozenset()


def test_what_waits_once_a_node_is_clean_waits(tmp_path):
    (waits,) = pod("cleanup", "arpguard-cleanup")["containers"]
    program, *rest = waits["command"]
    flags = [*privileges(tmp_path, waits), "--network=none", f"--entrypoint={program}", f"--timeout={WAITS_S}"]

    began = time.monotonic()
    done = subprocess.run(command(*flags, IMAGE, *rest), capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert time.monotonic() - began >= WAITS_S
