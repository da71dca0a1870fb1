"""The container image, run for real: ARPGUARD_TEST_IMAGE names it, as `make image` does once it is built."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.containers import runtime_default
from deploy.locks import locked
from support.kube.manifests import DEPLOY, one
from support.netns.cable import a_pair, address
from support.netns.wire import a_wire

IMAGE = os.environ.get("ARPGUARD_TEST_IMAGE", "")
RUN = str(DEPLOY / "image/run.sh")
VIP = address(50)
LIMIT_MB = 250
START_S = 60.0
pytestmark = [
    pytest.mark.bpf,
    pytest.mark.netns,
    pytest.mark.skipif(not IMAGE, reason="ARPGUARD_TEST_IMAGE names no image: `make image` builds and tests one"),
]


def run(*words: str, check: bool = True) -> str:
    done = subprocess.run([RUN, *words], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def manifest() -> list[dict]:
    return list(yaml.safe_load_all((DEPLOY / "base/daemonset.yaml").read_text(encoding="utf-8")))


def container() -> dict:
    (only,) = one(manifest(), "DaemonSet")["spec"]["template"]["spec"]["containers"]
    return only


def privileges(folder: Path) -> list[str]:
    """The security contexts of the manifest as podman's flags."""
    profile = folder / "seccomp.json"
    profile.write_text(json.dumps(runtime_default(knows_cap_bpf=True)), encoding="utf-8")
    context = container()["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    added = ",".join(context["capabilities"]["add"])
    options = ["--security-opt=no-new-privileges", f"--security-opt=seccomp={profile}"]
    return ["--read-only", "--cap-drop=all", f"--cap-add={added}", *options]


def test_image_does_not_carry_the_lab():
    said = run("--network=none", "--entrypoint=sh", IMAGE, "-c", "arpguard lab --list 2>&1", check=False)
    assert said.startswith("arpguard lab: the lab is not installed here")


def test_bill_of_materials_names_what_is_fixed():
    script = "import sys; sys.stdout.write(open('/opt/arpguard/sbom.cdx.json').read())"
    words = ["--network=none", "--entrypoint=/opt/arpguard/bin/python", IMAGE, "-c", script]
    found = {(each["name"], each["version"]) for each in json.loads(run(*words))["components"]}
    assert {(name, number) for name, (number, _) in locked("run").items()} <= found
    assert "libbpf1" in {name for name, _ in found}


def test_agent_guards_with_the_privileges_of_the_manifest_and_probes_find_it():
    with a_pair("image") as pair:
        agent = pair.agent()
        config = (
            f"bpf: {{pin_dir: {agent.pin_dir}}}\nmode: enforce\nvips: [{{address: {VIP}, owner: {{node: node-1}}}}]\n"
        )
        agent.config.write_text(config, encoding="utf-8")
        sockets = pair.folder / "run"
        sockets.mkdir()
        mounts = [
            "-v=/sys/fs/bpf:/sys/fs/bpf",
            f"-v={agent.config}:/etc/arpguard/config.yaml:ro",
            f"-v={sockets}:/run/arpguard",
        ]
        words = [
            *privileges(pair.folder),
            f"--network=ns:{pair.node.netns.path}",
            *mounts,
            "--env=NODE_NAME=node-1",
            IMAGE,
        ]
        with agent.log.open("wb") as log:
            agent._process = subprocess.Popen([RUN, *words], stdout=log, stderr=log)
        agent.wait_for("ready:", START_S)
        with a_wire(pair.client) as wire:
            assert wire.who(VIP, mark=pair.node.address) == [pair.node.mac]
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            program, *rest = container()[name]["exec"]["command"]
            assert run("--network=none", mounts[2], f"--entrypoint={program}", IMAGE, *rest) == "SERVING\n"
        agent._process.terminate()
        assert agent._process.wait(timeout=20) == 0
        assert "stopped: the guard stays in place" in agent.log.read_text(encoding="utf-8")


def test_agent_of_the_image_can_speak_to_kubernetes():
    parts = ["client.rest", "client.configuration", "config.incluster_config", "config.kube_config"]
    code = f"from arpguard.kube.importing import import_part as of\nfor each in {parts}: of('kubernetes.aio.' + each)"
    run("--network=none", "--entrypoint=/opt/arpguard/bin/python", IMAGE, "-c", code)


def test_image_holds_no_compiler_nor_pip():
    tools = "cc gcc clang c++ make pip pip3 go"
    script = f"for t in {tools}; do command -v $t; done; find / -xdev -name 'libLLVM*' -o -xdev -name 'libbcc*'"
    assert run("--network=none", "--entrypoint=sh", IMAGE, "-c", script) == ""


def test_image_is_not_large():
    size = int(run("--network=none", "--entrypoint=sh", IMAGE, "-c", "du -xsm / 2>/dev/null | cut -f1"))
    assert size < LIMIT_MB
    print(f"{IMAGE}: {size} MB")
