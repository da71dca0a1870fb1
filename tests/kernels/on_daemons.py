"""Devices that a daemon manages, guarded: a team (teamd), and a bridge of Open vSwitch's (ovs-vswitchd).

Run in a guest of `make kernels` only, which says where Open vSwitch is: its package is unpacked and not installed,
since that would start a switch on this machine. The team has two cables to a bridge of the client's, Open vSwitch one
to the client itself. The VIPs are on `lo`, so that the kernel would answer for each.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from arpguard_lab.topology import AgentProcess, Host, HostProcess
from support.netns.cable import Pair, a_pair
from support.netns.devices import Device, a_config, addresses, cable, mac_of, shown, who
from support.netns.waiting import START_S, until
from support.netns.wire import a_wire

TEAM = Device("team0", "br0", 1, "lo")
OVS = Device("br-ex", "nic0", 2, "lo")
DEVICES = (TEAM, OVS)
_OVS = Path(os.environ["ARPGUARD_OPENVSWITCH"])
_TEAM = {
    "device": TEAM.name,
    "runner": {"name": "activebackup"},
    "link_watch": {"name": "ethtool"},
    "ports": {"port0": {}, "port1": {}},
}


class Daemon(HostProcess):
    """A daemon of the node's."""

    def __init__(self, host: Host, folder: Path, *words: str) -> None:
        super().__init__(host, folder, Path(words[0]).name)
        self._words = words

    def words(self) -> list[str]:
        return list(self._words)

    def environment(self) -> dict[str, str]:
        return super().environment() | {"LD_LIBRARY_PATH": str(_OVS / "usr/lib/x86_64-linux-gnu")}


def _ovs_vsctl(pair: Pair, *words: str) -> None:
    program, database = _OVS / "usr/bin/ovs-vsctl", pair.folder / "ovs.sock"
    libraries = f"LD_LIBRARY_PATH={_OVS / 'usr/lib/x86_64-linux-gnu'}"
    pair.node.netns.run("env", libraries, str(program), "--no-wait", f"--db=unix:{database}", *words)


def _switch(pair: Pair) -> list[Daemon]:
    """Open vSwitch with its database, and a bridge in which nic0 is a port."""
    data, database, control = (pair.folder / name for name in ("ovs.db", "ovs.sock", "ovs.ctl"))
    tool, schema = _OVS / "usr/bin/ovsdb-tool", _OVS / "usr/share/openvswitch/vswitch.ovsschema"
    libraries = f"LD_LIBRARY_PATH={_OVS / 'usr/lib/x86_64-linux-gnu'}"
    pair.node.netns.run("env", libraries, str(tool), "create", str(data), str(schema))
    server = [str(_OVS / "usr/sbin/ovsdb-server"), str(data), f"--remote=punix:{database}"]
    switch = [str(_OVS / "usr/lib/openvswitch-switch/ovs-vswitchd"), f"unix:{database}"]
    daemons = []
    for words in (server, switch):
        daemons.append(Daemon(pair.node, pair.folder, *words, f"--unixctl={control}-{len(daemons)}"))
        daemons[-1].start()
        until(database.exists, START_S, "the database listens")
    _ovs_vsctl(pair, "init", "--", "add-br", OVS.name, "--", "add-port", OVS.name, "nic0")
    return daemons


def _team(pair: Pair) -> Daemon:
    config = pair.folder / "team.json"
    config.write_text(json.dumps(_TEAM), encoding="utf-8")
    daemon = Daemon(pair.node, pair.folder, "/usr/bin/teamd", "-f", str(config))
    daemon.start()
    return daemon


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("daemons") as made:
        made.node.netns.batch([cable(made, name) for name in ("port0", "port1", "nic0")])
        made.client.netns.batch([
            "link add br0 promisc on type bridge forward_delay 0 mcast_snooping 0",
            "link set port0 master br0", "link set port1 master br0",
            *(f"link set {name} up" for name in ("port0", "port1", "nic0", "br0")),
            *(f"addr add {each.address(100)}/24 dev {each.asked_on}" for each in DEVICES),
        ])  # fmt: skip
        made.node.netns.batch(["link set nic0 up"])
        daemons = [_team(made), *_switch(made)]
        try:
            for device in DEVICES:
                until(lambda name=device.name: _is_there(made, name), START_S, f"{device.name} is there")
            made.node.netns.batch([*(f"link set {each.name} up" for each in DEVICES), *addresses(DEVICES)])
            yield made
        finally:
            for daemon in daemons:
                print(daemon.name, daemon.said())
                daemon.kill(signal.SIGTERM)


def _is_there(pair: Pair, name: str) -> bool:
    return name in pair.node.netns.run("ip", "-o", "link", "show")


@pytest.mark.parametrize("device", DEVICES, ids=lambda each: each.name)
def test_without_the_guard_the_kernel_answers_for_both(pair, device):
    """Of the agent there is nothing yet: this is the first test of the file."""
    assert not pair.agents
    with a_wire(pair.client, device.asked_on) as wire:
        assert who(wire, device) == [[mac_of(pair, device)]] * 2


@pytest.fixture(scope="module")
def agent(pair) -> AgentProcess:
    return pair.agent(a_config(DEVICES))


@pytest.mark.parametrize("device", DEVICES, ids=lambda each: each.name)
def test_the_owner_answers_and_for_another_nodes_vip_nobody(pair, agent, device):
    with a_wire(pair.client, device.asked_on) as wire:
        assert who(wire, device) == [[mac_of(pair, device)], []]


def test_a_team_stays_guarded_when_its_active_port_fails(pair, agent):
    """Its MAC is that of its first port, and stays."""
    for failed, other in (("port0", "port1"), ("port1", "port0")):
        pair.client.netns.batch([f"link set {failed} down", f"link set {other} up"])
        with a_wire(pair.client, TEAM.asked_on) as wire:
            assert who(wire, TEAM) == [[mac_of(pair, TEAM)], []]


def test_open_vswitchs_bridge_stays_guarded_when_its_daemon_forgets_its_flows(pair, agent):
    """They are made anew, by frames that the daemon sends on, with several threads: not in their order."""
    program = _OVS / "usr/bin/ovs-appctl"
    libraries = f"LD_LIBRARY_PATH={_OVS / 'usr/lib/x86_64-linux-gnu'}"
    words = ("-t", f"{pair.folder / 'ovs.ctl'}-1", "revalidator/purge")
    pair.node.netns.run("env", libraries, str(program), *words)
    found = []
    with a_wire(pair.client, OVS.asked_on) as wire:
        until(lambda: found.append(who(wire, OVS)) or found[-1][0], what="the owner's answer is not overtaken")
    assert found[-1] == [[mac_of(pair, OVS)], []]
    assert not any(foreign for _, foreign in found)


@pytest.mark.parametrize("name", ["ovs-system", "nic0"])
def test_open_vswitchs_other_devices_are_refused(pair, agent, name):
    if name == "nic0":
        assert shown(pair, name)["master"] == "ovs-system"
    done = pair.arpguard("config", "check", str(agent.config))
    assert done.returncode == 0
    agent.configure(a_config(DEVICES).replace("br-ex]", f"br-ex, {name}]"))
    until(lambda: f"problem: interfaces: {name}" in agent.said(), what="the problem")
