"""A real agent that follows an API server: what only the whole program does."""

import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from arpguard.dataplane import bpffs, loader
from arpguard.dataplane.maps import ControlValue
from arpguard.model import NodeControl
from arpguard.runtime.inthread import PATIENCE_S
from arpguard.verdict import Hook, Mode
from arpguard_lab.apiserver.embedded import Embedded
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.topology import CONFIGMAP, DAEMONSET, KubeAgent
from arpguard_lab.patience import Patience
from support.kube.node_api import a_server, ask
from support.netns.agents import pid_of
from support.netns.cable import Pair, a_pair, address
from support.netns.foreign import programs_at
from support.netns.rtnl import rtnl_held, waits_in_the_kernel
from support.netns.waiting import HUNG_S, until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

HOME, POD = "arpguard", "arpguard-x7"
VIP = address(50)
PORT = 9469
CONFIG = (
    "interfaces: [eth0]\nranges: [198.51.100.0/24]\nservices: {owner: elect}\n"
    f"metrics: {{listen: '127.0.0.1:{PORT}'}}\nlease: {{renew: 200ms}}\nmode: "
)
CLOSED = "{network: 198.51.100.64/28, unknown: suppress}"
END_S = 10.0


class EarlyKubeAgent(KubeAgent):
    """An agent that keeps the file for `arpguard early`."""

    @property
    def early_file(self) -> Path:
        return self.config.with_name("early.yaml")

    def words(self) -> list[str]:
        return [*super().words(), "--early-file", str(self.early_file)]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("kube-agent") as made:
        yield made


@pytest.fixture
def server(pair) -> Iterator[Embedded]:
    with a_server(pair.node.netns, _scene(pair)) as server:
        yield server


def _scene(pair: Pair) -> list[dict]:
    return [
        objects.namespace(HOME),
        objects.config_map(HOME, CONFIGMAP, f"{CONFIG}enforce"),
        objects.node(pair.node.name, pair.node.address),
        objects.service(HOME, "web", [VIP]),
    ]


@pytest.fixture
def agent(pair, server) -> Iterator[EarlyKubeAgent]:
    agent = EarlyKubeAgent(pair.node, pair.folder, pair.pin_root / pair.node.name)
    agent.namespace, agent.pod = HOME, POD
    server.do(lambda it: it.write_kubeconfig(agent.kubeconfig, "node-1"))
    server.do(lambda it: it.put(objects.daemon_set(HOME, DAEMONSET)))
    server.do(lambda it: it.put(objects.pod(HOME, POD, "node-1")))
    agent.configure(f"{CONFIG}observe")
    agent.start()
    agent.wait_for()
    agent.wait_for(f"owned: vip={VIP}")
    yield agent
    agent.kill(signal.SIGKILL)
    agent.remove_guard()


def _metric(pair: Pair, name: str) -> float:
    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=HUNG_S) as response:
            return response.read().decode()

    rows = [line.split() for line in pair.node.netns.call(read).splitlines() if line.startswith(f"{name} ")]
    return float(rows[0][1])


def _configure(server: Embedded, text: str) -> None:
    server.do(lambda it: it.put(objects.config_map(HOME, CONFIGMAP, text)))


def _programs(pair: Pair) -> list[int]:
    """What is attached to the node's link."""
    return programs_at(pair.node, Hook.TC_INGRESS) + programs_at(pair.node, Hook.TC_EGRESS)


def _control(agent: KubeAgent) -> NodeControl:
    control = ControlValue(loader.open_maps(agent.pin_dir)["control"]).read()
    assert control is not None
    return control


def test_configmap_switches_the_kernel_within_a_second_and_a_wrong_one_shows_in_the_metrics(pair, server, agent):
    until(lambda: _control(agent).mode is Mode.ENFORCE)
    for word, mode in (("observe", Mode.OBSERVE), ("enforce", Mode.ENFORCE)):
        _configure(server, f"{CONFIG}{word}")
        until(lambda mode=mode: _control(agent).mode is mode, 1.0)

    _configure(server, f"{CONFIG}perhaps")
    until(lambda: _metric(pair, "arpguard_config_problems") == 1)
    assert _control(agent).mode is Mode.ENFORCE
    _configure(server, f"{CONFIG}enforce")
    until(lambda: _metric(pair, "arpguard_config_problems") == 0)


def test_f32_agent_renews_its_claims_while_the_kernel_does_not_let_it_look_at_its_links(pair, server, agent):
    """For PATIENCE_S only, in which a machine that others use may do nothing: so it has more than one chance."""
    assert any(_renews_while_links_cannot_be_read(pair, agent) for _ in range(5))


def _renews_while_links_cannot_be_read(pair: Pair, agent: KubeAgent) -> bool:
    with rtnl_held(pair.node.netns):
        until(lambda: waits_in_the_kernel(pid_of(agent)))
        fence_ns, end_s = _control(agent).fence_ns, time.monotonic() + PATIENCE_S
        while _control(agent).fence_ns == fence_ns and time.monotonic() < end_s:
            time.sleep(0.01)
        return _control(agent).fence_ns > fence_ns


def test_agent_whose_daemonset_is_gone_removes_the_guard_and_the_file_for_the_next_boot(pair, server, agent):
    assert _programs(pair)
    _configure(server, f"{CONFIG}enforce".replace("198.51.100.0/24", f"198.51.100.0/24, {CLOSED}"))
    until(agent.early_file.exists, what="the agent keeps the file")
    path = f"/apis/apps/v1/namespaces/{HOME}/daemonsets/{DAEMONSET}"
    assert ask(pair.node.netns, server, "DELETE", path).code == 200

    agent.kill(signal.SIGTERM)

    assert "stopped: the guard is removed" in agent.said()
    assert not agent.is_pinned()
    assert not agent.early_file.exists()
    assert not _programs(pair)


@pytest.mark.parametrize("deleted", [True, False], ids=["with its ConfigMap", "though its ConfigMap is there"])
def test_agent_whose_rights_are_gone_removes_the_guard_only_where_more_is_gone(pair, server, agent, deleted):
    """As when everything is deleted at once, and as when a role is wrong while a Pod restarts."""
    server.do(lambda it: it.fault("node-1", fail=-1, code=403))
    if deleted:
        path = f"/api/v1/namespaces/{HOME}/configmaps/{CONFIGMAP}"
        assert ask(pair.node.netns, server, "DELETE", path).code == 200
        agent.wait_for("does not exist; keeping the previous configuration")

    agent.kill(signal.SIGTERM)

    assert ("stopping: the agent's rights and ConfigMap are gone, as after an uninstall" in agent.said()) is deleted
    assert ("the guard stays, and" in agent.said()) is not deleted
    assert agent.said().rstrip().endswith("the guard is removed") is deleted, "in its last line"
    assert bool(_programs(pair)) is agent.is_pinned() is not deleted


def test_agent_ends_in_time_though_the_server_is_away_and_leaves_the_guard(pair, server, agent):
    server.run(lambda it: it.go_down())
    patience = Patience(END_S)

    agent.kill(signal.SIGTERM)

    assert not patience.is_over
    assert "stopped: the guard stays in place" in agent.said()
    assert agent.is_pinned()
    assert _programs(pair)


@pytest.mark.parametrize("pinned", [True, False])
def test_upgrade_to_other_maps_leaves_the_old_programs_until_all_is_known(pair, server, agent, pinned):
    """Over maps with nothing in them they would let everything pass; on older kernels there are no links to find."""
    agent.kill(signal.SIGKILL)
    if not pinned:
        bpffs.remove(agent.pin_dir / "links")
        until(lambda: not _programs(pair))
    old = _programs(pair)
    server.run(lambda it: it.go_down())
    settings = agent.config.read_text(encoding="utf-8")
    agent.config.write_text(settings.replace("bpf: {", "bpf: {max_entries: 99, "), encoding="utf-8")

    agent.start()
    agent.wait_for("has not been read yet")
    agent.wait_for("lost the watch on")
    waiting, maps = _programs(pair), len(list(agent.pin_dir.glob("maps-*")))
    server.run(lambda it: it.come_up())
    agent.wait_for()

    assert (waiting, maps) == (old, 2)
    assert not {*_programs(pair)} & {*old}
    assert len(list(agent.pin_dir.glob("maps-*"))) == 1
