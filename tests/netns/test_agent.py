"""The running agent: what it follows live, what it repairs, and what outlives it."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from arpguard import __version__
from arpguard.addresses import MacAddress
from arpguard.dataplane import loader, syscall
from arpguard.dataplane.build import read_build
from arpguard.dataplane.maps import ControlValue, EntryTable
from arpguard.model import EntryKey
from arpguard.verdict import Hook, Kind, Mode, Reason
from arpguard_lab.topology import AgentProcess
from support.frames.builders import a_control, an_entry
from support.netns.agents import hung, pid_of, said
from support.netns.cable import Pair, a_pair, address
from support.netns.foreign import an_xdp_program, attached
from support.netns.guard import a_guard, attachments
from support.netns.waiting import ANSWER_S, REPAIR_S, until
from support.netns.wire import Wire, a_wire, stream
from support.programs.compiling import another_build

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

M = MacAddress.parse("02:00:00:00:00:01")
NODE_ADDRESS = address(1)
OWNED, FOREIGN, OTHER, MARK = address(50), address(51), address(52), address(90)
VIPS = {OWNED: "node-1", MARK: "node-1", FOREIGN: "node-2"}


def a_config(vips: dict[IPv4Address, str] | None = None, **settings: str) -> str:
    """The configuration that every test starts from, with changes; `vips` are addresses and their owners."""
    fields = {"mode": "enforce", "interfaces": "[eth0]", **settings}
    lines = [f"{name}: {value}" for name, value in fields.items()]
    vips = VIPS if vips is None else vips
    lines += ["vips:", *(f"  - {{address: {vip}, owner: {{node: {owner}}}}}" for vip, owner in vips.items())]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("agent") as made:
        made.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in (OWNED, FOREIGN, OTHER)])
        yield made


@pytest.fixture(scope="module")
def the_agent(pair) -> AgentProcess:
    return pair.agent(a_config())


@pytest.fixture
def agent(pair, the_agent) -> AgentProcess:
    """The one agent of this file, running on `a_config()`, whatever the tests before did to it."""
    the_agent.configure(a_config())
    if the_agent._process is None or the_agent._process.poll() is not None:
        the_agent.start()
        the_agent.wait_for()
    with a_wire(pair.client) as wire:
        until(lambda: wire.answers(MARK) and answers(wire) == {OWNED: [M], FOREIGN: []}, 3, "the agent is up to date")
    return the_agent


@pytest.fixture
def wire(pair) -> Iterator[Wire]:
    with a_wire(pair.client) as opened:
        yield opened


def answers(wire: Wire, *vips: IPv4Address, mark: IPv4Address = MARK) -> dict[IPv4Address, list[MacAddress]]:
    """Who answers for each VIP."""
    return {vip: wire.who(vip, mark) for vip in vips or (OWNED, FOREIGN)}


def follows(agent: AgentProcess, config: str, condition: Callable[[], object]) -> None:
    """A changed configuration has its effect within a second."""
    agent.configure(config)
    until(condition, REPAIR_S, "the change on the wire")


def test_the_log_begins_before_anything_is_loaded(agent):
    first = agent.log.read_text(encoding="utf-8").splitlines()[0]

    assert f"starting: version={__version__} node={agent.host.name} pin_dir={agent.pin_dir}" in first


# ---- live reload -------------------------------------------------------------------------------------------------


def test_mode_is_followed_within_a_second(agent, wire):
    """Observe: the kernel answers for everything that is bound."""
    observing = {OWNED: [M], FOREIGN: [M]}
    follows(agent, a_config(mode="observe"), lambda: answers(wire, mark=NODE_ADDRESS) == observing)
    follows(agent, a_config(), lambda: answers(wire, mark=NODE_ADDRESS) == {OWNED: [M], FOREIGN: []})


def test_vips_are_followed_within_a_second(agent, wire):
    """A new one, a changed owner, and one that is guarded no more."""
    elsewhere = address(53)  # bound nowhere
    follows(agent, a_config({**VIPS, elsewhere: "node-1"}), lambda: answers(wire, elsewhere) == {elsewhere: [M]})
    follows(agent, a_config({**VIPS, elsewhere: "node-2"}), lambda: answers(wire, elsewhere) == {elsewhere: []})
    assert answers(wire, OTHER) == {OTHER: [M]}
    follows(agent, a_config({**VIPS, OTHER: "node-2"}), lambda: answers(wire, OTHER) == {OTHER: []})
    follows(agent, a_config(), lambda: answers(wire, OTHER) == {OTHER: [M]})


def second_cable(pair: Pair, name: str = "eth1") -> None:
    pair.node.netns.batch(
        [
            f"link add {name} type veth peer name {name} netns {pair.client.netns.name}",
            f"link set {name} up",
            f"addr add 203.0.113.1/24 dev {name}",
        ]
    )
    pair.client.netns.batch([f"link set {name} up"])


@pytest.fixture
def eth1(pair) -> Iterator[Wire]:
    second_cable(pair)
    with a_wire(pair.client, "eth1") as opened:
        yield opened
    pair.node.netns.batch(["link del eth1"])


def test_interfaces_are_followed_within_a_second(agent, wire, eth1):
    far = IPv4Address("203.0.113.1")
    until(lambda: eth1.answers(far))
    assert len(eth1.who(FOREIGN, far)) == 1, "not guarded yet"
    follows(agent, a_config(interfaces="[eth0, eth1]"), lambda: eth1.who(FOREIGN, far) == [])
    assert eth1.who(OWNED, far) == [], "at home on eth0"
    follows(agent, a_config(), lambda: len(eth1.who(FOREIGN, far)) == 1)
    assert answers(wire) == {OWNED: [M], FOREIGN: []}


def reloads(agent: AgentProcess, *configs: str) -> Callable[[], None]:
    """Takes over one configuration after the other, each with the pass that follows."""

    def disturb() -> None:
        for config in configs:
            before = said(agent, "configuration applied")
            agent.configure(config)
            until(lambda before=before: said(agent, "configuration applied") > before, 3)

    return disturb


def assert_seamless(pair: Pair, disturb: Callable[[], object]) -> None:
    """While `disturb` runs each request for the owned VIP gets one answer, and none for the foreign one gets any."""
    owned = stream(pair.client, OWNED, disturb)
    assert (owned.lost, owned.doubled, owned.macs) == (0, 0, {M}), f"of {owned.sent}"


def test_no_request_is_lost_or_doubled_by_reloads(pair, agent):
    """Another VIP comes and goes, the range of addresses grows, the datapath is named, an interface is added."""
    second_cable(pair)
    try:
        assert_seamless(
            pair,
            reloads(
                agent,
                a_config({**VIPS, OTHER: "node-1"}),
                a_config({**VIPS, IPv4Address("10.255.0.1"): "node-2"}, datapath="tc"),
                a_config(interfaces='["eth*"]'),
                a_config(mode="enforce", datapath="auto"),
            ),
        )
    finally:
        pair.node.netns.batch(["link del eth1"])


def test_a_foreign_vip_is_not_answered_during_reloads(pair, agent):
    foreign = stream(
        pair.client,
        FOREIGN,
        reloads(agent, a_config({**VIPS, OTHER: "node-1"}), a_config({**VIPS, OTHER: "node-2"}), a_config()),
    )
    assert not foreign.replies


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mode: strict\n", "mode: must be observe or enforce, not strict"),
        ("mode: [\n", "line"),
        ("mode: enforce\nvips: [{address: 10.0.0.1}]\n", r"vips\[0\].owner: missing"),
    ],
    ids=["value", "no YAML", "missing key"],
)
def test_a_wrong_edit_changes_nothing_and_is_reported(agent, wire, text, problem):
    report = f"configuration: change rejected; keeping the previous configuration: .*{problem}"
    before = said(agent, report)
    agent.configure(text)
    until(lambda: said(agent, report) > before, REPAIR_S)
    assert answers(wire) == {OWNED: [M], FOREIGN: []}
    follows(agent, a_config({**VIPS, OTHER: "node-2"}), lambda: answers(wire, OTHER) == {OTHER: []})
    follows(agent, a_config(), lambda: answers(wire, OTHER) == {OTHER: [M]})


@pytest.mark.parametrize(
    ("damage", "report"),
    [
        (lambda path: path.write_text(""), r"problem: configuration: change rejected; .* empty"),
        (lambda path: path.unlink(), "problem: configuration: .* is gone; keeping the previous configuration"),
    ],
    ids=["emptied", "removed"],
)
def test_a_lost_configuration_changes_nothing_and_is_reported(agent, wire, damage, report):
    """Nothing wakes an agent when a file is gone, as while it is replaced: the next whole pass finds it."""
    before = said(agent, report)
    damage(agent.config)
    until(lambda: said(agent, report) > before, ANSWER_S)
    assert answers(wire) == {OWNED: [M], FOREIGN: []}
    solved = said(agent, "solved: configuration")
    agent.configure(a_config())
    until(lambda: said(agent, "solved: configuration") > solved, REPAIR_S)


def test_a_configuration_that_is_another_users_is_read_again(agent, wire):
    """Root may read it at the start, and has to later."""
    agent.configure(a_config({**VIPS, OTHER: "node-2"}))
    until(lambda: answers(wire, OTHER) == {OTHER: []}, REPAIR_S)
    os.chown(agent.config, 1000, 1000)
    agent.config.chmod(0o600)
    agent.config.write_text(f"{agent.own_settings}{a_config({**VIPS, OTHER: 'node-1'})}", encoding="utf-8")
    until(lambda: answers(wire, OTHER) == {OTHER: [M]}, REPAIR_S)


def test_a_configmap_mount_is_followed(pair, wire):
    """kubelet puts a new folder beside the old one and renames a symbolic link over the one that leads there."""
    mount = pair.folder / "mount"
    with a_pair("configmap") as own:
        agent = own.agent()

        def publish(name: str, config: str) -> None:
            (mount / name).mkdir(parents=True)
            (mount / name / "config.yaml").write_text(f"{agent.own_settings}{config}")
            (mount / "..tmp").symlink_to(name)
            (mount / "..tmp").rename(mount / "..data")

        publish("..2026_1", a_config())
        agent.config = mount / "config.yaml"
        agent.config.symlink_to("..data/config.yaml")
        agent.start()
        agent.wait_for()
        with a_wire(own.client) as ear:
            assert answers(ear, OTHER) == {OTHER: []}
            publish("..2026_2", a_config({**VIPS, OTHER: "node-1"}))
            shutil.rmtree(mount / "..2026_1")
            until(lambda: answers(ear, OTHER) == {OTHER: [M]}, REPAIR_S)


# ---- links -------------------------------------------------------------------------------------------------------


def test_links_that_appear_and_vanish_are_followed(pair, agent, wire):
    """A glob takes in what matches it, whenever it comes."""
    far = IPv4Address("203.0.113.1")
    before = said(agent, "configuration applied")
    agent.configure(a_config(interfaces='["eth*"]'))
    until(lambda: said(agent, "configuration applied") > before)
    second_cable(pair)
    index = pair.ifindex("eth1")
    with a_wire(pair.client, "eth1") as other:
        until(lambda: other.answers(far) and other.who(FOREIGN, far) == [], REPAIR_S)
    pair.node.netns.batch(["link del eth1"])
    until(lambda: not list((agent.pin_dir / "links").glob(f"{index}-*")), REPAIR_S, "its links are unpinned")
    assert answers(wire) == {OWNED: [M], FOREIGN: []}


def test_answers_carry_a_new_mac_within_a_second(pair, agent, wire):
    new = MacAddress.parse("02:00:00:00:00:b7")
    pair.node.netns.batch([f"link set eth0 address {new}"])
    until(lambda: answers(wire) == {OWNED: [new], FOREIGN: []}, REPAIR_S)
    pair.node.netns.batch([f"link set eth0 address {M}"])
    until(lambda: answers(wire) == {OWNED: [M], FOREIGN: []}, REPAIR_S)


def test_a_link_that_went_down_and_came_up_is_guarded_at_once(pair, agent, wire):
    pair.node.netns.batch(["link set eth0 down"])
    assert not wire.answers(MARK)
    pair.node.netns.batch(["link set eth0 up", "route add default via 198.51.100.254"])
    until(lambda: wire.answers(MARK), 3, "the link carries frames again")
    assert answers(wire) == {OWNED: [M], FOREIGN: []}


# ---- drift -------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(agent) -> EntryTable:
    maps = loader.open_maps(agent.pin_dir)
    return EntryTable(maps["entries"], maps["counters"])


def test_a_deleted_entry_is_restored_within_a_second(pair, agent, wire, table):
    key = EntryKey(pair.ifindex(), FOREIGN)
    with hung(agent):
        table.delete([key])
        assert answers(wire, FOREIGN) == {FOREIGN: [M]}
    until(lambda: answers(wire, FOREIGN) == {FOREIGN: []}, REPAIR_S)
    agent.wait_for(f"drift: another program changed entries; restored them: {FOREIGN} on interface")


def test_a_changed_entry_is_restored_within_a_second(pair, agent, wire, table):
    key = EntryKey(pair.ifindex(), OWNED)
    with hung(agent):
        table.write({key: replace(table.read().entries[key], kind=Kind.FOREIGN)})
        assert answers(wire, OWNED) == {OWNED: []}
    until(lambda: answers(wire, OWNED) == {OWNED: [M]}, REPAIR_S)
    agent.wait_for(f"drift: another program changed entries; restored them: {OWNED} on interface")


def test_an_entry_that_nobody_wants_is_removed_within_a_second(pair, agent, wire, table):
    with hung(agent):
        table.write({EntryKey(pair.ifindex(), OTHER): an_entry(Kind.FOREIGN)})
        assert answers(wire, OTHER) == {OTHER: []}
    until(lambda: answers(wire, OTHER) == {OTHER: [M]}, REPAIR_S)
    agent.wait_for(f"drift: another program changed entries; restored them: {OTHER} on interface")


def test_the_control_value_is_restored_within_a_second(agent, wire):
    control = ControlValue(loader.open_maps(agent.pin_dir)["control"])
    before = said(agent, "drift: another program changed the node's mode, epoch or fence")
    with hung(agent):
        control.write(replace(control.read(), mode=Mode.OBSERVE))
        assert answers(wire, FOREIGN, mark=NODE_ADDRESS) == {FOREIGN: [M]}
    until(lambda: answers(wire, FOREIGN, mark=NODE_ADDRESS) == {FOREIGN: []}, REPAIR_S)
    until(
        lambda: said(agent, "drift: another program changed the node's mode, epoch or fence") == before + 1,
        what="the log says so",
    )


# ---- stop, start, upgrade ----------------------------------------------------------------------------------------


def test_the_guard_stays_when_the_agent_is_stopped(agent, wire):
    agent.kill(signal.SIGTERM)
    assert said(agent, "stopped: the guard stays in place")
    assert answers(wire) == {OWNED: [M], FOREIGN: []}


def test_a_warm_start_reopens_the_programs_and_keeps_the_counters(pair, agent, wire, table):
    key = EntryKey(pair.ifindex(), OWNED)
    wire.who(OWNED, MARK)
    before = table.tally(key).enforced[Reason.ANSWERED]
    agent.kill(signal.SIGKILL)
    agent.start()
    agent.wait_for()
    assert said(agent, "ready: .* programs=reopened ") == 1
    wire.who(OWNED, MARK)
    assert table.tally(key).enforced[Reason.ANSWERED] == before + 1


def test_an_agent_that_finds_a_map_missing_makes_all_anew(agent, wire):
    """The programs of the last agent guard with the old maps until the new ones have everything."""
    agent.kill(signal.SIGKILL)
    (folder,) = agent.pin_dir.glob("maps-*")
    entries = syscall.map_info(syscall.obj_get(str(folder / "entries"))).id
    (folder / "grants").unlink()
    assert answers(wire) == {OWNED: [M], FOREIGN: []}

    agent.start()
    agent.wait_for()
    assert said(agent, "ready: .* programs=loaded ") == 1
    assert answers(wire) == {OWNED: [M], FOREIGN: []}
    assert list(agent.pin_dir.glob("maps-*")) == [folder]
    assert syscall.map_info(syscall.obj_get(str(folder / "entries"))).id != entries


def test_a_cold_start_loads_the_programs_without_a_compiler(pair):
    with a_pair("cold") as own:
        agent = own.agent(a_config())
        assert said(agent, "ready: .* programs=loaded ") == 1
        maps = Path(f"/proc/{pid_of(agent)}/maps").read_text()
    assert "libbpf" in maps
    assert [name for name in ("LLVM", "clang", "libbcc.so") if name in maps] == []


def test_an_upgrade_replaces_the_programs_without_losing_a_request(pair):
    """Through the links, between two requests, ten times there and back."""
    with a_pair("upgrade") as own:
        guard = a_guard(own, Hook.TC_EGRESS, Hook.TC_INGRESS)
        guard.set({OWNED: an_entry(unfenced=True), FOREIGN: an_entry(Kind.FOREIGN)}, a_control())
        build = another_build(read_build())
        assert build.digest() != read_build().digest()
        newer = loader.load(guard.pin_dir, build)
        assert newer.maps.keys() == {
            "entries",
            "ranges",
            "counters",
            "totals",
            "control",
            "vouching",
            "grants",
            "events",
        }
        links = sorted((guard.pin_dir / "links").iterdir())
        ids = [syscall.link_info(syscall.obj_get(str(path))).id for path in links]
        running = set()

        def upgrade() -> None:
            for _ in range(10):
                for programs in (newer.programs, guard.programs):
                    guard.attach(Hook.TC_EGRESS, Hook.TC_INGRESS, programs=programs)
                    running.add(syscall.link_info(syscall.obj_get(str(links[1]))).program_id)

        seen = stream(own.client, OWNED, upgrade)
        assert (seen.lost, seen.doubled) == (0, 0), f"of {seen.sent}"
        assert len(running) == 2, "two builds took turns"
        assert ids == [syscall.link_info(syscall.obj_get(str(path))).id for path in links], "in the same links"


def test_an_agent_replaces_the_programs_of_another_build(pair):
    with a_pair("takeover") as own:
        own.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in (OWNED, FOREIGN)])
        agent = own.agent(a_config())
        agent.kill(signal.SIGKILL)
        changed = another_build(read_build())
        older = loader.load(agent.pin_dir, changed)
        link = agent.pin_dir / "links" / f"{own.ifindex()}-tc_ingress"
        syscall.link_update(syscall.obj_get(str(link)), older.programs["ingress_tc"])

        def upgrade() -> None:
            agent.start()
            agent.wait_for()

        assert_seamless(own, upgrade)
        running = syscall.link_info(syscall.obj_get(str(link))).program_id
        assert running != syscall.program_info(older.programs["ingress_tc"]).id
        assert not (agent.pin_dir / f"programs-{changed.digest()}").exists()


# ---- cleanup -----------------------------------------------------------------------------------------------------


def test_cleanup_refuses_while_the_agent_runs_and_then_removes_everything(pair, agent, wire):
    """The last test of this file's agent but for those that start it again."""
    done = pair.arpguard("cleanup", "--pin-dir", str(agent.pin_dir))
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "an agent is running here" in done.stderr
    assert answers(wire) == {OWNED: [M], FOREIGN: []}
    agent.kill(signal.SIGTERM)
    done = pair.arpguard("cleanup", "--config", str(agent.config))
    assert (done.returncode, done.stderr) == (0, "")
    assert not agent.pin_dir.exists()
    assert answers(wire, mark=NODE_ADDRESS) == {OWNED: [M], FOREIGN: [M]}
    again = pair.arpguard("cleanup", "--config", str(agent.config))
    assert (again.returncode, again.stdout) == (0, f"nothing is pinned under {agent.pin_dir}\n")


# ---- datapath: xdp -----------------------------------------------------------------------------------------------


def hooks(pair: Pair, agent: AgentProcess) -> set[str]:
    """Where the agent's programs are."""
    return {hook.name.lower() for ifindex, hook in attachments(pair.node, agent.pin_dir) if ifindex == pair.ifindex()}


def test_xdp_is_not_used_where_the_device_hides_vlan_tags_from_it():
    """D5: with RX VLAN offload XDP would answer in the wrong VLAN. veth offloads by default."""
    with a_pair("xdp-offload") as own:
        agent = own.agent(a_config(datapath="xdp"))
        assert said(agent, "problem: eth0: RX VLAN offload hides VLAN tags from XDP; using tc")
        assert hooks(own, agent) == {"tc_egress", "tc_ingress"}


def test_datapaths_are_switched_live_and_each_answers_once():
    """Native XDP on a veth answers only if its peer has a native XDP program, too."""
    with a_pair("xdp") as own:
        own.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in (OWNED, FOREIGN)])
        own.node.netns.run("ethtool", "-K", "eth0", "rxvlan", "off")
        peer = an_xdp_program()
        with (
            attached(own.client, peer, syscall.ATTACH_XDP, syscall.XDP_FLAGS_DRV_MODE),
            a_wire(own.client) as wire,
        ):
            agent = own.agent(a_config(datapath="xdp"))
            for datapath, expected in (
                ("xdp", {"tc_egress", "xdp"}),
                ("tc", {"tc_egress", "tc_ingress"}),
                ("xdp", {"tc_egress", "xdp"}),
            ):
                agent.configure(a_config(datapath=datapath))
                until(lambda expected=expected: hooks(own, agent) == expected, REPAIR_S)
                assert answers(wire, mark=NODE_ADDRESS) == {OWNED: [M], FOREIGN: []}
