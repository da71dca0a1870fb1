"""The agents as Pods of a DaemonSet, with the lab as controller and kubelet."""

import signal
from itertools import count

from arpguard_lab.cluster import objects
from arpguard_lab.cluster.bench import KubeBench
from arpguard_lab.cluster.topology import DAEMONSET, KubeAgent
from arpguard_lab.topology import Host


class Pods:
    """Starts the agents of a bench again, as Pods."""

    def __init__(self, bench: KubeBench) -> None:
        self._bench = bench
        self._numbers = count(1)
        self._daemon_sets = f"/apis/apps/v1/namespaces/{bench.home}/daemonsets"
        self._pods = f"/api/v1/namespaces/{bench.home}/pods"
        bench.server.api.create(self._daemon_sets, objects.daemon_set(bench.home, DAEMONSET))
        for host in bench.nodes:
            bench.agent(host).kill(signal.SIGTERM)
            self.begin(host)
            bench.agent(host).wait_for()

    def begin(self, host: Host) -> None:
        """A new Pod, and its agent."""
        agent = self._bench.agent(host)
        self._create(agent)
        agent.start()

    def _create(self, agent: KubeAgent) -> None:
        agent.pod = f"{DAEMONSET}-{agent.host.name}-{next(self._numbers)}"
        self._bench.server.api.create(self._pods, objects.pod(self._bench.home, agent.pod, agent.node))

    def surge(self, host: Host) -> KubeAgent:
        """The next Pod beside the one that runs, as of a DaemonSet with `maxSurge: 1`; its agent."""
        agent = self._bench.lab.successor(host)
        agent.configure(self._bench.config())
        self._create(agent)
        agent.start()
        return agent

    def replace(self, host: Host) -> None:
        """A rolling update: the next Pod is ready before the one that runs is ended."""
        following = self.surge(host)
        following.wait_for("standby:")
        self.end(host)
        self._bench.lab.guards[host.name] = following
        following.wait_for()

    def discard(self, agent: KubeAgent) -> None:
        """Takes a Pod away again that never came to run its agent."""
        agent.kill(signal.SIGTERM)
        self._bench.server.api.delete(f"{self._pods}/{agent.pod}", {"gracePeriodSeconds": 0})

    def end(self, host: Host) -> None:
        """As kubelet does: the Pod is deleting, SIGTERM, and the Pod is gone once the agent is."""
        agent = self._bench.agent(host)
        path = f"{self._pods}/{agent.pod}"
        self._bench.server.api.delete(path)
        agent.kill(signal.SIGTERM)
        self._bench.server.api.patch(path, {"metadata": {"finalizers": None}})
        self._bench.server.api.delete(path, {"gracePeriodSeconds": 0})

    def delete_daemon_set(self) -> None:
        """Kubectl delete daemonset, before any Pod is deleted."""
        self._bench.server.api.delete(f"{self._daemon_sets}/{DAEMONSET}")
