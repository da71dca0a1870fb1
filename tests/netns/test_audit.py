"""The audit on the wire: real agents, real kernels, and a rogue that answers those who ask and announces nothing."""

import re
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address

import pytest

from arpguard.addresses import Address, MacAddress
from arpguard_lab import questions
from arpguard_lab.cluster.bench import KubeBench, vip, vip6
from arpguard_lab.cluster.scene import a_bench
from arpguard_lab.cluster.topology import KubeLab
from arpguard_lab.topology import AgentProcess, Ethernet, Host
from support.netns.agents import arpguard
from support.netns.cable import Pair, a_pair, a_place, address, address6, speak_ipv6
from support.netns.rogue import a_rogue
from support.netns.waiting import HUNG_S, until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

PERIOD_S = 15  # the shortest that may be configured
AUDIT = f"audit: {{every: {PERIOD_S}s}}"
SLOW_S = 3.0  # how late a starved agent may be
VIPS: list[Address] = [*(vip(50 + number) for number in range(4)), *(vip6(0x50 + number) for number in range(2))]
SILENT = vip(70)  # no host has it
ROGUE, SECOND = MacAddress.parse("02:00:00:00:00:99"), MacAddress.parse("00:00:5e:00:01:07")
ASTRAY = ip_address("203.0.113.9")
ALONE = [address(50), address6(0x50)]


# ---- three nodes of a cluster ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench() -> Iterator[KubeBench]:
    with (
        a_place("audit") as (folder, pin_root),
        KubeLab(3, folder, pin_root, ethernet=Ethernet(ipv6=True)) as lab,
        a_bench(lab, "audit", AUDIT) as made,
    ):
        made.publish("web", VIPS)
        made.settle(VIPS[:4])
        yield made


def on(bench: KubeBench, host: Host, *words: str) -> "tuple[int, str]":
    done = arpguard(*words, "--address", bench.agent(host).api, prefix=host.netns.prefix())
    return done.returncode, done.stdout


def audits(bench: KubeBench) -> list[dict]:
    """What all nodes found."""
    return [audit for host in bench.nodes for audit in questions.audits(bench.agent(host))]


def findings(bench: KubeBench) -> dict[str, str]:
    return {audit["vip"]: audit["finding"] for audit in audits(bench)}


def all_are(bench: KubeBench, finding: str, vips: list[Address]) -> bool:
    found = findings(bench)
    return all(found.get(str(each)) == f"FINDING_{finding}" for each in vips)


def test_every_vip_is_asked_for_by_one_node_that_does_not_own_it_and_only_its_owner_answers(bench):
    until(lambda: all_are(bench, "OWNER", VIPS), PERIOD_S + SLOW_S)
    found = audits(bench)

    assert sorted(audit["vip"] for audit in found) == sorted(map(str, VIPS))
    for audit in found:
        (answer,) = audit["answers"]
        assert bench.host_of(MacAddress.parse(answer["mac"])).name == audit["owner"]
        assert not audit.get("own")
    for host in bench.nodes:
        assert on(bench, host, "audit")[0] == 0


def test_questions_are_nobodys_conflict_and_enter_no_neighbour_table(bench):
    until(lambda: all_are(bench, "OWNER", VIPS), PERIOD_S + SLOW_S)

    for host in bench.nodes:
        assert on(bench, host, "conflicts")[1].startswith("no claim by another host has been heard")
        assert on(bench, host, "status")[0] == 0
        tables = (host.netns.run("ip", family, "neigh", "show", "dev", "eth0") for family in ("-4", "-6"))
        assert not [line for text in tables for line in text.splitlines() if "FAILED" not in line]


def test_silent_rogues_are_found_on_every_vip_within_the_period_and_each_is_named(bench):
    with a_rogue(bench.lab.client.netns, set(VIPS), ROGUE, SECOND):
        took_s = until(lambda: all_are(bench, "SEVERAL", VIPS), PERIOD_S + SLOW_S)
        print(f"found on all of {len(VIPS)} VIPs within {took_s:.1f} s, of {PERIOD_S} s")
        for audit in audits(bench):
            strangers = {answer["mac"] for answer in audit["answers"] if not answer.get("owner")}
            assert strangers == {str(ROGUE), str(SECOND)}

        asking = [host for host in bench.nodes if on(bench, host, "audit")[0] == 1]
        assert asking
        for host in asking:
            problems = bench.status(host)["problems"]
            assert [
                text
                for text in problems
                if text.startswith(f"audit: {ROGUE} (a host outside the cluster) answers for ")
            ]
            assert [text for text in problems if text.startswith(f"audit: {SECOND} (VRRP router 7) answers for ")]
            listed = {claim["mac"] for claim in questions.conflicts(bench.agent(host))}
            assert listed == {str(ROGUE), str(SECOND)}
            assert {value for _, value in metric(host, "vip_answers")} == {"3.0"}
        notes = [event["note"] for event in bench.events("Service", "web") if event["reason"] == "VIPAnsweredByOthers"]
        assert [note for note in notes if str(ROGUE) in note and str(SECOND) in note]

    until(lambda: all_are(bench, "OWNER", VIPS), PERIOD_S + SLOW_S, "the rogue has gone")


def metric(host: Host, name: str) -> list[tuple[str, str]]:
    """The rows of a metric of a node: labels and value."""
    text = host.netns.call(
        lambda: urllib.request.urlopen("http://127.0.0.1:9469/metrics", timeout=HUNG_S).read().decode()
    )
    return re.findall(rf"^arpguard_{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)


def names_the_rogue(code: int, text: str) -> bool:
    """Whether an audit says that the rogue answers, too. It may not hear a rogue that stands still for a second."""
    return code == 1 and f"{ROGUE}  outside" in text


def test_vip_is_asked_for_at_once_from_any_node_for_those_who_want_to_know(bench):
    for host in bench.nodes:
        code, text = on(bench, host, "audit", str(VIPS[0]))
        assert (code, "only the owner answers" in text) == (0, True)
    with a_rogue(bench.lab.client.netns, {VIPS[0]}, ROGUE):
        for host in bench.nodes:
            ask = partial(on, bench, host, "audit", str(VIPS[0]))
            until(lambda ask=ask: names_the_rogue(*ask()))
    until(lambda: all_are(bench, "OWNER", VIPS), PERIOD_S + SLOW_S, "the rogue has gone")


def test_vip_that_nobody_answers_for_is_a_problem_that_names_its_owner(bench):
    owner = bench.nodes[0]
    named = f"vips: [{{address: {SILENT}, owner: {{node: {bench.agent(owner).node}, delegated: true}}}}]"
    bench.configure(bench.config(extra=named))
    until(lambda: findings(bench).get(str(SILENT)) == "FINDING_NONE", 2 * PERIOD_S)
    problem = f"audit: no host answers for {SILENT}, although {bench.agent(owner).node} should; see `arpguard explain`"

    def reported() -> list[Host]:
        """The nodes whose status says so; it is written anew a moment after an audit."""
        return [host for host in bench.nodes if problem in bench.status(host)["problems"]]

    until(reported, PERIOD_S + SLOW_S)
    owner.bind(SILENT, "lo")
    until(lambda: findings(bench).get(str(SILENT)) == "FINDING_OWNER", PERIOD_S + SLOW_S, "its kernel answers")
    until(lambda: not reported(), PERIOD_S + SLOW_S)
    owner.unbind(SILENT, "lo")


def test_silence_is_shown_and_is_not_a_problem_where_the_owner_only_observes(bench):
    node = bench.agent(bench.nodes[0]).node
    bench.configure(bench.config(extra=f"vips: [{{address: {SILENT}, owner: {{node: {node}}}, mode: observe}}]"))
    other = bench.nodes[1]
    until(lambda: asked_of(bench, other) == (0, "no host but the owner answers"), PERIOD_S + SLOW_S)
    until(lambda: findings(bench).get(str(SILENT)) == "FINDING_NONE", 2 * PERIOD_S)

    for host in bench.nodes:
        assert on(bench, host, "audit")[0] == 0
        assert not [text for text in bench.status(host).get("problems", ()) if str(SILENT) in text]
        assert not [labels for labels, _ in metric(host, "vip_answers") if str(SILENT) in labels], "the alert fires"


def asked_of(bench: KubeBench, host: Host) -> tuple[int, str]:
    """What a node says last that is to ask for the VIP now."""
    code, text = on(bench, host, "audit", str(SILENT))
    return code, text.rstrip().rpartition(": ")[2]


# ---- one node by itself ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["tc", "xdp"])
def alone(request) -> Iterator[tuple[Pair, AgentProcess]]:
    """A standalone agent that owns the VIPs."""
    with a_pair(f"audit-{request.param}") as pair:
        speak_ipv6(pair.node, pair.client)
        vips = ", ".join(f"{{address: '{each}', owner: {{node: node-1}}}}" for each in (*ALONE, ASTRAY))
        config = f"mode: enforce\ndatapath: {request.param}\ninterfaces: [eth0]\n{AUDIT}\nvips: [{vips}]\n"
        yield pair, pair.agent(config)


def test_owner_that_is_alone_asks_who_else_answers(alone):
    pair, agent = alone

    def listed() -> dict[str, str]:
        found = {audit["vip"]: audit["finding"] for audit in questions.audits(agent)}
        return {vip: finding for vip, finding in found.items() if vip != str(ASTRAY)}

    until(lambda: listed() == dict.fromkeys(map(str, ALONE), "FINDING_OWNER"), PERIOD_S + SLOW_S)
    with a_rogue(pair.client.netns, set(ALONE), ROGUE):
        began = time.monotonic()
        until(lambda: listed() == dict.fromkeys(map(str, ALONE), "FINDING_SEVERAL"), PERIOD_S + SLOW_S)
        print(f"found after {time.monotonic() - began:.1f} s")

        def is_told() -> bool:
            done = pair.arpguard("audit", str(ALONE[0]), "--address", agent.api)
            return names_the_rogue(done.returncode, done.stdout) and "this node" in done.stdout

        until(is_told)


def test_vip_in_no_subnet_is_a_problem_until_a_route_says_that_it_is_meant(alone):
    pair, agent = alone

    def is_told() -> bool:
        problems = questions.status(agent)["problems"]
        return any(problem.startswith(f"audit: {ASTRAY}: in no guarded link's subnet") for problem in problems)

    until(is_told, PERIOD_S + SLOW_S)
    done = pair.arpguard("audit", str(ASTRAY), "--address", agent.api)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot ask who answers: no link that is up has an address in the VIP's subnet" in done.stderr
    pair.node.netns.run("ip", "route", "add", "203.0.113.0/24", "dev", "eth0")
    until(lambda: not is_told(), PERIOD_S + SLOW_S)
    assert pair.arpguard("audit", str(ASTRAY), "--address", agent.api).returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("audit", "192.0.2.200"), 1, "ADDRESS: 192.0.2.200: not guarded on any link of node-1"),
        (("audit", "nonsense"), 2, "ADDRESS: nonsense: "),
    ],
    ids=str,
)
def test_what_cannot_be_asked_for_is_refused(alone, words, code, said):
    pair, agent = alone
    done = pair.arpguard(*words, "--address", agent.api)

    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
