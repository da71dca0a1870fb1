"""The agent as the DaemonSet starts it: its arguments, environment, capabilities, rights; and the end of it all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arpguard.dataplane import bpffs
from arpguard_lab.topology import AgentProcess
from deploy.cluster import POD, START_S, VIP, Cluster, a_cluster, asked_for, config
from deploy.containers import shipped
from support.kube.plain_http import MERGE
from support.netns.cable import Pair, a_pair
from support.netns.waiting import until
from support.netns.wire import a_wire

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

CONFIGMAP = "/api/v1/namespaces/arpguard/configmaps/arpguard"
DAEMONSET = "/apis/apps/v1/namespaces/arpguard/daemonsets/arpguard"


def start(pair: Pair, agent: AgentProcess, cluster: Cluster) -> None:
    """As the kubelet and the runtime do by the DaemonSet, but for where the files are, and a kubeconfig for a token."""
    args, env = asked_for(cluster)
    args[args.index("--config") + 1] = str(agent.config)
    agent.config.write_text(config(agent, "observe"), encoding="utf-8")
    only = ",".join(["-all", *(f"+{name.lower()}" for name in shipped())])
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
            assert "the agent's DaemonSet is gone" in said
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
            assert "the agent's Pod is being replaced" in agent.log.read_text(encoding="utf-8")
            assert wire.who(VIP, mark=pair.node.address) == [pair.node.mac]
            assert cluster.leases()["node.node-1"]["spec"]["leaseDurationSeconds"] == 7
