"""The agent as the DaemonSet starts it: its arguments, environment, capabilities, rights; and the end of it all."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from arpguard.dataplane import bpffs
from arpguard_lab.topology import AgentProcess
from support.kube.manifests import built, one, parsed
from support.kube.plain_http import MERGE, Api, Reply
from support.netns.cable import Pair, a_pair, address
from support.netns.waiting import until
from support.netns.wire import a_wire

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

VIP = address(50)
START_S = 30.0
CONFIGMAP = "/api/v1/namespaces/arpguard/configmaps/arpguard"
DAEMONSET = "/apis/apps/v1/namespaces/arpguard/daemonsets/arpguard"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/arpguard/leases"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1"},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": str(address(1))}],
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"externalIPs": [str(VIP)], "ports": [{"port": 80}]},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "arpguard-x", "namespace": "arpguard"},
    "spec": {"containers": [{"name": "agent", "image": "arpguard"}]},
}


def config(agent: AgentProcess, mode: str) -> str:
    return f"{agent.own_settings}mode: {mode}\nmetrics: {{listen: off}}\nranges: [198.51.100.0/24]\n"


class Cluster:
    """The lab's API server on the node's loopback, with the base's objects in it and its RBAC in force."""

    def __init__(self, pair: Pair, agent: AgentProcess) -> None:
        self.objects = parsed(built("base"))
        one(self.objects, "ConfigMap")["data"]["config.yaml"] = config(agent, "observe")
        scene = pair.folder / "scene.yaml"
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
        scene.write_text(yaml.safe_dump_all([namespace, *self.objects, NODE, SERVICE, POD]), encoding="utf-8")
        words = [sys.executable, "-m", "arpguard_lab.apiserver", "--load", str(scene), "--rbac", str(scene)]
        words += ["--kubeconfigs", str(pair.folder), "--client", "admin", "--client", "agent=arpguard/arpguard"]
        self._netns = pair.node.netns
        self.process = subprocess.Popen([*self._netns.prefix(), *words], stdout=subprocess.PIPE)
        assert select.select([self.process.stdout], [], [], START_S)[0]
        assert self.process.stdout.readline()
        self.kubeconfig = pair.folder / "agent.yaml"
        self._admin = Api(yaml.safe_load((pair.folder / "admin.yaml").read_text(encoding="utf-8")))

    def ask(self, *words, **query) -> Reply:
        reply = self._netns.call(lambda: self._admin.ask(*words, **query))
        assert reply.code < 300, reply.body
        return reply

    def leases(self) -> dict[str, dict]:
        return {item["metadata"]["name"]: item for item in self.ask("GET", LEASES).body["items"]}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def a_cluster(pair: Pair, agent: AgentProcess) -> Iterator[Cluster]:
    cluster = Cluster(pair, agent)
    try:
        yield cluster
    finally:
        cluster.close()


def start(pair: Pair, agent: AgentProcess, cluster: Cluster) -> None:
    """As the kubelet and the runtime do by the DaemonSet, but for where the files are, and a kubeconfig for a token."""
    (container,) = one(cluster.objects, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    fields = {
        "spec.nodeName": "node-1",
        "metadata.name": POD["metadata"]["name"],
        "metadata.namespace": "arpguard",
    }
    env = {
        item["name"]: item.get("value") or fields[item["valueFrom"]["fieldRef"]["fieldPath"]]
        for item in container["env"]
    }
    args = [word.replace("$(POD_NAMESPACE)", env["POD_NAMESPACE"]) for word in container["args"]]
    args[args.index("--config") + 1] = str(agent.config)
    agent.config.write_text(config(agent, "observe"), encoding="utf-8")
    only = ",".join(["-all", *(f"+{name.lower()}" for name in container["securityContext"]["capabilities"]["add"])])
    words = [*pair.node.netns.prefix(), "setpriv", "--bounding-set", only, "--inh-caps", only, "--no-new-privs"]
    words += [sys.executable, "-m", "arpguard", *args, "--kubeconfig", str(cluster.kubeconfig)]
    with agent.log.open("wb") as log:
        agent._process = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **env})
    agent.wait_for("ready:", START_S)


def pins(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.suffix != ".debug")


def test_rights_and_names_are_enough_from_the_first_start_to_the_removal():
    with a_pair("cluster") as pair:
        agent = pair.agent()
        with a_cluster(pair, agent) as cluster, a_wire(pair.client) as wire:
            start(pair, agent, cluster)
            claim = f"vip.{VIP}"
            until(lambda: cluster.leases().keys() >= {"node.node-1", claim}, START_S)
            assert wire.who(VIP, mark=pair.node.address) == []
            cluster.ask("PATCH", CONFIGMAP, {"data": {"config.yaml": config(agent, "enforce")}}, MERGE)
            until(lambda: wire.who(VIP, mark=pair.node.address) == [pair.node.mac], START_S)
            assert cluster.leases()[claim]["spec"]["holderIdentity"] == "node-1"
            assert bpffs.is_bpffs(agent.pin_dir)
            assert "links" in pins(agent.pin_dir)
            cluster.ask("DELETE", DAEMONSET, {"propagationPolicy": "Foreground"})
            agent.kill(signal.SIGTERM)
            said = agent.log.read_text(encoding="utf-8")
            assert "its DaemonSet is gone" in said
            assert "orbidden" not in said
            assert not agent.pin_dir.exists() or pins(agent.pin_dir) == []
            assert wire.who(VIP, mark=pair.node.address) == []
            assert not cluster.leases().keys() & {"node.node-1", claim}, "nothing is left that keeps the namespace"


def test_replaced_pod_leaves_the_guard_in_place():
    with a_pair("replaced") as pair:
        agent = pair.agent()
        with a_cluster(pair, agent) as cluster, a_wire(pair.client) as wire:
            cluster.ask("PATCH", CONFIGMAP, {"data": {"config.yaml": config(agent, "enforce")}}, MERGE)
            start(pair, agent, cluster)
            until(lambda: wire.who(VIP, mark=pair.node.address) == [pair.node.mac], START_S)
            cluster.ask("DELETE", f"/api/v1/namespaces/arpguard/pods/{POD['metadata']['name']}")
            agent.kill(signal.SIGTERM)
            assert "its pod is replaced" in agent.log.read_text(encoding="utf-8")
            assert wire.who(VIP, mark=pair.node.address) == [pair.node.mac]
            assert cluster.leases()["node.node-1"]["spec"]["leaseDurationSeconds"] == 7
