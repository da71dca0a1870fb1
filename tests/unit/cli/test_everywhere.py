"""`--all-nodes`: whom it asks, what it prints of many answers, and its exit codes."""

import json

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from arpguard.cli.render import page_width
from arpguard.v1 import agent_pb2 as pb
from support.cli import HOSTILE, VIP, lines_of, make_pki, tls_flags

NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "address: 192.0.2.10: not guarded on any link of node-2")
FAULT = (grpc.StatusCode.INTERNAL, "bug")


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def others(serve, pki):
    """The agents of node-2 and node-3, at one port of two addresses."""
    pair = ((pki / "server.key").read_bytes(), (pki / "server.pem").read_bytes())
    credentials = grpc.ssl_server_credentials([pair], (pki / "ours.pem").read_bytes(), True)
    second = serve("127.0.0.2:0", credentials)
    port = second.target.rpartition(":")[2]
    third = serve(f"127.0.0.3:{port}", credentials)
    for served, name in ((second, "node-2"), (third, "node-3")):
        served.prepared.answers["GetStatus"] = pb.GetStatusResponse(node=name)
    return second, third


def cluster(*addresses: str, **fields) -> pb.Kubernetes:
    """Of node-1 and so many others."""
    nodes = [pb.ClusterNode(name="node-1", alive=True, addresses=["127.0.0.1"])]
    nodes += [
        pb.ClusterNode(name=f"node-{number}", addresses=[address] if address else [])
        for number, address in enumerate(addresses, 2)
    ]
    return pb.Kubernetes(state=pb.Kubernetes.STATE_FOLLOWING, server="https://api", nodes=nodes, **fields)


@pytest.fixture
def home(agent):
    """The agent of node-1, which knows the others."""
    status = pb.GetStatusResponse(node="node-1", mode=pb.MODE_ENFORCE, kubernetes=cluster("127.0.0.2", "127.0.0.3"))
    agent.prepared.answers["GetStatus"] = status
    return agent


@pytest.fixture
def everywhere(run, home, others, pki):
    """A command with --all-nodes."""
    port = others[0].target.rpartition(":")[2]

    def command(*words: str, flags=None):
        return run(*words, "--all-nodes", "--port", port, *(tls_flags(pki) if flags is None else flags))

    return command


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in lines_of(text.rstrip("\n"))]


# ---- what is printed ---------------------------------------------------------------------------------------------


def test_status_is_a_line_for_each_node_and_the_problems_below(everywhere, home, others):
    home.prepared.answers["GetStatus"].fence_left.FromMilliseconds(1500)
    home.prepared.answers["GetStatus"].kinds.add(kind=pb.KIND_OWNED, count=3)
    others[1].prepared.answers["GetStatus"] = pb.GetStatusResponse(
        node="node-3", problems=["a", "b"], kubernetes={"state": pb.Kubernetes.STATE_LOST, "renewal_problem": "x"}
    )
    code, out, err = everywhere("status")

    assert (code, err) == (1, "")
    assert cells(out)[0] == ["NODE", "MODE", "KUBERNETES", "LEASE", "FENCE", "OWNED", "VIPS", "PROBLEMS", "VERSION"]
    assert cells(out)[1] == ["node-1", "enforce", "following", "not", "needed", "1.5s", "3", "0", "0"]
    assert cells(out)[3] == ["node-3", "-", "lost", "not", "renewed", "-", "0", "0", "2"]
    assert cells(out)[5:] == [["node-3:", "a"], ["node-3:", "b"]]


def test_lines_of_one_vip_stand_together(everywhere, home, others):
    first, second = VIP, pb.Vip(address="192.0.2.11", link="eth0", kind=pb.KIND_FOREIGN)
    for served in (home, *others):
        served.prepared.answers["ListVips"] = pb.ListVipsResponse(vips=[first, second])
    code, out, _ = everywhere("vips")

    assert code == 0
    assert [row[:2] for row in cells(out)[1:]] == [
        [address, f"node-{number}"] for address in ("192.0.2.10", "192.0.2.11") for number in (1, 2, 3)
    ]


def test_conflicts_are_in_the_order_of_time(everywhere, home, others):
    for served, seconds in ((home, 20), (others[0], 30), (others[1], 10)):
        served.prepared.answers["ListConflicts"] = pb.ListConflictsResponse(
            conflicts=[pb.Conflict(vip="192.0.2.10", reason=pb.REASON_CONFLICT, last_time=Timestamp(seconds=seconds))]
        )
    code, out, _ = everywhere("conflicts")

    assert code == 1
    assert [row[0] for row in cells(out)[1:]] == ["node-2", "node-1", "node-3"]


def test_explanations_follow_each_other_with_the_nodes_name(everywhere, home, others):
    for served in (home, *others):
        served.prepared.answers["ExplainVip"] = pb.ExplainVipResponse(links=[pb.LinkExplanation(link="eth0")])
    others[1].prepared.answers["ExplainVip"] = pb.ExplainVipResponse(
        links=[pb.LinkExplanation(link="eth0", entry={"address": "192.0.2.10"})]
    )
    code, out, _ = everywhere("explain", "192.0.2.10")

    assert code == 0, "one node guards it"
    assert [line for line in out.splitlines() if line.startswith("on node")] == [
        f"on node node-{number}" for number in (1, 2, 3)
    ]


def test_document_has_each_answer_with_its_node(everywhere, home, others):
    for served in (home, *others):
        served.prepared.answers["ListConflicts"] = pb.ListConflictsResponse()
    code, out, _ = everywhere("conflicts", "-o", "json")
    items = json.loads(out)["nodes"]

    assert code == 0
    assert [(item["node"], item["error"], item["conflicts"]) for item in items] == [
        (f"node-{number}", "", []) for number in (1, 2, 3)
    ]
    assert [item["target"] for item in items] == [home.target, *(served.target for served in others)]


def test_nothing_anywhere_is_said(everywhere, home, others):
    for served in (home, *others):
        served.prepared.answers["ListVips"] = pb.ListVipsResponse()

    assert everywhere("vips")[:2] == (0, "no VIP is guarded\n")
    assert everywhere("vips", "--kind", "owned")[:2] == (0, "no VIP matches --kind owned\n")


@pytest.mark.parametrize("text", [HOSTILE, "\n\r\t\x9b"], ids=["long", "control"])
def test_whatever_an_agent_says_is_printable_and_fits(text, everywhere, home, others):
    others[0].prepared.answers["GetStatus"] = pb.GetStatusResponse(problems=[text], version=text)
    home.prepared.answers["GetStatus"].kubernetes.nodes[1].name = text
    home.prepared.answers["GetStatus"].kubernetes.nodes[2].addresses[0] = text
    _, out, _ = everywhere("status")

    assert all(len(line) <= page_width() for line in lines_of(out.rstrip("\n")))


# ---- who does not answer -----------------------------------------------------------------------------------------


def test_node_that_is_away_is_listed_and_the_others_answers_are_there(everywhere, others):
    others[1].stop()
    code, out, err = everywhere("status")

    assert (code, err) == (3, "")
    assert [row[0] for row in cells(out)[1:3]] == ["node-1", "node-2"]
    line = " ".join(out.splitlines()[4:])
    assert line.startswith("node-3: no agent listens at 127.0.0.3:")
    assert line.endswith("start the agent, or give its port with --port")


def test_node_without_an_address_is_listed(everywhere, home):
    del home.prepared.answers["GetStatus"].kubernetes.nodes[2].addresses[:]
    code, out, _ = everywhere("status")

    assert code == 3
    assert "node-3: its Node object has no address" in out


def test_fault_of_one_agent_is_listed(everywhere, home, others):
    for served in (home, others[0]):
        served.prepared.answers["ListVips"] = pb.ListVipsResponse(vips=[VIP])
    others[1].prepared.answers["ListVips"] = FAULT
    code, out, err = everywhere("vips")

    assert (code, err) == (3, "")
    assert out.splitlines()[-1].startswith("node-3: 127.0.0.3:")


def test_where_no_other_answers_the_remedy_is_told(everywhere, others):
    for served in others:
        served.stop()
    code, out, err = everywhere("status")

    assert code == 3
    assert cells(out)[1][0] == "node-1"
    assert err.startswith("arpguard status: cannot reach the other nodes' agents: an agent serves other machines only")


def test_address_that_one_node_does_not_guard_is_no_failure(everywhere, home, others):
    home.prepared.answers["GetVip"] = pb.GetVipResponse(vips=[VIP])
    others[0].prepared.answers["GetVip"] = NOT_FOUND
    others[1].prepared.answers["GetVip"] = pb.GetVipResponse(vips=[VIP])
    code, out, _ = everywhere("vips", "192.0.2.10")

    assert code == 0
    assert [row[1] for row in cells(out)[1:3]] == ["node-1", "node-3"]
    assert out.splitlines()[-1] == "node-2: ADDRESS: 192.0.2.10: not guarded on any link of node-2"


def test_address_that_nobody_guards_exits_1(everywhere, home, others):
    for served in (home, *others):
        served.prepared.answers["GetVip"] = NOT_FOUND

    assert everywhere("vips", "192.0.2.10")[0] == 1


def test_wrong_request_is_told_once(everywhere, home, others):
    for served in (home, *others):
        served.prepared.answers["GetVip"] = (grpc.StatusCode.INVALID_ARGUMENT, "address: x: an IP address")

    assert everywhere("vips", "x") == (2, "", "arpguard vips: ADDRESS: x: an IP address\n")


# ---- what makes no sense -----------------------------------------------------------------------------------------


def test_standalone_agent_knows_of_no_other_node(run, agent):
    agent.prepared.answers["GetStatus"].kubernetes.state = pb.Kubernetes.STATE_NOT_USED
    code, out, err = run("status", "--all-nodes")

    assert (code, out) == (2, "")
    assert err == f"arpguard status: --all-nodes needs Kubernetes: the agent at {agent.target} runs without it\n"


def test_agent_that_is_still_connecting_knows_no_node_yet(run, agent):
    agent.prepared.answers["GetStatus"].kubernetes.state = pb.Kubernetes.STATE_CONNECTING

    assert run("status", "--all-nodes")[0] == 3


def test_one_node_needs_no_tls(run, agent):
    agent.prepared.answers["GetStatus"].kubernetes.CopyFrom(cluster())
    code, out, err = run("status", "--all-nodes")

    assert (code, err, len(out.splitlines())) == (0, "", 2)


@pytest.mark.parametrize("words", [["--port", "5"], ["--all-nodes", "--pin-dir", "/x"]], ids=["port", "pins"])
def test_options_that_do_not_go_together_exit_2(words, run, agent):
    code, out, err = run("status", *words)

    assert (code, out) == (2, "")
    assert f"arpguard status: {words[0] if len(words) == 2 else words[1]}" in err


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1", "²"])
def test_port_is_a_port(port, run, agent):
    code, _, err = run("status", "--all-nodes", "--port", port)

    assert code == 2
    assert "--port" in err


def test_missing_certificates_are_named(everywhere):
    code, out, err = everywhere("status", flags=[])

    assert (code, out) == (2, "")
    assert [line.split(": ")[1] for line in err.splitlines()] == ["--tls-ca", "--tls-cert", "--tls-key"]
