"""What the commands ask for, what they print, and their exit codes."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import grpc
import pytest
import yaml
from google.protobuf.json_format import ParseDict

from arpguard.cli import client, tables
from arpguard.cli.options import DEFAULT_LIMIT
from arpguard.v1 import agent_pb2 as pb
from support.cli import DECISION, VIP
from support.netns.waiting import HUNG_S

KERNEL = ("arpguard.dataplane.loader", "arpguard.dataplane.netlink", "pyroute2")
FAST_PINGS = {"grpc.keepalive_time_ms": 300, "grpc.http2.ping_timeout_ms": 300}


def pages(items, field, response):
    """An answer to a paged request: tokens are positions."""

    def answer(request):
        start = int(request.page_token or 0)
        end = start + min(request.page_size or 100, 1000)
        token = str(end) if end < len(items) else ""
        return response(next_page_token=token, **{field: items[start:end]})

    return answer


# ---- documents ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_document_is_the_message_with_all_its_fields(form, parse, run, agent):
    code, out, _ = run("status", "-o", form)
    found = parse(out)

    assert code == 0
    assert (found["node"], found["mode"], found["problems"], found["entriesCapacity"]) == (
        "node-1",
        "MODE_ENFORCE",
        [],
        0,
    )
    assert ParseDict(found, pb.GetStatusResponse()) == agent.prepared.answers["GetStatus"]


def test_links_document_has_the_links_only(run, agent):
    agent.prepared.answers["GetStatus"] = pb.GetStatusResponse(links=[pb.Link(name="eth0", ifindex=2)])
    found = json.loads(run("links", "-o", "json")[1])

    assert list(found) == ["links"]
    assert (found["links"][0]["name"], found["links"][0]["deviceKind"]) == ("eth0", "")


def test_pages_are_one_document(run, agent):
    every = [pb.Vip(address=f"10.0.{number >> 8}.{number & 255}") for number in range(2500)]
    agent.prepared.answers["ListVips"] = pages(every, "vips", pb.ListVipsResponse)
    found = json.loads(run("vips", "-o", "json")[1])

    assert [vip["address"] for vip in found["vips"]] == [vip.address for vip in every]
    assert found["nextPageToken"] == ""
    assert [request.page_size for request in agent.prepared.requests] == [1000, 1000, 1000]


@pytest.mark.parametrize(
    ("words", "expected"), [([], 100), (["--limit", "7"], 7), (["--limit", "1234"], 1234)], ids=str
)
def test_decisions_are_as_many_as_the_limit_says(words, expected, run, agent):
    every = [pb.Decision(count=number) for number in range(3000)]
    agent.prepared.answers["ListDecisions"] = pages(every, "decisions", pb.ListDecisionsResponse)
    found = json.loads(run("decisions", "-o", "json", *words)[1])

    assert [int(decision["count"]) for decision in found["decisions"]] == list(range(expected))
    assert found["nextPageToken"] == ""


# ---- exit codes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [pb.GetStatusResponse(problems=["p"]), pb.GetStatusResponse(config=pb.Config(problems=["p"]))], ids=str
)
@pytest.mark.parametrize("form", ["table", "json"])
def test_status_with_problems_exits_1(wrong, form, run, agent):
    agent.prepared.answers["GetStatus"] = wrong

    assert run("status", "-o", form)[0] == 1


def test_vip_that_is_guarded_nowhere_exits_1_with_the_agents_sentence(run, agent):
    agent.prepared.answers["GetVip"] = (
        grpc.StatusCode.NOT_FOUND,
        "address: 192.0.2.1: not guarded on any link of node-1",
    )

    assert run("vips", "192.0.2.1") == (1, "", "arpguard vips: ADDRESS: 192.0.2.1: not guarded on any link of node-1\n")


@pytest.mark.parametrize(
    ("reasons", "code"),
    [
        ([], 0),
        (["UNVERIFIED_CLAIM", "DELEGATED_CLAIM", "UNCLAIMED_CLAIM"], 0),
        (["UNVERIFIED_CLAIM", "CONFLICT"], 1),
    ],
    ids=["none", "perhaps the owners", "somebody else too"],
)
def test_conflicts_exits_1_when_somebody_claims_what_is_not_theirs_for_certain(reasons, code, run, agent):
    agent.prepared.answers["ListConflicts"] = pb.ListConflictsResponse(
        conflicts=[pb.Conflict(vip="192.0.2.10", reason=f"REASON_{reason}") for reason in reasons]
    )
    found, out, _ = run("conflicts")

    assert found == code
    assert out.count("perhaps the owner's") == sum(reason != "CONFLICT" for reason in reasons)


@pytest.mark.parametrize(
    ("words", "links"),
    [("", ["eth0", "eth1"]), ("--link eth1", ["eth1"]), ("--kind owned", ["eth0"])],
    ids=["all", "link", "kind"],
)
def test_vip_in_detail_is_shown_where_the_options_let_it_through(words, links, run, agent):
    found = [pb.Vip(link="eth0", kind=pb.KIND_OWNED), pb.Vip(link="eth1", kind=pb.KIND_FOREIGN)]
    agent.prepared.answers["GetVip"] = pb.GetVipResponse(vips=found)
    code, out, _ = run("vips", "192.0.2.10", *words.split(), "-o", "json")

    assert code == 0
    assert [vip["link"] for vip in json.loads(out)["vips"]] == links


def test_vip_in_detail_that_no_option_lets_through_exits_1(run, agent):
    agent.prepared.answers["GetVip"] = pb.GetVipResponse(vips=[VIP])
    said = "arpguard vips: 192.0.2.10 is guarded, but no entry matches --link eth0 --kind foreign\n"

    assert run("vips", "192.0.2.10", "--link", "eth0", "--kind", "foreign") == (1, "", said)


@pytest.mark.parametrize(
    ("links", "code"),
    [
        ([], 1),
        ([pb.LinkExplanation(link="eth0")], 1),
        ([pb.LinkExplanation(link="eth0"), pb.LinkExplanation(entry=VIP)], 0),
    ],
    ids=["no link", "not guarded", "guarded on one"],
)
def test_explain_exits_1_unless_the_address_is_guarded(links, code, run, agent):
    agent.prepared.answers["ExplainVip"] = pb.ExplainVipResponse(links=links)

    assert run("explain", "192.0.2.10")[0] == code


def test_empty_lists_say_so(run, agent):
    answers = agent.prepared.answers
    answers["ListVips"], answers["ListDecisions"] = pb.ListVipsResponse(), pb.ListDecisionsResponse()
    answers["ListConflicts"], answers["ExplainVip"] = pb.ListConflictsResponse(), pb.ExplainVipResponse()
    said = [run(*words.split())[1] for words in ("vips", "links", "decisions", "conflicts", "explain 192.0.2.10")]

    assert said == [
        "no VIP is guarded\n",
        "no link is guarded\n",
        "no decision has been reported since the agent started\n",
        "no claim by another host has been heard since the agent started\n" + tables.UNHEARD + "\n",
        "no link of this node is guarded\n",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("vips --link nope --kind owned", "no VIP matches --link nope --kind owned"),
        ("decisions --vip 192.0.2.1 --reason answered", "no decision matches --vip 192.0.2.1 --reason answered"),
        ("decisions --verdict pass --since 0s", "no decision matches --verdict pass --since 0s"),
        ("conflicts --vip 192.0.2.1", "no claim by another host matches --vip 192.0.2.1\n" + tables.UNHEARD),
    ],
    ids=str,
)
def test_list_that_a_filter_leaves_empty_names_the_filter(words, said, run, agent):
    answers = agent.prepared.answers
    answers["ListVips"], answers["ListDecisions"] = pb.ListVipsResponse(), pb.ListDecisionsResponse()
    answers["ListConflicts"] = pb.ListConflictsResponse()

    assert run(*words.split()) == (0, said + "\n", "")


def test_empty_list_of_claims_says_what_cannot_be_heard_and_what_finds_it(run, agent):
    agent.prepared.answers["ListConflicts"] = pb.ListConflictsResponse()
    _, out, _ = run("conflicts")

    assert "lacks hosts that only reply to requests" in out
    assert "`arpguard audit ADDRESS`" in out


# ---- requests ----------------------------------------------------------------------------------------------------


def test_options_become_the_request(run, agent, ago):
    agent.prepared.answers["ListDecisions"] = pb.ListDecisionsResponse()
    agent.prepared.answers["ListVips"] = pb.ListVipsResponse()
    agent.prepared.answers["ExplainVip"] = pb.ExplainVipResponse()
    decisions = "decisions --vip 192.0.2.10 --link eth0 --verdict suppress --reason egress_not_owner --since 1.5m"
    explain = "explain 192.0.2.10 --operation probe --operation out-reply --sender-mac 02:00:00:00:00:50"
    for words in (decisions, "vips --kind external --link eth1", explain):
        run(*words.split())
    asked, vips, explained = agent.prepared.requests
    since, asked.filter.since.seconds, asked.filter.since.nanos = asked.filter.since.seconds, 0, 0

    assert abs(since - ago(90).seconds) <= 30
    assert asked.filter.vip == "192.0.2.10"
    assert (asked.filter.link, asked.filter.verdict) == ("eth0", pb.VERDICT_SUPPRESS)
    assert asked.filter.reason == pb.REASON_EGRESS_NOT_OWNER
    assert (vips.kind, vips.link) == (pb.KIND_EXTERNAL, "eth1")
    assert list(explained.operations) == [pb.OPERATION_PROBE, pb.OPERATION_OUT_REPLY]
    assert (explained.address, explained.sender_mac) == ("192.0.2.10", "02:00:00:00:00:50")


@pytest.mark.parametrize("reason", ["REASON_EGRESS_OWNER", "egress-owner", "EGRESS_OWNER", "egress_owner"])
def test_enum_may_be_written_as_elsewhere(reason, run, agent):
    agent.prepared.answers["ListDecisions"] = pb.ListDecisionsResponse()

    assert run("decisions", "--reason", reason)[0] == 0
    assert agent.prepared.requests[-1].filter.reason == pb.REASON_EGRESS_OWNER


@pytest.mark.parametrize("operation", ["OPERATION_OUT_REQUEST", "out_request", "Out-Request"])
def test_operation_may_be_written_as_elsewhere(operation, run, agent):
    agent.prepared.answers["ExplainVip"] = pb.ExplainVipResponse()
    run("explain", "192.0.2.10", "--operation", operation)

    assert list(agent.prepared.requests[-1].operations) == [pb.OPERATION_OUT_REQUEST]


def test_since_now_is_no_decision_of_the_past(run, agent, ago):
    agent.prepared.answers["ListDecisions"] = pb.ListDecisionsResponse()
    before = ago(0)
    run("decisions", "--since", "0s")

    assert before.seconds - 1 <= agent.prepared.requests[-1].filter.since.seconds <= ago(0).seconds + 1


@pytest.mark.parametrize(
    ("span", "seconds"), [("1h30m", 5400), ("2m 52s", 172), ("1.5s500ms", 2), ("1d", 86400)], ids=str
)
def test_length_of_time_may_be_a_sum(span, seconds, run, agent, ago):
    agent.prepared.answers["ListDecisions"] = pb.ListDecisionsResponse()
    before = ago(seconds)
    run("decisions", "--since", span)

    assert before.seconds - 1 <= agent.prepared.requests[-1].filter.since.seconds <= ago(seconds).seconds + 1


@pytest.mark.parametrize("words", ["--since 5", "--since x", "--limit 0", "--verdict deny", "--reason because"])
def test_wrong_options_of_decisions_exit_2(words, run, agent):
    code, out, err = run("decisions", *words.split())

    assert (code, out) == (2, "")
    assert words.split()[1] in err


# ---- following ---------------------------------------------------------------------------------------------------


def test_wide_table_is_cut_nowhere(run, agent):
    link = pb.Link(name="eth0", mac="02:00:00:00:00:01", addresses=[f"192.0.2.{host}/24" for host in range(30)])
    agent.prepared.answers["GetStatus"] = pb.GetStatusResponse(node="node-1", links=[link])

    assert "192.0.2.29/24" not in run("links")[1]
    assert "192.0.2.29/24" in run("links", "-o", "wide")[1]


def test_follow_prints_each_and_what_was_lost_until_the_agent_stops(run, agent, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    agent.prepared.answers["WatchDecisions"] = [
        pb.WatchDecisionsResponse(decision=DECISION),
        pb.WatchDecisionsResponse(decision=DECISION, lost=17),
        pb.WatchDecisionsResponse(lost=1),
        (grpc.StatusCode.UNAVAILABLE, "the agent stops"),
    ]
    code, out, err = run("decisions", "--follow", "--vip", "192.0.2.10")
    lines = out.splitlines()

    assert [line.split()[0] for line in lines] == ["TIME", lines[1].split()[0], "17", lines[3].split()[0], "1"]
    assert lines[2] == "17 decisions lost: this command was too slow"
    assert lines[4] == "1 decision lost: this command was too slow"
    assert lines[3].split()[-7:] == ["eth0", "192.0.2.10", "answer", "answered", "request", "02:00:00:00:00:64", "3"]
    assert (code, err.count("\n")) == (3, 1)
    assert f"the agent at {agent.target} stopped; the guard stays in the kernel" in err
    assert agent.prepared.requests[-1] == pb.WatchDecisionsRequest(
        filter=pb.DecisionFilter(vip="192.0.2.10"), include_recent=True
    )


@pytest.mark.parametrize(("words", "count"), [([], 20), (["--limit", "3"], 3)], ids=["default", "limit"])
def test_follow_begins_with_the_last_of_the_past_and_goes_on(words, count, run, agent, ago):
    times = [ago(second) for second in range(100)]
    every = [pb.Decision(last_time=time) for time in times]
    agent.prepared.answers["ListDecisions"] = pages(every, "decisions", pb.ListDecisionsResponse)
    agent.prepared.answers["WatchDecisions"] = [pb.WatchDecisionsResponse(decision=DECISION)] * 50
    code, out, _ = run("decisions", "--follow", "--link", "eth0", *words)

    assert (code, len(out.splitlines())) == (3, 1 + 50)
    assert agent.prepared.requests[-1] == pb.WatchDecisionsRequest(
        filter=pb.DecisionFilter(link="eth0", since=times[count - 1]), include_recent=True
    )


def test_count_is_shown_of_repeated_decisions_only(run, agent):
    alone = pb.Decision(sha="02:00:00:00:00:65", count=1)
    agent.prepared.answers["WatchDecisions"] = [
        pb.WatchDecisionsResponse(decision=decision) for decision in (DECISION, alone)
    ]
    head, repeated, once = run("decisions", "--follow")[1].splitlines()

    assert (head.split()[-1], repeated.split()[-1], once.split()[-1]) == ("COUNT", "3", "02:00:00:00:00:65")


def test_follow_says_why_it_was_refused(run, agent):
    agent.prepared.answers["WatchDecisions"] = [(grpc.StatusCode.RESOURCE_EXHAUSTED, "64 streams are open: end one")]

    assert run("decisions", "--follow")[0::2] == (
        3,
        f"arpguard decisions: {agent.target}: 64 streams are open: end one\n",
    )


@contextmanager
def a_relay(path, behind):
    """Hands on what is said to and by the socket `behind`, until the event that it gives is set."""
    hung = threading.Event()

    def pump(source, sink):
        while data := source.recv(65536):
            if not hung.is_set():
                sink.sendall(data)

    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as agent:
        listener.bind(path)
        listener.listen()
        agent.connect(behind)

        def relay():
            caller, _ = listener.accept()
            answers = threading.Thread(target=pump, args=(agent, caller))
            answers.start()
            pump(caller, agent)
            agent.shutdown(socket.SHUT_RDWR)
            answers.join()
            caller.close()

        relaying = threading.Thread(target=relay)
        relaying.start()
        yield hung
        relaying.join()


def test_follower_of_an_agent_that_hangs_gives_up(run, agent, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "_CHANNEL", client._CHANNEL | FAST_PINGS)
    path = str(tmp_path / "relay.sock")
    ended = threading.Event()

    def one_and_no_more():
        yield pb.WatchDecisionsResponse(decision=DECISION)
        hung.set()
        ended.wait(HUNG_S)

    agent.prepared.answers["WatchDecisions"] = one_and_no_more()
    with a_relay(path, agent.target.removeprefix("unix://")) as hung:
        code, _, err = run("decisions", "--follow", "--address", f"unix://{path}")
    ended.set()

    assert (code, err.count("\n")) == (3, 1)
    assert f"unix://{path} no longer answers: it hangs or cannot be reached" in err


def test_agent_that_hangs_is_noticed_in_a_quarter_of_a_minute():
    assert sum(client._CHANNEL[name] for name in FAST_PINGS) <= 15_000


def test_follow_as_json_is_a_document_a_line(run, agent):
    agent.prepared.answers["WatchDecisions"] = [pb.WatchDecisionsResponse(decision=DECISION)] * 3
    found = [json.loads(line) for line in run("decisions", "--follow", "-o", "json")[1].splitlines()]

    assert len(found) == 3
    assert found[0]["decision"]["verdict"] == "VERDICT_ANSWER"
    assert found[0]["lost"] == "0"


def test_follow_as_yaml_is_a_stream_of_documents(run, agent):
    agent.prepared.answers["WatchDecisions"] = [pb.WatchDecisionsResponse(decision=DECISION)] * 2
    out = run("decisions", "--follow", "-o", "yaml")[1]

    assert [found["decision"]["count"] for found in yaml.safe_load_all(out)] == ["3", "3"]


@pytest.mark.parametrize("prefix", [[], ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]], ids=["by hand", "background"])
def test_each_line_is_there_as_soon_as_it_came_and_interrupting_is_quiet(agent, prefix):
    """In a process of its own, its output a pipe; a script that starts it in the background has SIGINT ignored."""
    gone = threading.Event()

    def one_and_no_more():
        yield pb.WatchDecisionsResponse(decision=DECISION)
        gone.wait(HUNG_S)

    agent.prepared.answers["WatchDecisions"] = one_and_no_more()
    words = [*prefix, sys.executable, "-m", "arpguard", "decisions", "--follow", "-o", "json"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as follower:
        ready, _, _ = select.select([follower.stdout], [], [], HUNG_S)
        line = follower.stdout.readline() if ready else b"null"
        follower.send_signal(signal.SIGINT)
        _, err = follower.communicate(timeout=HUNG_S)
    gone.set()

    assert json.loads(line)["decision"]["vip"] == "192.0.2.10"
    assert (follower.returncode, err) == (130, b"")


def test_pages_that_end_exactly_at_the_limit_ask_for_no_more(agent, run):
    every = [pb.Decision(count=number) for number in range(2000)]
    agent.prepared.answers["ListDecisions"] = pages(every, "decisions", pb.ListDecisionsResponse)
    run("decisions", "--limit", str(DEFAULT_LIMIT))

    assert [request.page_size for request in agent.prepared.requests] == [DEFAULT_LIMIT]


@pytest.mark.parametrize("module", ["status", "vips", "explain", "watch"])
def test_asking_an_agent_imports_nothing_that_reads_the_kernel(module):
    """That is half of all imports, and takes as long as everything else that such a command does."""
    imports = f"import sys, arpguard.cli.main, arpguard.cli.{module}"
    found = f"{imports}\nprint([name for name in {KERNEL} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-I", "-c", found], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
