"""Every status code that a method may end with, and the message, which names the field."""

import base64

import pytest

from api.apitools import (
    EXHAUSTED,
    INVALID,
    NOT_FOUND,
    SERVICE,
    UNARY,
    a_decision,
    a_node,
    an_api,
    ended,
    served,
)
from api.conftest import EXTERNAL, OWNED
from arpguard.core.auditing import Expected, judge
from arpguard.core.claimants import ClaimantKind
from arpguard.model import EntryKey, VipEntry
from arpguard.overlay import Overlay
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Kind, Reason
from support.netns.cable import address
from support.netns.waiting import HUNG_S, until

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

ADDRESS = "must be an IP address such as 192.0.2.10"
HOST = "must be a host's address, but "
MAC = "must be a MAC address such as 02:00:00:00:00:aa"
LINK = "must be the name of a network interface, at most 15 bytes"
SIZE = "must be 0 to 1000 (0 means 100)"
TOKEN = "must be the next_page_token of the previous page for the same filter, or empty for the first page"
OPERATIONS = "must be one of REQUEST, PROBE, REPLY, ANNOUNCEMENT, OUT_REQUEST, OUT_REPLY, OUT_ANNOUNCEMENT"
VERDICTS = "must be one of PASS, ANSWER, SUPPRESS, REWRITE, CONFLICT, REPORT"
NO_REASON = max(Reason) + 1
REASONS = f"must be one of {', '.join(reason.name for reason in Reason)}"
KINDS = "must be one of OWNED, FOREIGN, EXTERNAL, UNCLAIMED, DELEGATED"
TIME = "must be a time from 1970 to 9999"
FOREIGN_TOKEN = base64.urlsafe_b64encode(b"1.2.3.4").decode()
V = str(OWNED)

INVALID_LISTS = [
    ({"page_size": -1}, f"page_size: -1: {SIZE}"),
    ({"page_size": -(2**31)}, f"page_size: -2147483648: {SIZE}"),
    ({"page_token": "!"}, f"page_token: !: {TOKEN}"),
    ({"page_token": FOREIGN_TOKEN}, f"page_token: {FOREIGN_TOKEN}: {TOKEN}"),
]
INVALID_FILTERS = [
    ({"filter": {"vip": "192.0.2"}}, f"filter.vip: 192.0.2: {ADDRESS}"),
    ({"filter": {"vip": "fe80::1%eth0"}}, f"filter.vip: fe80::1%eth0: {ADDRESS}"),
    ({"filter": {"link": "a/b"}}, f"filter.link: a/b: {LINK}"),
    ({"filter": {"verdict": 7}}, f"filter.verdict: 7: {VERDICTS}"),
    ({"filter": {"verdict": -1}}, f"filter.verdict: -1: {VERDICTS}"),
    ({"filter": {"reason": NO_REASON}}, f"filter.reason: {NO_REASON}: {REASONS}"),
    ({"filter": {"since": {"seconds": -1}}}, f"filter.since: -1 s, 0 ns: {TIME}"),
    ({"filter": {"since": {"seconds": 2**63 - 1}}}, f"filter.since: {2**63 - 1} s, 0 ns: {TIME}"),
    ({"filter": {"since": {"nanos": 10**9}}}, f"filter.since: 0 s, 1000000000 ns: {TIME}"),
    ({"filter": {"since": {"nanos": -1}}}, f"filter.since: 0 s, -1 ns: {TIME}"),
]
REFUSED = {
    "ListVips": [
        *INVALID_LISTS,
        ({"link": "a" * 16}, f"link: {'a' * 16}: {LINK}"),
        ({"link": "a\n"}, rf"link: 'a\n'...: {LINK}"),
        ({"kind": 6}, f"kind: 6: {KINDS}"),
        ({"kind": -1}, f"kind: -1: {KINDS}"),
    ],
    "GetVip": [
        ({}, f"address: (empty): {ADDRESS}"),
        ({"address": "node-1"}, f"address: node-1: {ADDRESS}"),
        ({"address": f"{V}/32"}, f"address: {V}/32: {ADDRESS}"),
        ({"address": f" {V}"}, f"address:  {V}: {ADDRESS}"),
    ],
    "ExplainVip": [
        ({}, f"address: (empty): {ADDRESS}"),
        ({"address": "node-1"}, f"address: node-1: {ADDRESS}"),
        ({"address": "fe80::1"}, f"address: fe80::1: {HOST}is a link-local address"),
        ({"address": "224.0.0.1"}, f"address: 224.0.0.1: {HOST}is a multicast address"),
        ({"address": V, "link": "a b"}, f"link: a b: {LINK}"),
        ({"address": V, "operations": [1, 8]}, f"operations: 8: {OPERATIONS}"),
        ({"address": V, "operations": [0]}, f"operations: 0: {OPERATIONS}"),
        ({"address": V, "operations": [-1]}, f"operations: -1: {OPERATIONS}"),
        ({"address": V, "operations": [1] * 65}, "operations: 65 items: must be at most 64"),
        ({"address": V, "sender_mac": "02:00:00"}, f"sender_mac: 02:00:00: {MAC}"),
        ({"address": V, "sender_address": "x"}, f"sender_address: x: {ADDRESS}"),
        (
            {"address": V, "sender_address": "2001:db8::1"},
            f"sender_address: 2001:db8::1: must be an IPv4 address, like {V}",
        ),
        (
            {"address": "2001:db8::1", "sender_address": V},
            f"sender_address: {V}: must be an IPv6 address, like 2001:db8::1",
        ),
        ({"address": V, "sender_address": "0.0.0.0"}, f"sender_address: 0.0.0.0: {HOST}is the unspecified address"),
    ],
    "ListDecisions": [*INVALID_LISTS, *INVALID_FILTERS],
    "WatchDecisions": INVALID_FILTERS,
    "ListAudits": INVALID_LISTS,
    "AuditVip": [({}, f"address: (empty): {ADDRESS}"), ({"address": f"{V}/32"}, f"address: {V}/32: {ADDRESS}")],
    "ListConflicts": [
        *INVALID_LISTS,
        ({"vip": "192.0.2"}, f"vip: 192.0.2: {ADDRESS}"),
        ({"link": "a b"}, f"link: a b: {LINK}"),
        ({"claimant": 7}, f"claimant: 7: must be one of {', '.join(kind.name for kind in ClaimantKind)}"),
    ],
}
CASES = [
    pytest.param(method, fields, message, id=f"{method} {message[:40]}")
    for method, cases in REFUSED.items()
    for fields, message in cases
]

COUNTED_S = 10.0


def asked(api, method: str, fields: dict) -> object:
    """The answer; of a stream, its items."""
    answer = getattr(api, method)(**fields)
    return answer if method in UNARY else list(answer)


@pytest.mark.parametrize(("method", "fields", "message"), CASES)
def test_wrong_field_is_refused_and_named(api, method, fields, message):
    assert ended(lambda: asked(api, method, fields)) == (INVALID, message)


@pytest.mark.parametrize(
    ("method", "fields", "message"),
    [
        ("GetVip", {"address": str(address(60))}, f"address: {address(60)}: not guarded on any link of node-1"),
        ("AuditVip", {"address": str(address(60))}, f"address: {address(60)}: not guarded on any link of node-1"),
        ("GetVip", {"address": "2001:db8::1"}, "address: 2001:db8::1: not guarded on any link of node-1"),
        ("GetVip", {"address": f"::ffff:{OWNED}"}, "address: ::ffff:c633:6432: not guarded on any link of node-1"),
        ("GetVip", {"address": "224.0.0.1"}, "address: 224.0.0.1: not guarded on any link of node-1"),
        (
            "ExplainVip",
            {"address": V, "link": "eth9"},
            "link: eth9: not guarded on this node; guarded links: eth0, eth1",
        ),
    ],
)
def test_what_this_node_does_not_guard_is_not_found(api, method, fields, message):
    assert ended(lambda: asked(api, method, fields)) == (NOT_FOUND, message)


GARBAGE = [
    *(
        (method.name, data)
        for method in SERVICE.methods
        for data in (b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 200)
    ),
    ("GetVip", b"\x0a\x01\xff"),
    ("ListVips", b"\x12\x01\xff"),
    ("WatchDecisions", b"\x0a\x03\x0a\x01\xff"),
]


@pytest.mark.parametrize(("method", "data"), GARBAGE, ids=repr)
def test_bytes_that_are_no_message_are_refused(api, method, data):
    """A field without an end, a length past the end, groups nested too deep, and text that is no UTF-8."""

    def call() -> object:
        if method in UNARY:
            return api.raw(method, data)
        return list(api.channel.unary_stream(f"/{SERVICE.full_name}/{method}")(data, timeout=HUNG_S))

    assert ended(call) == (INVALID, "the request cannot be parsed as the method's message")


@pytest.mark.parametrize("name", ["Nothing", "getVip", "ListVips/", ""])
def test_unknown_method_is_unimplemented(api, name):
    assert ended(lambda: api.raw(name, b""))[0].name == "UNIMPLEMENTED"


def test_request_of_64_kib_is_read_and_a_longer_one_is_not(api):
    """Of an unknown field, which the method ignores; its tag and length take four bytes."""

    def padded(size: int) -> bytes:
        return b"\x7a" + bytes((0x80 | size & 0x7F, 0x80 | size >> 7 & 0x7F, size >> 14)) + bytes(size)

    assert len(padded((64 << 10) - 4)) == 64 << 10
    assert pb.GetStatusResponse.FromString(api.raw("GetStatus", padded((64 << 10) - 4))).node == "node-1"
    code, message = ended(lambda: api.raw("GetStatus", padded((64 << 10) - 3)))
    assert code == EXHAUSTED
    assert "65537 vs. 65536" in message


def test_field_of_a_later_version_is_ignored(api):
    request = pb.GetVipRequest(address=V).SerializeToString() + b"\xfa\x07\x03abc"

    assert pb.GetVipResponse.FromString(api.raw("GetVip", request)).vips[0].address == V


# ---- pages -------------------------------------------------------------------------------------------------------

TOTAL = 2345


@pytest.fixture(scope="module")
def crowd(loaded, tmp_path_factory):
    """A node with TOTAL VIPs, decisions and conflicts."""
    entries = {
        EntryKey(1 + number % 2, address(0) + number): VipEntry(Kind.FOREIGN if number % 3 else Kind.EXTERNAL)
        for number in range(1, TOTAL + 1)
    }
    with served(a_node(loaded, entries), tmp_path_factory.mktemp("crowd")) as made:
        made.decide(*(a_decision(number, reason=Reason.CONFLICT) for number in range(1, TOTAL + 1)))
        for key in entries:
            made.node.audits.settle(judge(key, "eth1", Expected("node-2"), {}, 1))
        yield made


LISTS = {
    "ListVips": ("vips", lambda item: (item.ifindex, item.address)),
    "ListDecisions": ("decisions", lambda item: item.sha),
    "ListConflicts": ("conflicts", lambda item: item.mac),
    "ListAudits": ("audits", lambda item: item.vip),
}


def pages(api, method: str, **fields) -> list[list]:
    """Every page of a list."""
    found, token = [], ""
    while not found or token:
        answer = getattr(api, method)(page_token=token, **fields)
        found.append(list(getattr(answer, LISTS[method][0])))
        token = answer.next_page_token
        assert len(found) < 500, "no end"
    return found


def expected(crowd, method: str) -> list:
    """What is to be listed, in order."""
    if method == "ListVips":
        return [(key.ifindex, str(key.vip)) for key in sorted(crowd.node.state.entries, key=lambda key: key.order)]
    if method == "ListAudits":
        return [str(key.vip) for key in sorted(crowd.node.state.entries, key=lambda key: key.order)]
    return [str(a_decision(number).sha) for number in range(TOTAL, 0, -1)]


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize(
    ("size", "length"), [(0, 100), (1000, 1000), (5000, 1000), (2**31 - 1, 1000), (TOTAL // 5, 469), (335, 335)]
)
def test_pages_give_every_item_once_and_in_order(crowd, method, size, length):
    """469 goes into TOTAL five times and 335 seven times: no empty page is left at the end."""
    with an_api(crowd.address) as api:
        found = pages(api, method, page_size=size)

    assert [len(page) for page in found[:-1]] == [length] * (len(found) - 1)
    assert len(found) == -(-TOTAL // length)
    assert [LISTS[method][1](item) for page in found for item in page] == expected(crowd, method)


def test_list_is_counted_as_a_whole_on_every_page(crowd):
    with an_api(crowd.address) as api:
        token = api.ListVips(page_size=10, kind=pb.KIND_EXTERNAL).next_page_token
        answer = api.ListVips(page_size=10, kind=pb.KIND_EXTERNAL, page_token=token)

    assert (len(answer.vips), answer.total_size) == (10, TOTAL // 3)


@pytest.mark.parametrize("method", LISTS)
def test_last_page_has_no_token_also_when_it_is_full(crowd, method):
    with an_api(crowd.address) as api:
        found = pages(api, method, page_size=TOTAL // 5)

    assert [len(page) for page in found] == [469] * 5


@pytest.mark.parametrize(
    ("method", "fields", "other"),
    [
        ("ListVips", {"link": "eth1"}, {"link": "eth2"}),
        ("ListVips", {"kind": pb.KIND_FOREIGN}, {}),
        ("ListDecisions", {"filter": {"reason": pb.REASON_CONFLICT}}, {"filter": {"vip": "192.0.2.100"}}),
        ("ListConflicts", {"link": "eth1"}, {}),
    ],
)
def test_token_of_another_filter_is_refused(crowd, method, fields, other):
    with an_api(crowd.address) as api:
        token = getattr(api, method)(page_size=5, **fields).next_page_token
        assert getattr(api, method)(page_size=7, page_token=token, **fields)
        code, message = ended(lambda: getattr(api, method)(page_token=token, **other))

    assert (code, message) == (INVALID, f"page_token: {token}: {TOKEN}")


def test_token_of_another_method_is_refused(crowd):
    with an_api(crowd.address) as api:
        token = api.ListDecisions(page_size=5).next_page_token
        assert ended(lambda: api.ListConflicts(page_token=token))[0] == INVALID


def test_decisions_that_come_between_two_pages_are_on_neither(loaded, tmp_path):
    with served(a_node(loaded), tmp_path) as node, an_api(node.address) as api:
        node.decide(*(a_decision(number) for number in range(6)))
        first = api.ListDecisions(page_size=3)
        node.decide(a_decision(99), a_decision(4))
        second = api.ListDecisions(page_size=3, page_token=first.next_page_token)

    hosts = [str(a_decision(number).sha) for number in (5, 4, 3, 2, 1, 0)]
    assert [item.sha for item in (*first.decisions, *second.decisions)] == hosts
    assert second.next_page_token == ""


def test_vip_that_goes_between_two_pages_disturbs_nobody_else(loaded, tmp_path):
    entries = {EntryKey(1, address(number)): VipEntry(Kind.FOREIGN) for number in range(1, 7)}
    with served(a_node(loaded, entries), tmp_path) as node, an_api(node.address) as api:
        first = api.ListVips(page_size=3)

        def remove() -> None:
            """The one that the token stands for, and the one after it."""
            node.node.table.delete([EntryKey(1, address(number)) for number in (3, 4)])
            gone = address(3), address(4)
            left = {key: entry for key, entry in node.node.state.entries.items() if key.vip not in gone}
            node.node.state.guarded = Overlay(left)

        node.on_loop(remove)
        second = api.ListVips(page_size=3, page_token=first.next_page_token)

    assert [vip.address for vip in (*first.vips, *second.vips)] == [str(address(number)) for number in (1, 2, 3, 5, 6)]


def test_calls_are_counted_with_the_code_they_ended_with(loaded, tmp_path):
    entries = {EntryKey(1, EXTERNAL): VipEntry(Kind.EXTERNAL)}
    with served(a_node(loaded, entries), tmp_path) as node, an_api(node.address) as api:
        api.GetVip(address=str(EXTERNAL))
        ended(lambda: api.GetVip(address=V))
        ended(lambda: api.GetVip(address="x"))
        ended(lambda: api.raw("GetVip", b"\xff"))
        ended(lambda: list(api.WatchDecisions(filter={"verdict": 9})))
        expected = {
            ("GetVip", "OK"): 1,
            ("GetVip", "NOT_FOUND"): 1,
            ("GetVip", "INVALID_ARGUMENT"): 2,
            ("WatchDecisions", "INVALID_ARGUMENT"): 1,
        }
        until(lambda: node.on_loop(lambda: dict(node.meter.calls)) == expected, COUNTED_S)  # after the answer was sent
