"""`arpguard lab --kubernetes` records every answer, tampers with frames as asked, and cleans up when it is stopped."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from ipaddress import IPv4Address

import pytest

from arpguard.wire.arp import build_announcements, build_request
from arpguard_lab import runner
from arpguard_lab.asking import Stream
from arpguard_lab.capture import Capture
from arpguard_lab.cluster.bench import Watch
from arpguard_lab.cluster.meddling import ETHERTYPE, Meddler, Way
from arpguard_lab.cluster.topology import API_ADDRESS, API_PORT, KubeLab
from arpguard_lab.topology import Host
from support.lab.run import kubernetes_run
from support.netns.agents import arpguard
from support.netns.cable import a_place
from support.netns.waiting import HUNG_S, until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

ALL = [name for name, _ in runner.catalogue(kubernetes=True)]
SO_RCVBUFFORCE = 33
VIP = IPv4Address("198.51.100.50")


def test_a_lab_that_is_stopped_in_the_middle_leaves_nothing_behind(tmp_path_factory):
    folder = tmp_path_factory.mktemp("end")  # a short name: the path of a Unix socket is at most 107 bytes
    with kubernetes_run(folder, "--scenario", "etp-local") as run:
        until(lambda: len(run.others()) >= 4, 60, "an API server and three agents run")
        run.process.send_signal(signal.SIGTERM)
        run.process.communicate(timeout=HUNG_S)
        assert run.process.returncode == 128 + signal.SIGTERM
        until(lambda: not any(run.leftovers().values()), 10, "what ran ends by itself")


def test_list_names_every_scenario():
    lines = arpguard("lab", "--kubernetes", "--list").stdout.splitlines()
    for name, text in runner.catalogue(kubernetes=True):
        assert any(line.startswith(name) and text in line for line in lines)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--kubernetes", "--scenario", "flux"], f"one of {', '.join(ALL)}"),
        (["--rounds", "3"], "--rounds: 3: works only with --kubernetes"),
        (["--seed", "3"], "--seed: 3: works only with --kubernetes"),
        (["--traces", "there"], "--traces: there: works only with --kubernetes"),
        (["--kubernetes", "--rounds", "1000000"], "must be 1 to 100000"),
        (["--kubernetes", "--vouching"], "--vouching: works only with --rounds or --for"),
    ],
)
def test_what_makes_no_sense_exits_2(words, text):
    done = arpguard("lab", *words)
    assert done.returncode == 2
    assert text in done.stderr


# ---- the record --------------------------------------------------------------------------------------------------


@pytest.fixture
def lab() -> Iterator[KubeLab]:
    with a_place("lab") as (folder, pins), KubeLab(2, folder, pins) as made:
        until(
            lambda: all(reaches_api(made, host) and answers_on_lan(made, host) for host in made.nodes),
            what="its links forward",
        )
        yield made


@contextmanager
def watched(lab: KubeLab) -> Iterator[Watch]:
    class Bench:
        pass

    bench = Bench()
    bench.lab = lab
    with Watch(bench, Stream(lab.client.listen(), [VIP], 0.005), Capture(lab.switch)) as watch:
        yield watch


def heard(watch: Watch, count: int) -> None:
    watch.wait(lambda: watch.oracle.answers >= count, 10, f"{count} answers")


def test_every_answer_is_recorded_with_its_port_and_time(lab):
    lab.nodes[1].bind(VIP, "lo")
    before_ns = time.time_ns()
    with watched(lab) as watch:
        heard(watch, 20)
    assert {(said.mac, said.port, said.vip) for said in watch.said} == {(lab.nodes[1].mac, "port2", VIP)}
    assert len({said.asked_by for said in watch.said}) == len(watch.said)
    times = [said.time_ns for said in watch.said]
    assert before_ns < times[0] <= times[-1] < time.time_ns()
    assert times == sorted(times)
    assert (watch.stream.lost(VIP), watch.facts()["never_two_at_once"], watch.drops) == (0, True, 0)


def test_two_nodes_that_both_answer_are_found(lab):
    for host in lab.nodes:
        host.bind(VIP, "lo")
    with watched(lab) as watch:
        heard(watch, 20)
    kinds = {finding.kind for finding in watch.oracle.findings}
    assert kinds == {"doubled", "overlap"}
    assert watch.facts()["never_two_at_once"] is False


def test_two_agents_that_both_hold_a_vip_are_found(lab):
    """A sabotaged pair: each has a file that names itself as the owner."""
    agents = []
    for host in lab.nodes:
        agent = lab.agent(host)
        agent.configure(
            f"mode: enforce\ninterfaces: [eth0]\nvips: [{{address: {VIP}, owner: {{node: {host.name}}}}}]\n"
        )
        agent.start()
        agents.append(agent)
    for agent in agents:
        agent.wait_for(timeout_s=40)
    with watched(lab) as watch:
        heard(watch, 20)
    assert "doubled" in {finding.kind for finding in watch.oracle.findings}


@pytest.mark.parametrize("form", [0, 1], ids=["request", "reply"])
def test_an_announcement_of_another_node_is_found(lab, form):
    """It is sent until answers come at once before and after it, as they do unless this machine is late."""
    first, second = lab.nodes
    first.bind(VIP, "lo")
    with closing(second.listen()) as voice, watched(lab) as watch:
        heard(watch, 5)
        say = partial(voice.send, build_announcements(second.mac, VIP)[form])
        watch.wait(lambda: say() or len(watch.oracle.findings) >= 2, 10, "it is found, and so is the next answer")
    assert {finding.kind for finding in watch.oracle.findings} == {"overlap"}


def test_questions_and_what_the_client_says_are_not_recorded(lab):
    capture = Capture(lab.switch)
    capture.start()
    with closing(lab.client.listen()) as asker:
        asker.send(build_request(asker.mac, IPv4Address("10.0.0.1"), VIP))
        asker.send(build_announcements(asker.mac, VIP)[0])
    found = []
    until(lambda: found.extend(capture.take()) or found, 5)
    capture.stop()
    assert [(said.mac, said.port, said.is_announcement) for said in found] == [(lab.client.mac, "port100", True)]


# ---- frames of vouching -------------------------------------------------------------------------------------------


@pytest.fixture
def meddler(lab) -> Iterator[Meddler]:
    made = Meddler(lab.switch, 1)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def raw(host: Host) -> socket.socket:
    """Hears frames of vouching, and sends what it is given."""

    def opened() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
        made.bind(("eth0", ETHERTYPE))
        return made

    return host.netns.call(opened)


def through_the_switch(lab: KubeLab, meddler: Meddler, count: int) -> list[int]:
    """The numbers of frames that the second node hears until it hears one of another kind, which follows them."""
    first, second = lab.nodes
    head = second.mac.octets + first.mac.octets + ETHERTYPE.to_bytes(2, "big")
    before = meddler.heard
    with closing(raw(first)) as mouth, closing(raw(second)) as ear:
        ear.settimeout(10)
        for number in range(count):
            mouth.send(head + number.to_bytes(46, "big"))
        until(lambda: meddler.heard == before + count and not meddler.waiting, 30, "all are on their way")
        lab.switch.call(lambda: inject(second.port, head + b"\xff" * 46))
        heard = []
        try:
            while (frame := ear.recv(100))[14:] != b"\xff" * 46:
                heard.append(int.from_bytes(frame[14:], "big"))
        except TimeoutError:
            links = [lab.switch.run("ip", "-s", "link"), second.netns.run("ip", "-s", "link")]
            pytest.fail("\n".join([f"the last frame is missing after {len(heard)} others", *links]))
        return heard


def inject(port: str, frame: bytes) -> None:
    """Sends a frame out of a port of the switch."""
    with closing(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)) as opened:
        opened.bind((port, 0))
        opened.send(frame)


def test_without_meddling_every_frame_of_vouching_comes_once_and_in_its_order(lab, meddler):
    assert through_the_switch(lab, meddler, 100) == list(range(100))
    assert not meddler.sent


@pytest.mark.parametrize("way", Way, ids=lambda way: way.text)
def test_frames_of_vouching_are_meddled_with(lab, meddler, way):
    meddler.begin(lab.nodes[0], way)
    heard = through_the_switch(lab, meddler, 300)
    times = [heard.count(number) for number in range(300)]
    expected = {
        Way.SOME_LOST: max(times) == 1 and 30 < times.count(0) < 110,
        Way.MANY_LOST: max(times) == 1 and 120 < times.count(0) < 240,
        Way.LOST: heard == [],
        Way.LATE: set(times) == {1} and heard != sorted(heard),
        Way.DOUBLED: set(times) == {2, 3, 4},
        Way.REPLAYED: min(times) == 1 and sum(times) == 600,
    }
    assert expected[way], times
    assert all(answers_on_lan(lab, lab.nodes[0]) for _ in range(5)), "other frames are left alone"

    meddler.end(lab.nodes[0])
    assert through_the_switch(lab, meddler, 20) == list(range(20))


# ---- the second network ------------------------------------------------------------------------------------------


def test_a_node_that_is_cut_off_from_the_api_still_answers_on_the_lan(lab):
    host = lab.nodes[0]
    lab.cut_off(host)
    assert (reaches_api(lab, host), answers_on_lan(lab, host)) == (False, True)
    until(lambda: reaches_api(lab, lab.nodes[1]), 10)
    lab.reconnect(host)
    until(lambda: reaches_api(lab, host), 10)


def test_a_node_that_is_pulled_is_on_neither_network(lab):
    host = lab.nodes[0]
    lab.pull(host)
    assert (reaches_api(lab, host), answers_on_lan(lab, host)) == (False, False)
    lab.plug_in(host)
    until(lambda: reaches_api(lab, host) and answers_on_lan(lab, host), 10)


def reaches_api(lab: KubeLab, host: Host) -> bool:
    with closing(lab.api.call(lambda: socket.create_server((API_ADDRESS, API_PORT)))):
        try:
            host.netns.call(lambda: socket.create_connection((API_ADDRESS, API_PORT), 0.5)).close()
        except OSError:
            return False
        return True


def answers_on_lan(lab: KubeLab, host: Host) -> bool:
    with closing(lab.client.listen()) as asker:
        return bool(asker.ask(host.address, lab.client.address, count=1, wait_s=0.2))
