"""grpcurl, as operators use it: over the socket and over loopback, with nothing but the address."""

import itertools
import json
import subprocess
from collections.abc import Callable, Sequence

import pytest

from api.apitools import SERVICE, needs_grpcurl
from api.conftest import FOREIGN, OWNED, PEER_MAC, PINNED
from support.netns.cable import address
from support.netns.waiting import HUNG_S
from support.netns.wire import a_wire
from support.repeating import repeated

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

NAME = SERVICE.full_name
INVALID, NOT_FOUND, TIMED_OUT = 64 + 3, 64 + 5, 64 + 4  # 64 and the status code

Ask = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(params=["socket", "loopback"])
def ask(request, pair, agent) -> Ask:
    """Runs grpcurl on the node: `ask("list")`, `ask("GetVip", {"address": ...})`."""
    program = needs_grpcurl()
    target = agent.api if request.param == "socket" else "127.0.0.1:50051"

    def run(symbol: str, request: dict | None = None, options: Sequence[str] = (), *more: str) -> object:
        data = ["-d", json.dumps(request)] if request is not None else []
        words = [program, "-plaintext", *options, *data, target, symbol, *more]
        return subprocess.run(
            [*pair.node.netns.prefix(), *words], capture_output=True, text=True, timeout=HUNG_S, check=False
        )

    return run


def answer(done: "subprocess.CompletedProcess[str]") -> dict:
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_services_are_listed(ask):
    assert ask("list").stdout.split() == [
        "arpguard.v1.AgentService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    ]


def test_methods_are_listed(ask):
    assert sorted(ask("list", None, (), NAME).stdout.split()) == sorted(method.full_name for method in SERVICE.methods)


@pytest.mark.parametrize(
    ("symbol", "words"),
    [
        (NAME, "rpc WatchDecisions ( .arpguard.v1.WatchDecisionsRequest ) returns ( stream"),
        (f"{NAME}.GetVip", "rpc GetVip ( .arpguard.v1.GetVipRequest ) returns ( .arpguard.v1.GetVipResponse );"),
        ("arpguard.v1.GetVipRequest", "string address = 1;"),
        ("arpguard.v1.Reason", "REASON_CONFLICT = 23;"),
    ],
)
def test_definition_is_described(ask, symbol, words):
    done = ask("describe", None, (), symbol)

    assert done.returncode == 0, done.stderr
    assert words in done.stdout


def test_status(ask):
    status = answer(ask(f"{NAME}/GetStatus"))

    assert (status["node"], status["mode"], status["entries"]) == ("node-1", "MODE_ENFORCE", 14)
    assert [link["name"] for link in status["links"]] == ["eth0", "eth1"]


def test_vips_page_by_page(ask):
    """To the end, as a script would."""
    found, token = [], ""
    while not found or token:
        page = answer(ask(f"{NAME}/ListVips", {"page_size": 5, "page_token": token}))
        assert page["totalSize"] == 14
        found += [(vip["link"], vip["address"]) for vip in page["vips"]]
        token = page.get("nextPageToken", "")

    assert len(found) == 14
    assert found == sorted(found)


def test_vip_with_names_of_enums(ask):
    vips = answer(ask(f"{NAME}/GetVip", {"address": str(PINNED)}))["vips"]

    assert [(vip["kind"], vip["ownerMac"]) for vip in vips] == [("KIND_EXTERNAL", PEER_MAC)] * 2


def test_explanation(ask):
    request = {"address": str(OWNED), "link": "eth0", "operations": ["OPERATION_PROBE"]}
    (link,) = answer(ask(f"{NAME}/ExplainVip", request))["links"]

    assert (link["summary"], len(link["ownership"]["steps"])) == ("owned, this node answers", 5)
    assert [(frame["fate"], frame["result"]["text"]) for frame in link["frames"]] == [
        ("FATE_ANSWERED", f"{OWNED} is-at 02:00:00:00:00:01")
    ]


def test_decisions_and_conflicts(ask, pair):
    with a_wire(pair.client) as wire:
        wire.exchange([wire.request(FOREIGN)], OWNED)
    found = answer(ask(f"{NAME}/ListDecisions", {"filter": {"vip": str(FOREIGN), "reason": "REASON_FOREIGN"}}))

    assert {item["verdict"] for item in found["decisions"]} == {"VERDICT_SUPPRESS"}
    assert answer(ask(f"{NAME}/ListConflicts")) == {}


def test_stream_under_traffic_ends_with_the_time_given(ask, pair):
    """Forty hosts ask, one after the other; of so many decisions about one VIP the kernel reports a few a second."""
    hosts = itertools.cycle(range(100, 140))
    with a_wire(pair.client) as wire, repeated(lambda: wire.send(wire.request(FOREIGN, address(next(hosts)))), 0.02):
        watched = ask(f"{NAME}/WatchDecisions", {"filter": {"vip": str(FOREIGN)}}, ("-max-time", "5"))
    decoder, at, seen = json.JSONDecoder(), 0, []
    while at < len(watched.stdout.rstrip()):
        item, at = decoder.raw_decode(watched.stdout, at)
        at += 1
        seen.append(item["decision"])

    assert watched.returncode == TIMED_OUT
    assert seen
    assert {item["vip"] for item in seen} == {str(FOREIGN)}
    assert [item["lastTime"] for item in seen] == sorted(item["lastTime"] for item in seen)


@pytest.mark.parametrize(
    ("method", "request_", "code", "name", "message"),
    [
        (
            "GetVip",
            {"address": "x"},
            INVALID,
            "InvalidArgument",
            "address: x: must be an IP address such as 192.0.2.10",
        ),
        ("GetVip", {"address": "203.0.113.9"}, NOT_FOUND, "NotFound", "not guarded on any link of node-1"),
        ("ListVips", {"page_size": -1}, INVALID, "InvalidArgument", "page_size: -1: must be 0 to 1000 (0 means 100)"),
        ("ListVips", {"kind": 99}, INVALID, "InvalidArgument", "kind: 99: must be one of OWNED"),
        ("ExplainVip", {"address": str(OWNED), "link": "eth9"}, NOT_FOUND, "NotFound", "guarded links: eth0, eth1"),
        ("WatchDecisions", {"filter": {"vip": "x"}}, INVALID, "InvalidArgument", "filter.vip: x: "),
    ],
    ids=str,
)
def test_error_is_told_by_exit_code_and_message(ask, method, request_, code, name, message):
    done = ask(f"{NAME}/{method}", request_)

    assert done.returncode == code
    assert f"Code: {name}\n" in done.stderr
    assert message in done.stderr


@pytest.mark.parametrize(
    ("component", "status"),
    [("", "SERVING"), ("dataplane", "SERVING"), ("config", "SERVING"), ("kubernetes", "UNKNOWN")],
)
def test_health(ask, component, status):
    """grpcurl leaves out what is zero, and UNKNOWN is."""
    assert answer(ask("grpc.health.v1.Health/Check", {"service": component})).get("status", "UNKNOWN") == status


def test_health_of_an_unknown_component(ask):
    assert ask("grpc.health.v1.Health/Check", {"service": "x"}).returncode == NOT_FOUND
