"""`kubectl arpguard` beside the lab's API server: the agents' own commands run in Pods of three nodes."""

import gc
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading

import grpc
import pytest
import yaml
from google.protobuf.timestamp_pb2 import Timestamp

from arpguard.cli import documents
from arpguard.cli.kubectl import bundle, completing, reach
from arpguard.cli.kubectl.main import main
from arpguard.cli.kubectl.mode import with_mode
from arpguard.v1 import agent_pb2 as pb
from arpguard_lab.apiserver.embedded import running
from arpguard_lab.apiserver.execing import Kubelets, UnreachableError
from arpguard_lab.apiserver.server import Options
from arpguard_lab.cluster import objects
from support.cli import HOSTILE, VIP, lines_of
from support.kube.manifests import DEPLOY, objects_in, tool
from support.kube.plain_http import MERGE, Api
from support.netns.waiting import HUNG_S, until
from support.terminal import Terminal

pytestmark = pytest.mark.usefixtures("without_authorities")

HOME = "arpguard"
NODES = ("node-1", "node-2", "node-3")
NOT_FOUND = (1, "ADDRESS: 192.0.2.10: not guarded on any link of node-2")
NOT_ASKED = (
    "the node was not asked for vips.json, links.json, conflicts.json, audit.json, decisions.json, doctor.json, "
    "maps.json, metrics.txt, because no command can run there"
)
NO_ROUTE = "dial tcp 10.0.0.3:10250: connect: no route to host"
ROLE = objects_in("components/operator/rbac.yaml")
ACCOUNT = {"kind": "ServiceAccount", "name": "anna", "namespace": "people"}
CONFIG = "# ours\nmode: observe # for now\nvips: []\n"
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "arpguard", "namespace": HOME},
    "data": {"config.yaml": CONFIG, "other": "kept"},
}
CONFIG_MAP_PATH = f"/api/v1/namespaces/{HOME}/configmaps/arpguard"
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "anna", "namespace": HOME},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "arpguard-operator"},
    "subjects": [ACCOUNT],
}


def a_pod(node: str, name: str = "", **status) -> dict:
    pod = objects.pod(HOME, name or f"arpguard-{node}", node)
    pod["metadata"] |= {"labels": {"app.kubernetes.io/name": "arpguard"}, "finalizers": []}
    return pod | {"status": {"phase": "Running", **status}}


class Fleet:
    """Three nodes; `away` and `hung` say what the API server meets when it asks a kubelet.

    Commands say what `set` prepared; with `agents`, the agent's own command runs, beside an agent's API.
    """

    def __init__(self) -> None:
        self.agents: dict[str, object] = {}
        self.away: dict[str, str] = {}
        self.hung: set[str] = set()
        self.asked: list[tuple[str, ...]] = []
        self.before = lambda _node: None  # a test's chance to change what is said
        self._said: dict[tuple[str, str], list[str]] = {}

    def program(self, node, words):
        self.asked.append((node, *words))
        self.before(node)
        if node in self.away:
            raise UnreachableError(self.away[node])
        if node in self.hung:
            return None
        if words[0] != "arpguard":
            return self._other(words)
        if node in self.agents:
            target = self.agents[node].target
            return ["env", f"ARPGUARD_ADDRESS={target}", sys.executable, "-m", "arpguard", *words[1:]]
        return self._said[node, words[1]]

    def _other(self, words):
        """The image has Python, by which the bundle gets metrics, and no shell."""
        if words[0] != "/opt/arpguard/bin/python":
            raise FileNotFoundError
        return ["printf", "%s", f"scraped by {words[2]}"]

    def set(self, command: str, message, *nodes: str) -> None:
        """What a command says on nodes (all): a message as JSON, or (code, words) as an error."""
        if isinstance(message, dict):
            words = ["printf", "%s", json.dumps(message)]
        elif isinstance(message, tuple):
            code, text = message
            words = ["sh", "-c", 'printf %s "$1" >&2; exit $2', "sh", f"arpguard {command}: {text}\n", str(code)]
        else:
            words = ["printf", "%s", documents.document(message, "json")]
        for node in nodes or NODES:
            self._said[node, command] = words


@pytest.fixture
def fleet():
    made = Fleet()
    for name in NODES:
        made.set("status", pb.GetStatusResponse(node=name, mode=pb.MODE_ENFORCE), name)
    made.set("vips", pb.ListVipsResponse(vips=[VIP]))
    return made


@pytest.fixture
def agents(fleet, serve, tmp_path):
    """An agent's API on each node, which its commands ask."""
    fleet.agents = {name: serve(f"unix://{tmp_path}/{name}.sock") for name in NODES}
    return fleet.agents


@pytest.fixture
def server(fleet):
    kubelets = Kubelets(fleet.program, lambda node: f"log of {node}\n")
    known = [objects.namespace(HOME), CONFIG_MAP, *map(a_pod, NODES)]
    with running(Options(rbac=[*ROLE, BINDING], objects=known, kubelets=kubelets)) as embedded:
        yield embedded


@pytest.fixture
def kubeconfig(server, tmp_path, monkeypatch):
    """Of a user who has the role that docs/kubectl.md binds."""
    path = tmp_path / "kubeconfig"
    server.do(lambda it: it.write_kubeconfig(path, "people/anna", "people/anna"))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def kubectl(kubeconfig, capsys):
    """Runs the plugin; gives exit code, output and errors."""

    def command(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(list(words))
        return caught.value.code, *capsys.readouterr()

    return command


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in lines_of(text.rstrip("\n"))]


# ---- what is asked and shown -------------------------------------------------------------------------------------


def test_vips_of_all_nodes_are_one_table(kubectl):
    code, out, err = kubectl("vips")

    assert (code, err) == (0, "")
    assert [row[:3] for row in cells(out)] == [
        ["VIP", "NODE", "LINK"],
        *(["192.0.2.10", node, "eth0"] for node in NODES),
    ]


def test_page_shows_the_columns_of_the_table(kubectl, fleet):
    """docs/kubectl.md, and how it names a node that did not answer."""
    page = (DEPLOY.parent / "docs/kubectl.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(VIP .*?)^```", page, re.MULTILINE | re.DOTALL)
    fleet.away["node-3"] = NO_ROUTE
    _, out, _ = kubectl("vips", "-o", "wide")

    assert [title for title in cells(shown)[0] if title != "SERVICE"] == cells(out)[0]  # no VIP here has a Service
    assert shown.splitlines()[-1].partition(": dial")[0] == out.splitlines()[-1].partition(f": {NO_ROUTE}")[0]


def test_node_that_cannot_be_reached_has_a_line_below_the_table_and_the_exit_code_is_1(kubectl, fleet):
    fleet.away["node-3"] = NO_ROUTE
    code, out, err = kubectl("vips")

    assert (code, err) == (1, "")
    table, reason = out.rstrip("\n").split("\n\n")
    assert [row[1] for row in cells(table)] == ["NODE", "node-1", "node-2"]
    assert reason == f"node-3: the API server cannot reach its kubelet: {NO_ROUTE}"


def test_node_that_does_not_answer_is_given_up_after_the_timeout(kubectl, fleet):
    fleet.hung.add("node-2")
    code, out, _ = kubectl("vips", "--timeout", "6")

    assert code == 1
    assert "node-2: no answer within 6 s: is the node up? To wait longer, give --timeout" in out
    assert {row[1] for row in cells(out) if row[:1] == ["192.0.2.10"]} == {"node-1", "node-3"}


def test_exit_code_is_3_only_where_no_node_answers(kubectl, fleet):
    fleet.away = dict.fromkeys(NODES, NO_ROUTE)
    code, out, _ = kubectl("vips")

    assert code == 3
    assert [line.partition(":")[0] for line in out.splitlines() if line.startswith("node")] == list(NODES)
    assert "no VIP is guarded" not in out


@pytest.mark.parametrize("code", [137, 127, 2, 0])
def test_command_that_ends_without_an_answer_is_an_agent_that_is_away(code, kubectl, fleet):
    """1 is the only code with which an agent that answers may have nothing to show."""
    fleet.set("status", (code, "no answer"), "node-2", "node-3")
    assert kubectl("status")[0] == 1

    fleet.set("status", (137, "no answer"), "node-1")
    assert kubectl("status")[0] == 3


def test_exit_code_is_1_where_every_node_refuses(kubectl, fleet):
    fleet.set("audit", NOT_FOUND)
    assert kubectl("audit", "192.0.2.10")[0] == 1


def test_documents_name_the_node_the_pod_and_what_is_wrong(kubectl, fleet):
    fleet.away["node-3"] = NO_ROUTE
    _, out, _ = kubectl("vips", "-o", "json")
    first, _, third = json.loads(out)["nodes"]

    assert (first["node"], first["target"], first["error"]) == ("node-1", "arpguard-node-1", "")
    assert first["vips"][0]["address"] == "192.0.2.10"
    assert NO_ROUTE in third["error"]


def test_agents_own_command_knows_the_options(kubectl, fleet, agents):
    for agent in agents.values():
        agent.prepared.answers["GetVip"] = pb.GetVipResponse(vips=[VIP])
    agents["node-2"].prepared.answers["GetVip"] = (
        grpc.StatusCode.NOT_FOUND,
        "address: not guarded on any link of node-2",
    )
    assert kubectl("vips", "192.0.2.10", "--link", "eth0", "--kind", "owned", "--timeout", "60")[0] == 0

    words = ("arpguard", "vips", "--output=json", "--link=eth0", "--kind=owned", "--", "192.0.2.10")
    assert sorted(fleet.asked) == [(node, *words) for node in NODES]


def test_address_that_some_nodes_do_not_guard_is_right(kubectl, fleet):
    fleet.set("vips", NOT_FOUND, "node-2")
    code, out, _ = kubectl("vips", "192.0.2.10")

    assert code == 0
    assert out.splitlines()[-1] == "node-2: ADDRESS: 192.0.2.10: not guarded on any link of node-2"


def test_address_that_no_node_guards_exits_1(kubectl, fleet):
    fleet.set("vips", NOT_FOUND)
    assert kubectl("vips", "192.0.2.10")[0] == 1


def test_wrong_request_is_told_once(kubectl, fleet):
    fleet.set("vips", (2, "ADDRESS: x: must be an IP address"))
    assert kubectl("vips", "x") == (2, "", "kubectl arpguard vips: ADDRESS: x: must be an IP address\n")


def test_explanations_follow_each_other(kubectl, fleet):
    for node in NODES:
        link = pb.LinkExplanation(link="eth0", summary=f"seen by {node}", entry=VIP)
        fleet.set("explain", pb.ExplainVipResponse(links=[link]), node)
    code, out, _ = kubectl("explain", "192.0.2.10", "--operation", "request")

    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("on node")] == [f"on node {node}" for node in NODES]
    assert {words[4] for words in fleet.asked} == {"--operation=request"}


def test_problems_of_any_node_exit_1(kubectl, fleet):
    fleet.set("status", pb.GetStatusResponse(problems=["the lease is not renewed"]), "node-2")
    code, out, _ = kubectl("status")

    assert code == 1
    assert [row[0] for row in cells(out)[:4]] == ["NODE", *NODES]
    assert out.splitlines()[-1] == "node-2: the lease is not renewed"


def test_decisions_of_all_nodes_are_sorted_by_time(kubectl, fleet):
    for node, at in zip(NODES, (20, 30, 10), strict=True):
        decision = pb.Decision(vip="192.0.2.10", op=node, last_time=Timestamp(seconds=at))
        fleet.set("decisions", pb.ListDecisionsResponse(decisions=[decision]), node)
    code, out, _ = kubectl("decisions", "--since", "5m", "--limit", "2")

    assert code == 0
    assert [row[0] for row in cells(out)] == ["NODE", "node-2", "node-1"]
    assert {words[-1] for words in fleet.asked} == {"--since=300.000s"}


def test_conflict_on_any_node_exits_1(kubectl, fleet):
    fleet.set("conflicts", pb.ListConflictsResponse())
    claim = pb.Conflict(vip="192.0.2.10", reason=pb.REASON_CONFLICT, mac="02:00:00:00:00:99")
    fleet.set("conflicts", pb.ListConflictsResponse(conflicts=[claim]), "node-3")
    code, out, _ = kubectl("conflicts")

    assert code == 1
    assert [row[0] for row in cells(out)] == ["NODE", "node-3"]


def test_audit_now_is_one_of_every_node(kubectl, fleet):
    found = pb.Audit(vip="192.0.2.10", link="eth0", owner="node-1", finding=pb.Audit.FINDING_OWNER, right=True)
    fleet.set("audit", pb.ListAuditsResponse(audits=[found]))
    wrong = pb.Audit(vip="192.0.2.10", link="eth0", owner="node-1", finding=pb.Audit.FINDING_ANOTHER)
    fleet.set("audit", pb.ListAuditsResponse(audits=[wrong]), "node-2")
    code, out, _ = kubectl("audit", "192.0.2.10")

    assert code == 1
    assert [row[0] for row in cells(out)[1:4]] == ["node-2", "node-1", "node-3"]


def test_what_agents_say_reaches_no_terminal_as_it_is(kubectl, fleet):
    fleet.set("status", pb.GetStatusResponse(problems=[HOSTILE]), "node-1")
    fleet.away["node-2"] = HOSTILE
    _, out, _ = kubectl("status")

    assert all(line.isprintable() for line in out.rstrip("\n").split("\n"))


def test_what_agents_say_into_a_bundle_reaches_no_terminal_as_it_is(kubectl, whole, tmp_path):
    whole.set("links", (3, HOSTILE), "node-1")
    whole.away["node-2"] = HOSTILE
    _, out, _ = kubectl("bundle", f"{tmp_path}/bundle.tar.gz")
    missing = unpacked(tmp_path / "bundle.tar.gz")["missing.txt"]

    assert "red" in out
    assert all(line.isprintable() for line in (out + missing).rstrip("\n").split("\n"))


# ---- which Pods are asked ----------------------------------------------------------------------------------------


def test_node_is_asked_once_while_its_pod_is_replaced(kubectl, server, fleet):
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    server.do(lambda it: it.load([a_pod("node-1", "arpguard-next", **ready)]))
    _, out, _ = kubectl("vips", "-o", "json")

    assert [each["target"] for each in json.loads(out)["nodes"]] == [
        "arpguard-next",
        "arpguard-node-2",
        "arpguard-node-3",
    ]


def test_pod_that_does_not_run_is_not_asked_but_told_of(kubectl, server, fleet):
    waiting = [{"name": "agent", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    server.do(lambda it: it.load([a_pod("node-9", containerStatuses=waiting), a_pod("node-8", phase="Pending")]))
    code, out, _ = kubectl("vips")

    assert code == 1
    assert "node-9: its Pod arpguard-node-9 is not running: CrashLoopBackOff" in out
    assert "node-8: its Pod arpguard-node-8 is Pending" in out
    assert {node for node, *_ in fleet.asked} == set(NODES)


def test_other_pods_with_the_label_are_left_alone(kubectl, server):
    other = a_pod("node-7", "uninstall")
    other["spec"] |= {"containers": [{"name": "uninstall"}]}
    server.do(lambda it: it.load([other]))
    code, out, _ = kubectl("vips")

    assert (code, "node-7" in out) == (0, False)


def test_some_nodes_may_be_named(kubectl, fleet):
    assert kubectl("vips", "--node", "node-2")[0] == 0
    assert {node for node, *_ in fleet.asked} == {"node-2"}

    code, _, err = kubectl("vips", "--node", "node-7")
    assert (code, err) == (
        2,
        "kubectl arpguard vips: --node: no agent on node-7; agents run on node-1, node-2, node-3\n",
    )


def test_namespace_without_agents_exits_3(server, kubeconfig, kubectl):
    server.do(lambda it: it.write_kubeconfig(kubeconfig, "admin"))
    code, _, err = kubectl("vips", "-n", "elsewhere")

    assert code == 3
    assert "no agent in the namespace elsewhere" in err


# ---- the API server ----------------------------------------------------------------------------------------------


def test_role_has_what_the_commands_need_and_no_more(kubectl, whole, server, tmp_path):
    kubectl("vips")
    kubectl("mode", "enforce")
    kubectl("bundle", f"{tmp_path}/bundle.tar.gz")

    assert {(grant.resource, grant.verb) for grant in server.do(lambda it: it.unused_grants("people/anna"))} == set()


@pytest.mark.parametrize("left", ["list", "get", "create"])
def test_missing_right_is_named_once(left, kubectl, server, fleet, caplog):
    role = json.loads(json.dumps(ROLE[0]))
    for rule in role["rules"]:
        rule["verbs"] = [verb for verb in rule["verbs"] if verb != left]
    server.do(lambda it: it.put(role))
    code, out, err = kubectl("vips")

    assert (code, out) == (3, "")
    assert f'cannot {left} resource "pods' in err or "allow the verb 'create' on pods/exec" in err
    assert "docs/kubectl.md" in err
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_api_server_that_is_away_exits_3(kubectl, server):
    server.run(lambda it: it.go_down())
    code, out, err = kubectl("vips")

    assert (code, out) == (3, "")
    assert "cannot list pods arpguard" in err


def test_kubeconfigs_context_is_chosen_as_by_kubectl(kubectl, kubeconfig, tmp_path, monkeypatch):
    """$KUBECONFIG may name several files, and some that are missing."""
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{kubeconfig}")
    assert kubectl("vips", "--node", "node-1")[0] == 0

    name = yaml.safe_load(kubeconfig.read_text())["current-context"]
    assert kubectl("vips", "--node", "node-1", "--context", name)[0] == 0
    code, _, err = kubectl("vips", "--context", "nowhere")
    assert code == 2
    assert "nowhere" in err


def test_missing_kubeconfig_exits_2(monkeypatch, tmp_path, kubectl):
    code, _, err = kubectl("vips", "--kubeconfig", f"{tmp_path}/nothing")
    assert code == 2
    assert "No such file or directory" in err


# ---- beside kubectl ----------------------------------------------------------------------------------------------


def test_kubectl_itself_runs_commands_in_these_pods(server, agents, kubeconfig):
    """The lab's API server speaks the protocol that kubectl does."""
    words = [tool("kubectl"), "-n", HOME, "exec", "arpguard-node-1", "-c", "agent", "--"]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    server.do(lambda it: it.write_kubeconfig(kubeconfig, "admin"))

    def run(*more):
        return subprocess.run(
            [*words, *more], env=environment, capture_output=True, text=True, check=False, timeout=HUNG_S
        )

    done = run("arpguard", "status", "-o", "json")
    wrong = run("arpguard", "status", "-x")

    assert (done.returncode, json.loads(done.stdout)["node"]) == (0, "node-1"), done.stderr
    assert wrong.returncode == 2
    assert "unknown option '-x'" in wrong.stderr


# ---- progress ----------------------------------------------------------------------------------------------------


def test_progress_names_who_is_waited_for(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    progress = reach.Progress(NODES)
    progress.heard("node-2")
    progress.end()

    assert capsys.readouterr().err.split("\r\x1b[K")[1:] == [
        "0 of 3 nodes have answered, waiting for node-1, node-2, node-3",
        "1 of 3 nodes have answered, waiting for node-1, node-3",
        "",
    ]


# ---- decisions as they come --------------------------------------------------------------------------------------


def follow(kubeconfig, *words):
    """The plugin as a process of its own; ended by Ctrl-C once it has printed `lines`."""
    program = "from arpguard.cli.kubectl.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-u", "-c", program, "decisions", "--follow", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": "100"},
    )


def test_decisions_are_followed_on_all_nodes_though_one_is_away(fleet, agents, kubeconfig):
    fleet.away["node-2"] = NO_ROUTE
    held = threading.Event()
    for node, at in (("node-1", 20), ("node-3", 10)):
        decision = pb.Decision(vip="192.0.2.10", op=node, verdict=pb.VERDICT_SUPPRESS, last_time=Timestamp(seconds=at))
        agents[node].prepared.answers["WatchDecisions"] = _until(held, pb.WatchDecisionsResponse(decision=decision))
    with follow(kubeconfig) as running:
        head, *rows = (running.stdout.readline().split() for _ in range(3))
        running.send_signal(signal.SIGINT)
        held.set()
        err = running.stderr.read()

    assert head[:2] == ["NODE", "TIME"]
    assert {row[0] for row in rows} == {"node-1", "node-3"}
    assert "node-2: the API server cannot reach its kubelet: dial tcp" in err
    assert running.returncode == 130


def _until(held, message):
    yield message
    held.wait(HUNG_S)


def test_what_followed_agents_say_reaches_no_terminal_as_it_is(fleet, kubeconfig):
    fleet.set("decisions", (3, HOSTILE))
    with follow(kubeconfig) as running:
        _, err = running.communicate(timeout=HUNG_S)

    assert "red" in err
    assert all(line.isprintable() for line in err.rstrip("\n").split("\n"))


def test_follow_ends_where_no_node_can_be_followed(fleet, kubeconfig):
    fleet.away = dict.fromkeys(NODES, NO_ROUTE)
    with follow(kubeconfig) as running:
        _, err = running.communicate(timeout=HUNG_S)

    assert running.returncode == 3
    assert "kubectl arpguard decisions: no node's decisions can be followed" in err


# ---- doctor ------------------------------------------------------------------------------------------------------


def a_report(node: str, **found: str) -> dict:
    """What `arpguard doctor -o json` writes: a finding for each check, by its verdict."""
    rank = ("skip", "ok", "unknown", "warn", "bad")
    finding = {
        "about": "eth0",
        "seen": "arp_ignore is 0",
        "means": "it answers",
        "fix": "set it",
        "commands": ["run me"],
    }
    checks = [
        {"check": check.replace("_", "-"), "verdict": verdict, "findings": [{**finding, "verdict": verdict}]}
        for check, verdict in found.items()
    ]
    return {"node": node, "version": "1", "verdict": max(found.values(), key=rank.index), "checks": checks}


def test_doctor_has_the_worst_node_and_the_worst_finding_first(kubectl, fleet):
    fleet.set("doctor", a_report("node-1", links="ok", sysctls="warn"), "node-1")
    fleet.set("doctor", a_report("node-2", links="ok", sysctls="ok"), "node-2")
    fleet.set("doctor", a_report("node-3", links="bad", sysctls="warn"), "node-3")
    code, out, _ = kubectl("doctor")
    nodes, findings, worst, *_ = out.split("\n\n")

    assert code == 1
    assert [row[:2] for row in cells(nodes)[1:]] == [["node-3", "bad"], ["node-1", "warn"], ["node-2", "ok"]]
    assert [row[:2] for row in cells(findings)[1:]] == [["links", "bad"], ["sysctls", "warn"]]
    assert "node-1, node-3" in findings, "what two nodes found alike is one line"
    assert worst.splitlines()[:2] == ["links eth0", "  on     node-3"]


def test_doctor_asks_with_the_configuration_of_the_pod(kubectl, fleet):
    for node in NODES:
        fleet.set("doctor", a_report(node, links="ok"), node)
    assert kubectl("doctor", "--no-ask")[0] == 0

    words = ("arpguard", "doctor", "--output=json", "--config=/etc/arpguard/config.yaml", "--no-ask")
    assert {each[1:] for each in fleet.asked} == {words}


def test_doctor_names_the_node_that_did_not_answer(kubectl, fleet):
    for node in NODES:
        fleet.set("doctor", a_report(node, links="ok"), node)
    fleet.set("doctor", (3, "this needs root"), "node-2")
    fleet.away["node-3"] = NO_ROUTE
    code, out, _ = kubectl("doctor")

    assert code == 1
    assert "node-2: this needs root" in out
    assert "node-3: the API server cannot reach its kubelet" in out

    _, out, _ = kubectl("doctor", "-o", "json")
    assert [bool(each["error"]) for each in json.loads(out)["nodes"]] == [False, True, True]


def without(report: dict, key: str) -> dict:
    """A report in which each check's finding lacks a key."""
    made = json.loads(json.dumps(report))
    for check in made["checks"]:
        del check["findings"][0][key]
    return made


@pytest.mark.parametrize(
    "report",
    [
        a_report("node-2", links="ok") | {"verdict": "terrible"},
        a_report("node-2", links="ok") | {"checks": {"links": "ok"}},
        {"node": "node-2", "checks": []},
        {"verdict": "ok", "checks": [{"check": "links", "verdict": "ok"}]},
        {"verdict": "ok", "checks": [{"check": "links", "verdict": "fine", "findings": []}]},
        {"verdict": "ok", "checks": ["links"]},
        without(a_report("node-2", links="warn"), "fix"),
        without(a_report("node-2", links="warn"), "verdict"),
        without(a_report("node-2", links="warn"), "commands"),
    ],
)
def test_report_by_another_version_makes_no_sense_for_its_node_alone(report, kubectl, fleet):
    fleet.set("doctor", a_report("node", links="ok"))
    fleet.set("doctor", report, "node-2")
    code, out, err = kubectl("doctor")

    assert (code, err) == (1, "")
    assert out.splitlines()[-1] == "node-2: its agent's answer is not valid"
    assert [row[:2] for row in cells(out.split("\n\n")[0])[1:]] == [["node-1", "ok"], ["node-3", "ok"]]

    _, out, _ = kubectl("doctor", "-o", "json")
    assert [each["error"] for each in json.loads(out)["nodes"]] == ["", "its agent's answer is not valid", ""]


# ---- mode --------------------------------------------------------------------------------------------------------


@pytest.fixture
def config_map(client_of):
    return lambda: client_of.ask("GET", CONFIG_MAP_PATH).body


@pytest.fixture
def configured(client_of):
    """Writes the configuration into the ConfigMap."""
    return lambda text: client_of.ask("PATCH", CONFIG_MAP_PATH, {"data": {"config.yaml": text}}, MERGE)


@pytest.fixture
def client_of(server):
    server.do(lambda it: it.add_client("admin"))
    return Api(server.do(lambda it: it.kubeconfig("admin")))


def test_mode_changes_one_line_and_waits_until_each_node_has_followed(kubectl, fleet, config_map):
    for node in NODES:
        fleet.set("status", pb.GetStatusResponse(node=node, mode=pb.MODE_OBSERVE), node)
    late = iter(range(2))

    def follow(node):
        if node == "node-2" and next(late, None) is None:
            fleet.set("status", pb.GetStatusResponse(mode=pb.MODE_ENFORCE))

    fleet.before = follow
    code, out, err = kubectl("mode", "enforce", "--timeout", "60")

    assert code == 0
    assert config_map()["data"] == {"config.yaml": CONFIG.replace("mode: observe", "mode: enforce"), "other": "kept"}
    assert err == "ConfigMap arpguard/arpguard now says mode: enforce\n"
    assert [row[:3] for row in cells(out)[1:]] == [[node, "enforce", "yes"] for node in NODES]
    assert len(fleet.asked) >= 9


def test_mode_says_which_nodes_have_not_followed_and_why(kubectl, fleet):
    stuck = pb.GetStatusResponse(mode=pb.MODE_OBSERVE, config={"problems": ["mod: unknown setting"]})
    fleet.set("status", stuck, "node-2")
    fleet.away["node-3"] = NO_ROUTE
    code, out, _ = kubectl("mode", "enforce", "--timeout", "10")

    assert code == 1
    assert [row[:3] for row in cells(out)[1:4]] == [
        ["node-1", "enforce", "yes"],
        ["node-2", "observe", "no"],
        ["node-3", "-", "no"],
    ]
    assert "mod: unknown setting" in out
    assert out.splitlines()[-1] == "not in mode enforce: 2 of 3 nodes"


def test_mode_that_is_there_is_not_written(kubectl, config_map):
    before = config_map()["metadata"]["resourceVersion"]
    _, _, err = kubectl("mode", "observe", "--timeout", "0.1")

    assert "already says mode: observe" in err
    assert config_map()["metadata"]["resourceVersion"] == before


def test_mode_warns_where_helm_puts_it_back(kubectl, client_of):
    client_of.ask("PATCH", CONFIG_MAP_PATH, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}, MERGE)
    _, _, err = kubectl("mode", "enforce")

    assert "`helm upgrade` restores the mode in the chart's values: set config.mode there too" in err


@pytest.mark.parametrize(
    "text",
    ['"mode": observe\n', "mode : observe\n", "---\nvips: []\n", "{mode: observe}\n", "mode:\n  observe\n"],
)
def test_mode_that_is_no_line_of_its_own_is_left_as_it_is(text, kubectl, configured, config_map):
    configured(text)
    code, out, err = kubectl("mode", "enforce")

    why = (
        "cannot change `mode` in ConfigMap arpguard/arpguard without rewriting the rest: "
        "put `mode: ...` on a line of its own"
    )
    assert (code, out, err) == (2, "", f"kubectl arpguard mode: {why}\n")
    assert config_map()["data"]["config.yaml"] == text


def test_mode_names_the_mistakes_in_the_configuration_as_it_is_written(kubectl, configured):
    configured("vips: []\nmod: observe\n")
    code, _, err = kubectl("mode", "enforce")

    assert code == 2
    assert err.startswith("ConfigMap arpguard/arpguard: line 2: mod: ")


def test_mode_mends_a_mode_that_is_wrong(kubectl, configured, config_map):
    configured("mode: enforec\n")
    assert kubectl("mode", "enforce")[0] == 0
    assert config_map()["data"]["config.yaml"] == "mode: enforce\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mode: observe\n", "mode: enforce\n"),
        ("vips: []\nmode:    observe   # why\n", "vips: []\nmode: enforce   # why\n"),
        ("mode:\nvips: []\n", "mode: enforce\nvips: []\n"),
        ('mode: "observe"\n', "mode: enforce\n"),
        ("vips:\n  - address: 192.0.2.1\n    mode: observe\n", None),
        ("", "mode: enforce\n"),
    ],
    ids=["alone", "comment", "empty", "quoted", "of a VIP", "missing"],
)
def test_mode_is_set_and_the_rest_kept(text, expected):
    assert with_mode(text, "enforce") == (expected or f"mode: enforce\n{text}")


# ---- bundle ------------------------------------------------------------------------------------------------------


def unpacked(path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        return {each.name.partition("/")[2]: archive.extractfile(each).read().decode() for each in members}


@pytest.fixture
def whole(fleet):
    """Nodes that answer every command of a bundle."""
    for command in ("links", "conflicts", "audit", "decisions", "doctor"):
        fleet.set(command, {"said": command})
    return fleet


def test_bundle_has_what_each_node_and_the_api_server_know(kubectl, whole, client_of, tmp_path):
    daemonset = objects.daemon_set(HOME, "arpguard")
    client_of.ask("POST", f"/apis/apps/v1/namespaces/{HOME}/daemonsets", daemonset)
    code, out, _ = kubectl("bundle", f"{tmp_path}/bundle.tar.gz")
    files = unpacked(tmp_path / "bundle.tar.gz")
    of_node = [*("status", "vips", "links", "conflicts", "audit", "decisions", "doctor", "maps")]

    assert (code, out) == (0, f"{tmp_path}/bundle.tar.gz: {len(files)} files\n")
    assert (tmp_path / "bundle.tar.gz").stat().st_mode & 0o777 == 0o600
    assert {name for name in files if name.startswith("nodes/node-2/")} == {
        *(f"nodes/node-2/{each}.json" for each in of_node),
        *("nodes/node-2/log.txt", "nodes/node-2/metrics.txt"),
    }
    assert set(files) - {name for name in files if name.startswith("nodes/")} == {
        *("bundle.json", "missing.txt", "configmap.yaml", "daemonset.yaml", "pods.yaml", "leases.yaml", "events.yaml")
    }
    assert files["nodes/node-2/log.txt"] == "log of node-2\n"
    assert "http://127.0.0.1:9469/metrics" in files["nodes/node-2/metrics.txt"]
    assert yaml.safe_load(files["configmap.yaml"])["data"]["config.yaml"] == CONFIG
    assert ("node-2", "arpguard", "vips", "--output=json", "--pin-dir=/sys/fs/bpf/arpguard") in whole.asked


def test_bundle_says_what_is_missing_and_exits_1(kubectl, whole, tmp_path):
    whole.away["node-3"] = NO_ROUTE
    code, out, _ = kubectl("bundle", f"{tmp_path}/bundle.tar.gz")
    files = unpacked(tmp_path / "bundle.tar.gz")

    assert code == 1
    assert [line.partition(":")[0] for line in files["missing.txt"].splitlines()] == [
        "daemonset.yaml",
        "nodes/node-3/status.json",
        "nodes/node-3",
    ]
    assert files["missing.txt"].splitlines()[-1] == f"nodes/node-3: {NOT_ASKED}"
    assert NO_ROUTE in files["missing.txt"]
    assert [f"missing: {line}" for line in files["missing.txt"].splitlines()] == out.splitlines()[1:]
    assert {"nodes/node-3/log.txt", "nodes/node-2/metrics.txt"} <= set(files)


def test_bundle_has_the_kernels_maps_where_the_agent_is_down(kubectl, whole, tmp_path):
    for command in ("status", "links", "conflicts", "audit", "decisions"):
        whole.set(command, (3, "no agent answers"), "node-3")
    assert kubectl("bundle", f"{tmp_path}/bundle.tar.gz")[0] == 1
    files = unpacked(tmp_path / "bundle.tar.gz")

    assert {"nodes/node-3/maps.json", "nodes/node-3/doctor.json", "nodes/node-3/metrics.txt"} <= set(files)
    assert files["missing.txt"].splitlines()[1:] == [
        f"nodes/node-3/{name}.json: no agent answers" for name in ("audit", "conflicts", "decisions", "links", "status")
    ]


def test_bundle_of_a_user_who_may_run_nothing_has_the_rest(kubectl, whole, server, tmp_path):
    role = json.loads(json.dumps(ROLE[0]))
    role["rules"] = [rule for rule in role["rules"] if "pods/exec" not in rule["resources"]]
    server.do(lambda it: it.put(role))
    code, out, _ = kubectl("bundle", f"{tmp_path}/bundle.tar.gz")
    files = unpacked(tmp_path / "bundle.tar.gz")

    assert code == 1
    assert {"configmap.yaml", "nodes/node-1/log.txt"} <= set(files)
    assert out.count('resource "pods/exec"') == len(NODES)
    assert f"nodes/node-1: {NOT_ASKED}" in files["missing.txt"].splitlines()


@pytest.mark.parametrize("where", ["missing/bundle.tar.gz", "file/bundle.tar.gz"])
def test_bundle_that_cannot_be_written_is_bad_usage(where, kubectl, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = kubectl("bundle", f"{tmp_path}/{where}")

    assert code == 2
    assert err.startswith(f"kubectl arpguard bundle: cannot write {tmp_path}/{where}: N")


def test_bundle_overwrites_nothing_and_leaves_no_empty_file(kubectl, server, tmp_path):
    path = tmp_path / "bundle.tar.gz"
    path.write_text("mine")
    code, _, err = kubectl("bundle", str(path))
    assert (code, err) == (2, f"kubectl arpguard bundle: {path} already exists: name another file\n")
    assert path.read_text() == "mine"

    server.run(lambda it: it.go_down())
    assert kubectl("bundle", f"{tmp_path}/other")[0] == 3
    assert not (tmp_path / "other").exists()


def test_values_that_may_be_secrets_are_left_out_of_a_bundle():
    environment = [
        {"name": "TOKEN", "value": "hunter2"},
        {"name": "ARPGUARD_LOG_LEVEL", "value": "info"},
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "kept": "yes"}
    found = {
        "metadata": {"name": "x", "annotations": applied, "managedFields": ["hunter2"]},
        "spec": {"template": {"spec": {"containers": [{"name": "agent", "env": environment}]}}},
    }
    cleaned = bundle.cleaned(found)

    assert "hunter2" not in json.dumps(cleaned)
    assert cleaned["metadata"] == {"name": "x", "annotations": {"kept": "yes"}}
    (container,) = cleaned["spec"]["template"]["spec"]["containers"]
    assert container["env"][0] == {"name": "TOKEN", "value": "(left out)"}
    assert container["env"][1:] == environment[1:]


# ---- watch ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def screen(kubeconfig, fleet, agents):
    """The plugin's live view on a terminal: two nodes whose agents answer, and one that cannot be reached."""
    fleet.away["node-3"] = NO_ROUTE
    for each in agents.values():
        each.prepared.answers |= {
            "ListVips": pb.ListVipsResponse(vips=[VIP]),
            "ListConflicts": pb.ListConflictsResponse(),
        }
    program = "from arpguard.cli.kubectl.main import main; main()"
    terminal = Terminal([sys.executable, "-c", program, "watch", "--interval", "0.2"], KUBECONFIG=str(kubeconfig))
    yield terminal
    terminal.close()


@pytest.mark.parametrize(
    ("leave", "code"),
    [(lambda screen: screen.type(b"q"), 0), (lambda screen: screen.signal(signal.SIGINT), 130)],
    ids=["q", "interrupt"],
)
def test_watch_shows_the_cluster_and_leaves_the_terminal_as_it_was(screen, leave, code):
    until(lambda: "node-3: the API server cannot reach its kubelet" in screen.read(), 60)
    until(lambda: "2 enforce" in screen.read() and "192.0.2.10" in screen.read(), 60)
    leave(screen)

    assert screen.left() == code
    assert screen.is_as_it_was
    assert "Traceback" not in screen.printed


def test_watch_without_a_terminal_says_so(kubectl):
    code, _, err = kubectl("watch")

    others = "`kubectl arpguard status` and `kubectl arpguard decisions --follow`"
    assert (code, err) == (2, f"kubectl arpguard watch: needs a terminal: {others} need none\n")


# ---- uninstall, completion ---------------------------------------------------------------------------------------


def test_uninstall_is_the_agents_own_with_the_users_kubeconfig(kubectl, kubeconfig, server):
    server.do(lambda it: it.write_kubeconfig(kubeconfig, "admin"))
    code, out, err = kubectl("uninstall")

    assert code == 0
    assert err.startswith("DaemonSet arpguard/arpguard is already gone\n")
    assert out.startswith("the agents are gone; removed 0 Leases")


def test_completion_is_for_the_plugin_as_a_command(kubectl):
    code, out, _ = kubectl("completion", "bash")

    assert code == 0
    assert "-F _shtab_kubectl_arpguard kubectl-arpguard" in out
    for kind in ("vips", "links", "nodes"):
        assert f"$(kubectl-arpguard completion {kind} 2>/dev/null)" in out


@pytest.mark.parametrize(
    ("kind", "words"),
    [("vips", ["192.0.2.10", "192.0.2.11"]), ("links", ["eth0", "eth1"]), ("nodes", list(NODES))],
)
def test_completion_asks_the_nodes_and_does_without_those_that_are_away(kind, words, kubectl, fleet, monkeypatch):
    for limit in ("_LIMIT_S", "_EACH_S"):  # for a busy machine
        monkeypatch.setattr(completing, limit, 60)
    fleet.set("vips", pb.ListVipsResponse(vips=[pb.Vip(address="192.0.2.11", link="eth1")]), "node-2")
    fleet.away["node-3"] = NO_ROUTE

    assert kubectl("completion", kind) == (0, "".join(f"{word}\n" for word in words), "")


def test_completion_does_not_wait_for_a_node_that_hangs(kubectl, fleet, monkeypatch):
    monkeypatch.setattr(completing, "_EACH_S", 0.1)
    fleet.hung.update(NODES)

    assert kubectl("completion", "vips") == (0, "", "")


@pytest.mark.parametrize("kubeconfig_says", ["", "apiVersion: v1\nkind: Config\n"], ids=["nothing", "no cluster"])
def test_completion_is_silent_without_a_cluster(kubectl, kubeconfig, kubeconfig_says):
    kubeconfig.write_text(kubeconfig_says)

    assert kubectl("completion", "vips") == (0, "", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ex"], ["explain"]),
        (["mode", ""], ["observe", "enforce"]),
        (["vips", "--no"], ["--node"]),
        (["vips", "x"], []),
        (["vips", "--link", "e"], ["eth0"]),
        (["vips", "192"], ["192.0.2.10"]),
        (["explain", "192.0.2.10", "--node", "node-"], list(NODES)),
    ],
)
@pytest.mark.usefixtures("kubeconfig")
def test_kubectl_completes_by_the_script_in_the_documentation(words, expected, tmp_path):
    page = (DEPLOY.parent / "docs/kubectl.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```bash\n(#!.*?)^```$", page, re.MULTILINE | re.DOTALL)
    plugin = f'#!/bin/sh\nexec {sys.executable} -c "from arpguard.cli.kubectl.main import main; main()" "$@"\n'
    for name, text in {"kubectl_complete-arpguard": script, "kubectl-arpguard": plugin}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def completed() -> list[str]:
        done = subprocess.run(
            [tool("kubectl"), "__complete", "arpguard", *words],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
            timeout=HUNG_S,
        )
        return done.stdout.splitlines()

    until(lambda: completed() == [*expected, ":4"], 60, "a busy cluster is not waited for")
