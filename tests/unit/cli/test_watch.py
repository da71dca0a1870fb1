"""The live view: rates, what fits on which screen, and a terminal that is left as it was."""

import json
import re
import signal
import sys
import termios
import time
from contextlib import closing, contextmanager
from dataclasses import replace

import grpc
import pytest
from rich.cells import cell_len
from rich.console import Console

from arpguard.cli import watch
from arpguard.cli.client import Target, connected
from arpguard.cli.clustering import watch_line
from arpguard.cli.polling import Poller, Rates, Sample, VipRate
from arpguard.cli.watch import view
from arpguard.cli.watchkeys import HELP, ORDERS, Keys
from arpguard.v1 import agent_pb2 as pb
from support.cli import DECISION, HOSTILE, VIP, lines_of
from support.netns.waiting import until
from support.terminal import Terminal

UNTOUCHED = Keys()
SIZES = [(80, 24), (120, 40), (60, 12), (40, 8), (200, 60)]


def vip(address: str, frames: int) -> pb.Vip:
    return pb.Vip(address=address, ifindex=2, reasons=[pb.ReasonCount(reason=pb.REASON_FOREIGN, enforced=frames)])


# ---- rates -------------------------------------------------------------------------------------------------------


def test_rate_is_the_difference_of_counters_over_the_time_between():
    rates = Rates()
    rates.take([vip("10.0.0.1", 100), vip("10.0.0.2", 5)], 10.0)
    assert [reading.per_second for reading in rates.busiest()] == [0, 0]
    rates.take([vip("10.0.0.1", 150), vip("10.0.0.2", 505)], 12.0)

    assert [(reading.vip.address, reading.per_second) for reading in rates.busiest()] == [
        ("10.0.0.2", 250),
        ("10.0.0.1", 25),
    ]


def test_counter_that_was_made_anew_is_no_negative_rate():
    rates = Rates()
    rates.take([vip("10.0.0.1", 100)], 1.0)
    rates.take([vip("10.0.0.1", 3)], 2.0)
    assert rates.busiest()[0].per_second == 0
    rates.take([vip("10.0.0.1", 7)], 3.0)

    assert rates.busiest()[0].per_second == 4


def test_vip_goes_with_the_round_in_which_it_was_not_seen():
    rates = Rates()
    rates.take([vip("10.0.0.1", 0), vip("10.0.0.2", 0)], 1.0)
    rates.end_round()
    rates.take([vip("10.0.0.1", 0)], 2.0)
    assert len(rates.busiest()) == 2
    rates.end_round()

    assert [reading.vip.address for reading in rates.busiest()] == ["10.0.0.1"]


# ---- asking ------------------------------------------------------------------------------------------------------


@contextmanager
def polled(served, interval_s):
    with connected(Target(served.target)) as agent:
        poller = Poller(agent, interval_s)
        poller.start()
        try:
            yield poller
        finally:
            poller.end()
            poller.join()


def a_page(every):
    def answer(request):
        start = int(request.page_token or 0)
        end = start + request.page_size
        return pb.ListVipsResponse(vips=every[start:end], next_page_token=str(end) if end < len(every) else "")

    return answer


def test_many_vips_are_read_over_several_intervals(agent):
    """A slow agent: each interval has time for one page only, and yet all are read."""
    every = [vip(f"10.0.{number >> 8}.{number & 255}", number) for number in range(2500)]
    page = a_page(every)

    def slow(request):
        time.sleep(0.06)
        return page(request)

    agent.prepared.answers |= {"ListVips": slow, "ListDecisions": pb.ListDecisionsResponse(decisions=[DECISION])}
    with polled(agent, 0.1) as poller:
        until(lambda: len(poller.latest.vips) == 2500, 20)
        asked = [type(request) for request in agent.prepared.requests]

    pages = asked.count(pb.ListVipsRequest)
    assert abs(pages - asked.count(pb.GetStatusRequest)) <= 1
    assert poller.latest.vips[0].vip.address == every[-1].address
    assert list(poller.latest.decisions) == [DECISION]


def test_few_pages_are_read_in_one_interval(agent):
    every = [vip(f"10.0.{number >> 8}.{number & 255}", number) for number in range(1500)]
    agent.prepared.answers |= {"ListVips": a_page(every), "ListDecisions": pb.ListDecisionsResponse()}
    with polled(agent, 30) as poller:
        until(lambda: poller.latest.number, 20)

    assert (poller.latest.number, len(poller.latest.vips)) == (1, 1500)


def test_what_was_known_stays_while_nobody_answers(agent):
    agent.prepared.answers |= {
        "ListVips": pb.ListVipsResponse(vips=[VIP]),
        "ListDecisions": pb.ListDecisionsResponse(decisions=[DECISION]),
    }
    with polled(agent, 0.05) as poller:
        until(lambda: poller.latest.number, 20)
        status = agent.prepared.answers["GetStatus"]
        agent.prepared.answers["GetStatus"] = (grpc.StatusCode.UNAVAILABLE, "starting")
        until(lambda: poller.latest.trouble, 20)
        sample = poller.latest
        assert "starting" in sample.trouble
        assert (sample.status, len(sample.vips), len(sample.decisions)) == (status, 1, 1)
        agent.prepared.answers["GetStatus"] = status
        until(lambda: not poller.latest.trouble, 20)


# ---- the screen --------------------------------------------------------------------------------------------------


def a_sample(text="eth0", vips=500, trouble=""):
    status = pb.GetStatusResponse(
        node=f"node {text}",
        mode=pb.MODE_ENFORCE,
        links=[pb.Link(name=text, mac=text, attachments=[pb.Attachment(hook=2, how=text, program_id=7)])] * 20,
        problems=[f"problem {text}", "another", "a third"],
        kinds=[pb.KindCount(kind=kind, count=12345) for kind in range(1, 6)],
    )
    readings = [
        VipRate(pb.Vip(address=f"10.0.0.{number}", link=text, kind=1, mode=2, owner=text), number, 0.0, 500 - number)
        for number in range(vips)
    ]
    decision = pb.Decision(vip="10.0.0.1", link=text, verdict=5, reason=23, sha=text, count=2**63)
    return Sample(1, status, readings, [decision] * 100, 1234.0, trouble, time.monotonic() - 5)


def in_cluster(sample, **fields):
    """The same of an agent that follows Kubernetes."""
    nodes = [pb.ClusterNode(name="node-1", alive=True), pb.ClusterNode(name="node-2")]
    state = {"state": pb.Kubernetes.STATE_FOLLOWING, "server": "https://api", "nodes": nodes, **fields}
    sample.status.kubernetes.CopyFrom(pb.Kubernetes(**state))
    sample.status.lease.duration.seconds = 3
    return sample


def drawn(sample, width, height, keys=UNTOUCHED):
    console = Console(width=width, height=height, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(view(Target(), sample, width, height, keys))
    return lines_of(captured.get().removesuffix("\n"))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("text", ["services", HOSTILE], ids=["plain", "hostile"])
def test_view_of_a_cluster_fits_the_screen(size, text):
    width, height = size
    lines = drawn(in_cluster(a_sample(text), sources=[{"name": text, "lost": text}]), width, height)

    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= height


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "kubernetes: following   lease 3s not needed   1 of 2 nodes alive"),
        (
            {"state": pb.Kubernetes.STATE_LOST, "sources": [{"name": "services", "lost": "403"}, {"name": "nodes"}]},
            "kubernetes: lost (services)   lease 3s not needed   1 of 2 nodes alive",
        ),
        ({"renewal_problem": "x"}, "kubernetes: following   lease 3s not renewed   1 of 2 nodes alive"),
        ({"yielding": True}, "kubernetes: following   lease 3s held by another agent   1 of 2 nodes alive"),
        (
            {"vouching": {"voucher": "node-2", "bound": True}},
            "kubernetes: following   lease not needed   1 of 2 nodes alive   bound to voucher node-2",
        ),
        (
            {"vouching": {"voucher": "node-2"}},
            "kubernetes: following   lease 3s not needed   1 of 2 nodes alive   not bound to voucher node-2 yet",
        ),
        ({"vouching": {}}, "kubernetes: following   lease 3s not needed   1 of 2 nodes alive   no voucher"),
    ],
    ids=["well", "lost", "not renewed", "yielding", "bound", "named", "no voucher"],
)
def test_view_tells_of_the_cluster_in_a_line(fields, line):
    assert line in [each.rstrip() for each in drawn(in_cluster(a_sample(), **fields), 120, 40)]


def test_title_of_a_vouched_node_is_whole_on_a_narrow_screen():
    sample = in_cluster(a_sample())
    sample.status.node, sample.status.problems[:] = "node-1", []
    sample.status.start_time.FromSeconds(int(time.time()) - 90)
    sample.status.fence_left.FromNanoseconds(48_700_000_000)
    sample.status.voucher_fence_left.FromNanoseconds(855_000_000)
    narrow, wide = (drawn(sample, width, 40)[0] for width in (80, 120))

    assert narrow.startswith("node-1   enforce   no problems   up ")
    assert narrow.rstrip().endswith("   fence 0.855s left   1,234 frames/s")
    assert "   fence API server 48.7s, voucher 0.855s left   " in wide


@pytest.mark.parametrize(("left_ns", "well"), [(None, True), (1, True), (0, False)])
def test_line_of_the_cluster_is_an_alarm_where_the_vouchers_fence_has_passed(left_ns, well):
    status = in_cluster(a_sample(), vouching={"voucher": "node-2", "bound": True}).status
    if left_ns is not None:
        status.voucher_fence_left.FromNanoseconds(left_ns)
    assert watch_line(status)[1] is well


def test_view_of_a_standalone_agent_has_no_such_line():
    assert not [line for line in drawn(a_sample(), 120, 40) if line.startswith("kubernetes")]


def test_view_names_who_has_an_elected_vip():
    sample = a_sample(vips=1)
    sample.vips[0].vip.claim.CopyFrom(pb.Claim(state=pb.Claim.STATE_VALID, holder="node-7", alive=True))

    assert any(" node-7 " in line for line in drawn(sample, 120, 40))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("text", ["eth0", HOSTILE], ids=["plain", "hostile"])
@pytest.mark.parametrize("trouble", ["", f"no agent {HOSTILE}"], ids=["well", "trouble"])
def test_view_fits_the_screen(size, text, trouble):
    width, height = size
    lines = drawn(a_sample(text, trouble=trouble), width, height)

    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= height


@pytest.mark.parametrize("size", [(59, 40), (120, 11)], ids=str)
def test_screen_that_is_too_small_says_so(size):
    assert drawn(a_sample(), *size) == ["screen too small: make it at least 60x12"]


@pytest.mark.parametrize(("rate", "shown"), [(0.9, "1 frame/s "), (0.2, "0 frames/s "), (2, "2 frames/s ")], ids=str)
def test_one_frame_is_no_plural(rate, shown):
    assert shown in drawn(replace(a_sample(), per_second=rate), 120, 40)[0] + " "


def test_problems_are_told_once():
    assert sum("problem" in line for line in drawn(a_sample(), 120, 40)) == 1


def test_long_addresses_and_reasons_leave_the_macs_whole():
    mac = "02:00:00:00:00:50"
    sample = a_sample("eth0", vips=0)
    sample.status.links[0].mac, sample.status.links[0].addresses[:] = mac, ["2001:db8::1/64"] * 9
    reading = VipRate(pb.Vip(address="192.0.2.10", owner=f"external {mac}", reasons=[pb.ReasonCount(reason=28)]), 0, 0)
    lines = drawn(replace(sample, vips=[reading]), 100, 24)

    assert any(line.startswith("eth0 ") and mac in line and "…" in line for line in lines)
    assert any(line.startswith("192.0.2.10 ") and f"external {mac}" in line for line in lines)


@pytest.mark.parametrize("vip", ["198.51.100.250", "2001:db8:51::1234"])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_latest_decisions_say_from_which_mac_whole(vip, width):
    mac = "02:00:00:00:00:99"
    found = pb.Decision(vip=vip, link="eth0", sha=mac, mode=1, verdict="VERDICT_SUPPRESS", reason=28, count=1)
    lines = drawn(replace(a_sample("eth0", vips=0), decisions=[found]), width, 24)

    assert [line for line in lines if f"{vip} " in line and mac in line and "would suppress" in line], lines


@pytest.mark.parametrize(
    ("verdict", "style"), [("VERDICT_CONFLICT", "bold red"), ("VERDICT_REPORT", "yellow"), ("VERDICT_ANSWER", "")]
)
def test_only_what_is_certainly_not_the_owners_is_red(verdict, style):
    """A rightful owner that answers the audit of a standalone node is reported, for it may be another host."""
    cell = next(column.cell for column in watch._DECISIONS if column.title == "VERDICT")

    assert cell(pb.Decision(verdict=verdict, reason=1)).style == style


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
def test_view_fills_the_screen_with_the_busiest_and_the_latest(size):
    lines = drawn(a_sample(), *size)
    vips = [line for line in lines if line.startswith("10.0.0.")]

    assert len(lines) == size[1]
    assert [line.split()[0] for line in vips] == [f"10.0.0.{number}" for number in range(len(vips))]
    assert lines[-1] == f"q quit, ? help | 1 to {len(vips)} of 500 VIPs, busiest first"
    assert sum("conflict" in line for line in lines) >= 3
    assert "1,234 frames/s" in lines[0]
    assert any(line.startswith("3 problems: problem eth0 (and 2 more") for line in lines)


def test_narrow_screen_drops_columns():
    narrow, wide = drawn(a_sample(), 80, 24), drawn(a_sample(), 120, 40)

    assert "VIP       LINK  KIND   MODE     FRAMES/S  TOTAL" in narrow
    assert next(line.split()[-1] for line in narrow if line.startswith("LINK ")) == "EGRESS"
    assert [line.split()[-1] for line in narrow if line.startswith("TIME ")] == ["FROM"]
    assert "VIP        LINK  KIND   MODE     OWNER  FRAMES/S  TOTAL  TOP REASON" in wide
    assert not any("…" in line for line in wide[3:])


def test_view_says_that_the_agent_is_gone_and_how_old_it_is():
    lines = drawn(a_sample(trouble="no agent listens: start it"), 120, 40)

    assert any(
        re.fullmatch(r"no answer from unix:///run/.*: trying again; the data shown is 5s old *", line) for line in lines
    )
    assert any("(no agent listens: start it)" in line for line in lines)


def test_view_before_the_first_answer():
    assert drawn(Sample(), 80, 24) == ["asking unix:///run/arpguard/agent.sock"]
    assert drawn(Sample(trouble="nobody"), 80, 24)[0].startswith(
        "no answer from unix:///run/arpguard/agent.sock: trying"
    )


# ---- keys ----------------------------------------------------------------------------------------------------------


def typed(text, count=500):
    return Keys().after(text, count)


def shown(sample, keys):
    return [line.split()[0] for line in drawn(sample, 120, 40, keys) if line.startswith("10.0.0.")]


@pytest.mark.parametrize(
    ("text", "first"),
    [("j", 1), ("jjk", 1), ("k", 0), ("\x1b[6~", 10), ("\x1b[6~\x1b[5~", 0), ("\x1b[B\x1bOB", 2), ("jjj\x1b[H", 0)],
)
def test_keys_scroll_through_the_vips(text, first):
    assert shown(a_sample(), typed(text))[0] == f"10.0.0.{first}"


def test_no_key_scrolls_beyond_the_last_vip():
    keys = typed("\x1b[6~" * 100)
    lines = drawn(a_sample(), 120, 40, keys)

    assert lines[-1].endswith("of 500 VIPs, busiest first")
    assert f" to {500} of" in lines[-1]
    assert keys.first < 500


def test_needle_is_looked_for_in_vips_and_decisions():
    keys = typed("/10.0.0.7\r")
    lines = drawn(a_sample(), 120, 40, keys)

    assert set(shown(a_sample(), keys)) == {"10.0.0.7", *(f"10.0.0.7{digit}" for digit in range(10))}
    assert not any("conflict" in line for line in lines[3:])
    assert "/10.0.0.7: 11 of 500 VIPs" in lines[-1]
    assert not keys.types


@pytest.mark.parametrize(
    ("text", "needle", "types"),
    [
        ("/ab\x7fc", "ac", True),
        ("/ab\x1b", "", False),
        ("/ab\r", "ab", False),
        ("/ab\r\x1b", "", False),
        ("/q", "q", True),
    ],
)
def test_needle_is_edited_kept_and_dropped(text, needle, types):
    keys = typed(text)
    assert (keys.needle, keys.types, keys.left) == (needle, types, False)


def test_vips_are_sorted_by_the_next_of_all_orders():
    sample = replace(
        a_sample(), vips=[VipRate(vip(f"10.0.0.{n}", 0), total, 0, n) for n, total in ((9, 1), (10, 3), (2, 2))]
    )
    orders = [[reading.vip.address[7:] for reading in typed("s" * n).vips(sample.vips)] for n in range(len(ORDERS) + 1)]

    assert orders == [["9", "10", "2"], ["2", "9", "10"], ["2", "9", "10"], ["10", "2", "9"], ["9", "10", "2"]]


def test_help_lists_every_key_on_the_lowest_screen_that_has_room():
    lines = drawn(a_sample(), 80, 24, typed("?"))
    assert [key for key, _ in HELP if not any(line.startswith(key) for line in lines)] == []
    assert drawn(a_sample(), 80, 24, typed("??")) == drawn(a_sample(), 80, 24)


@pytest.mark.parametrize("text", ["?", "/x", " ", "s", "\x1b[6~"], ids=["help", "filter", "still", "sort", "scroll"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_view_fits_the_screen_whatever_was_typed(text, size):
    lines = drawn(a_sample(HOSTILE), *size, typed(text))

    assert max(map(cell_len, lines)) <= size[0]
    assert len(lines) <= size[1]


def test_unknown_keys_do_nothing():
    assert typed("x\x1b[15~\x1b[C\t") == Keys()


# ---- documents -----------------------------------------------------------------------------------------------------


def test_documents_need_no_terminal_and_end_with_the_agent(run, agent):
    """What `kubectl arpguard watch` reads on each node."""
    answers = agent.prepared.answers
    asked = []

    def conflicts(request):
        asked.append(request)
        if len(asked) == 2:
            answers["GetStatus"] = (grpc.StatusCode.UNAVAILABLE, "gone")
        return pb.ListConflictsResponse(conflicts=[pb.Conflict(vip="192.0.2.10", mac="02:00:00:00:00:99")])

    answers |= {
        "ListVips": pb.ListVipsResponse(vips=[vip("192.0.2.11", 3), vip("192.0.2.10", 7)]),
        "ListConflicts": conflicts,
    }
    code, out, err = run("watch", "--interval", "0.1", "-o", "json")
    first, second = map(json.loads, out.splitlines())

    assert (code, err.count("\n")) == (3, 1)
    assert first["status"]["node"] == "node-1"
    assert [(each["vip"]["address"], each["frames"]) for each in second["vips"]] == [
        ("192.0.2.10", 7),
        ("192.0.2.11", 3),
    ]
    assert [found["mac"] for found in second["conflicts"]] == ["02:00:00:00:00:99"]


# ---- a terminal --------------------------------------------------------------------------------------------------


def test_without_a_terminal_watch_exits_2(run, agent):
    code, out, err = run("watch")

    assert (code, out) == (2, "")
    assert err == "arpguard watch: needs a terminal: `arpguard status` and `arpguard decisions --follow` need none\n"


@pytest.fixture
def terminals(agent):
    """Opens terminals."""
    agent.prepared.answers |= {
        "ListVips": pb.ListVipsResponse(vips=[VIP]),
        "ListDecisions": pb.ListDecisionsResponse(decisions=[DECISION]),
    }
    opened = []

    def opener(interval: str) -> Terminal:
        words = [sys.executable, "-m", "arpguard", "watch", "--interval", interval, "--address", agent.target]
        opened.append(Terminal(words))
        return opened[-1]

    yield opener
    for each in opened:
        each.close()


@pytest.fixture
def terminal(terminals) -> Terminal:
    return terminals("0.1")


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (lambda terminal: terminal.type(b"q"), 0),
        (lambda terminal: terminal.signal(signal.SIGINT), 130),
        (lambda terminal: terminal.signal(signal.SIGTERM), 143),
        (lambda terminal: terminal.signal(signal.SIGHUP), 129),
    ],
    ids=["q", "interrupt", "terminate", "hang up"],
)
def test_leaving_puts_the_terminal_back(terminal, leave, code):
    until(lambda: "192.0.2.10" in terminal.read(), 20)
    assert termios.tcgetattr(terminal.leader) != terminal.settings
    leave(terminal)

    assert terminal.left() == code
    assert terminal.is_as_it_was
    assert "Traceback" not in terminal.printed


def test_it_leaves_with_its_terminal(terminal):
    until(lambda: "192.0.2.10" in terminal.read(), 20)
    assert terminal.vanish() == 129


# A view that says when it is about to write: rich has by then checked that there is a terminal.
BUSY = """
import itertools, os, time
from types import SimpleNamespace
from arpguard.cli import screen

numbers = itertools.count()

class Slow:
    def __rich_console__(self, console, options):
        os.write(1, b"busy")
        time.sleep(0.5)
        yield "shown"

screen.show(lambda: SimpleNamespace(number=next(numbers), vips=[]), lambda *_: Slow())
"""


def test_it_leaves_when_it_writes_to_a_terminal_that_is_gone():
    with closing(Terminal([sys.executable, "-c", BUSY])) as terminal:
        until(lambda: terminal.read().count("busy") > 1, 20)
        assert terminal.vanish() == 129


def test_new_size_is_followed_at_once(terminals):
    terminal = terminals("60")
    until(lambda: "192.0.2.10" in terminal.read(), 20)
    assert "TOP REASON" not in terminal.printed
    terminal.resize(120, 40)
    until(lambda: "TOP REASON" in terminal.read(), 20)
    terminal.type(b"q")

    assert terminal.left() == 0


def test_agent_that_goes_and_comes_back_is_followed(serve, tmp_path, terminal, agent):
    until(lambda: "192.0.2.10" in terminal.read(), 20)
    agent.stop()
    until(lambda: "trying again" in terminal.read(), 20)
    again = serve(agent.target)
    again.prepared.answers |= agent.prepared.answers
    again.prepared.answers["GetStatus"] = pb.GetStatusResponse(node="node-again")
    until(lambda: "node-again" in terminal.read(), 20)
    terminal.type(b"q")

    assert terminal.left() == 0


def test_screen_that_is_held_still_shows_nothing_new(terminal, agent):
    until(lambda: "192.0.2.10" in terminal.read(), 20)
    terminal.type(b" ")
    until(lambda: "paused" in terminal.read(), 20)
    agent.prepared.answers["GetStatus"] = pb.GetStatusResponse(node="node-renamed")
    asked = len(agent.prepared.requests)
    until(lambda: len(agent.prepared.requests) > asked + 6, 20)
    assert "node-renamed" not in terminal.read()
    terminal.type(b" ")
    until(lambda: "node-renamed" in terminal.read(), 20)
    terminal.type(b"q")

    assert terminal.left() == 0
