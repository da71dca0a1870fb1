"""A cluster for one agent that runs as its DaemonSet says: the lab's API server with the base's objects in it."""

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from arpguard_lab.topology import AgentProcess
from support.kube.manifests import built, one, parsed
from support.kube.plain_http import Api, Reply
from support.netns.cable import Pair, address

VIP = address(50)
START_S = 30.0
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


def asked_for(cluster: Cluster) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of the DaemonSet's container, as the kubelet fills them in."""
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
    return [word.replace("$(POD_NAMESPACE)", env["POD_NAMESPACE"]) for word in container["args"]], env
