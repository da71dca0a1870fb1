"""The DaemonSet that takes a guard that was left off the nodes: with its privileges, it does."""

import signal

import pytest

from arpguard.cli import exits
from arpguard.cli.main import build_parser
from arpguard.dataplane.privileges import Capability
from deploy.containers import Container, pod, runtime_default, shipped
from support.kube.manifests import built, one, parsed
from support.netns.cable import a_pair, address
from support.netns.wire import a_wire

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

VIP = address(50)
CONFIG = f"mode: enforce\nmetrics: {{listen: off}}\nvips: [{{address: {VIP}, owner: {{node: node-1}}}}]\n"
POD = pod("cleanup", "arpguard-cleanup")
(CLEANUP,) = POD["initContainers"]


def test_guard_that_was_left_is_gone_and_one_that_an_agent_uses_stays():
    with a_pair("cleanup") as pair:
        agent = pair.agent()
        agent.configure(CONFIG)
        agent.start()
        agent.wait_for()
        container = Container(
            pair.node, pair.folder, agent.pin_dir, container=CLEANUP, seccomp=runtime_default(knows_cap_bpf=True)
        )
        file = container.early / "early.yaml"
        file.write_text(f"bpf: {{pin_dir: {agent.pin_dir}}}", encoding="utf-8")
        words = [*CLEANUP["args"], "--pin-dir", str(agent.pin_dir), "--early-file", str(file)]

        beside = container.execute(*words)
        assert beside.returncode == exits.UNREACHABLE, "it is started again until the agent is gone"
        assert "an agent is running here" in beside.stderr
        with a_wire(pair.client) as wire:
            assert wire.who(VIP, mark=pair.node.address) == [pair.node.mac]
            assert file.exists()
            agent.kill(signal.SIGTERM)
            assert wire.who(VIP, mark=pair.node.address) == [pair.node.mac], "the guard was left"

            after = container.execute(*words)
            assert after.returncode == exits.OK, after.stderr
            assert wire.who(VIP, mark=pair.node.address) == []
        assert not file.exists(), "nothing is closed at the next boot"
        assert not agent.pin_dir.exists() or not list(agent.pin_dir.iterdir())
        assert container.execute(*words).returncode == exits.OK, "also where there is nothing to do"


def test_it_has_the_agents_privileges_and_sees_the_early_file_besides():
    agents, (waits,) = pod(), POD["containers"]

    capabilities = {"drop": ["ALL"], "add": [name for name in shipped() if name != Capability.SYS_NICE.name]}
    assert CLEANUP["securityContext"] == agents["containers"][0]["securityContext"] | {"capabilities": capabilities}
    assert waits["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert POD["securityContext"] == agents["securityContext"]
    bpf, early = POD["volumes"]
    folder = str(build_parser().parse_args(["cleanup"]).early_file.parent)
    assert [volume for volume in agents["volumes"] if "hostPath" in volume] == [bpf]
    assert early["hostPath"] == {"path": folder, "type": "DirectoryOrCreate"}
    assert {"name": early["name"], "mountPath": folder} in CLEANUP["volumeMounts"]
    assert POD["automountServiceAccountToken"] is False


def test_it_comes_to_every_node_that_an_agent_was_on():
    same = ("hostNetwork", "nodeSelector", "tolerations", "priorityClassName", "dnsPolicy")

    assert {name: POD[name] for name in same} == {name: pod()[name] for name in same}


def test_it_runs_the_agents_image_in_a_namespace_of_its_own():
    """That of the agents may be going."""
    objects, agents = parsed(built("cleanup")), parsed(built("base"))
    daemonset, agent = one(objects, "DaemonSet", "arpguard-cleanup"), one(agents, "DaemonSet")
    spec = daemonset["spec"]["template"]["spec"]
    images = {each["image"] for each in (*spec["initContainers"], *spec["containers"])}

    assert images == {agent["spec"]["template"]["spec"]["containers"][0]["image"]}
    assert daemonset["metadata"]["namespace"] == "arpguard-cleanup"
    assert (
        one(objects, "Namespace", "arpguard-cleanup")["metadata"]["labels"].items()
        >= {f"pod-security.kubernetes.io/{each}": "privileged" for each in ("enforce", "audit", "warn")}.items()
    )
