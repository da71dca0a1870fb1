"""The copy of the cluster's objects stays right through everything that servers and networks do."""

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from arpguard.clock import boot_ns
from arpguard.kube import client as client_module
from arpguard.kube.listing import PAGE, Scope
from arpguard.kube.projections import service
from arpguard.kube.reflector import DEFAULT_PACE, Change, Pace, Reflector, Reflectors
from arpguard.kube.resources import SERVICES
from support.kube.scripted_server import (
    ScriptedApi,
    a_client,
    a_service,
    a_status,
    an_api,
    answer,
    bookmark,
    broken,
    end,
    event,
    hold,
    in_loop,
    listing,
    refusal,
    reset,
    silence,
    stream,
    until,
)

FAST = Pace(base_s=0.01, cap_s=0.05, steady_s=0.03, watch_s=(5, 9), answer_s=10.0, idle_s=10.0)
IMPATIENT = replace(FAST, answer_s=1.0, idle_s=1.0)
WEB, DB = ("default", "web"), ("default", "db")


class Followed:
    """A reflector of Services that runs, and what it said."""

    def __init__(self, api: ScriptedApi, reflector: Reflector, changes: list[Change]):
        self.api, self.reflector, self.changes = api, reflector, changes
        self.silences = 0

    def silent(self) -> None:
        self.silences += 1

    @property
    def names(self) -> set[str]:
        return {name for _, name in self.reflector.objects}

    @property
    def told(self) -> list[str]:
        """ "+web" appeared, "~web" changed, "-web" went."""
        sign = {(True, False): "+", (False, False): "~", (False, True): "-"}
        return [sign[change.old is None, change.new is None] + change.key[1] for change in self.changes]

    def versions(self) -> list[str | None]:
        """For each watch, the version that it went on from; None for a list."""
        return [seen.query.get("resourceVersion") for seen in self.api.seen]


@asynccontextmanager
async def following(folder, *steps, then=silence, pace=FAST, scope=None, wait=True):
    changes = []
    async with an_api(folder, *steps, then=then) as (api, client), Reflectors() as sources:
        more = {"scope": scope} if scope else {}
        reflector = Reflector(
            client,
            SERVICES,
            service,
            changes.append,
            pace=pace,
            on_silent=lambda: it.silent(),  # noqa: PLW0108 - it is made afterwards
            **more,
        )
        it = Followed(api, reflector, changes)
        sources.start(reflector)
        if wait:
            await until(lambda: reflector.synced)
        yield it


@in_loop
async def test_list_then_watch_from_its_version(tmp_path):
    async with following(tmp_path, listing(a_service()), stream(event("ADDED", a_service("db", "11")))) as it:
        await until(lambda: it.names == {"web", "db"})

        first, second = it.api.seen
        assert first.query == {"limit": str(PAGE)}  # and no resourceVersion: the present, not some cache's past
        assert second.query == {
            "watch": "true",
            "resourceVersion": "10",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": second.query["timeoutSeconds"],
        }
        assert 5 <= int(second.query["timeoutSeconds"]) <= 9
        assert it.told == ["+web", "+db"]


def test_streams_are_asked_to_last_five_to_ten_minutes_and_to_be_heard_of():
    assert DEFAULT_PACE.watch_s == (300, 600)
    assert DEFAULT_PACE.idle_s > 120  # two bookmarks


@in_loop
async def test_scope_goes_with_lists_and_watches(tmp_path):
    scope = Scope("shop", "app=web", "metadata.name=x")
    async with following(tmp_path, listing(), scope=scope) as it:
        await until(lambda: len(it.api.seen) == 2)

        for seen in it.api.seen:
            assert seen.path == "/api/v1/namespaces/shop/services"
            assert (seen.query["labelSelector"], seen.query["fieldSelector"]) == ("app=web", "metadata.name=x")


@in_loop
async def test_changes_are_told_in_order_with_old_and_new(tmp_path):
    lines = [
        event("ADDED", a_service("db", "11")),
        event("MODIFIED", a_service("web", "12", externalIPs=["192.0.2.1"])),
        event("DELETED", a_service("db", "13")),
        event("ADDED", a_service("db", "14")),
    ]
    async with following(tmp_path, listing(a_service()), stream(b"".join(lines))) as it:
        await until(lambda: len(it.changes) == 5)

        assert it.told == ["+web", "+db", "~web", "-db", "+db"]
        changed = it.changes[2]
        assert (changed.old.external_ips, [str(ip) for ip in changed.new.external_ips]) == ((), ["192.0.2.1"])
        assert it.reflector.objects[WEB] is changed.new


@in_loop
async def test_streams_of_some_labels_do_not_tell_of_what_may_be_hidden(tmp_path):
    """What is deleted from them may have other labels now; lists have it all, and what they lack is gone."""
    lines = [
        event("MODIFIED", a_service("web", "12", externalIPs=["192.0.2.1"])),
        *(event("DELETED", a_service(name, "13")) for name in ("web", "db")),
    ]
    gone = event("ERROR", a_status(410))
    steps = [listing(a_service(), a_service("db")), stream(), stream(b"".join(lines), gone), listing()]
    async with following(tmp_path, *steps) as it:
        await until(lambda: it.reflector.state.streams == 1)
        it.reflector.show_only("kind in (a,b)", lambda found: bool(found.external_ips))
        it.reflector.show_only("kind in (a,b)", lambda found: bool(found.external_ips))
        await until(lambda: it.told[-1:] == ["-db"])
        assert it.names == {"web"}
        await until(lambda: it.names == set())

        first, before, after, again = it.api.seen[:4]
        assert "labelSelector" not in first.query | before.query | again.query
        assert after.query == {**before.query, "labelSelector": "kind in (a,b)"} | _seconds(after)
        assert it.told == ["+web", "+db", "~web", "-db", "-web"]
        assert it.silences == it.reflector.state.failures - 1 == 0


def _seconds(seen) -> dict[str, str]:
    return {"timeoutSeconds": seen.query["timeoutSeconds"]}


@in_loop
async def test_streams_of_all_labels_tell_of_all_that_is_deleted(tmp_path):
    steps = [listing(a_service()), stream(), stream(event("DELETED", a_service("web", "13")))]
    async with following(tmp_path, *steps) as it:
        await until(lambda: it.reflector.state.streams == 1)
        it.reflector.show_only("kind=a", lambda _: True)
        it.reflector.show_only("", lambda _: True)
        await until(lambda: it.told == ["+web", "-web"])
        assert "labelSelector" not in it.api.seen[2].query


@in_loop
async def test_change_of_what_is_not_looked_at_is_not_told(tmp_path):
    touched = a_service("web", "11")
    touched["metadata"]["managedFields"] = [{"manager": "x"}]
    lines = event("MODIFIED", touched) + event("ADDED", a_service("db", "12"))
    async with following(tmp_path, listing(a_service()), stream(lines)) as it:
        await until(lambda: DB in it.reflector.objects)

        assert it.told == ["+web", "+db"]


@in_loop
async def test_list_in_pages_is_believed_when_it_is_complete(tmp_path):
    steps = [listing(a_service(), token="t1"), listing(a_service("db"), token="t2"), silence]
    async with following(tmp_path, *steps, wait=False) as it:
        await until(lambda: len(it.api.seen) == 3)

        assert [seen.query.get("continue") for seen in it.api.seen] == [None, "t1", "t2"]
        assert (it.names, it.changes, it.reflector.synced) == (set(), [], False)


@in_loop
async def test_changes_between_pages_are_told_by_the_stream_from_the_version_of_the_list(tmp_path):
    pages = [listing(a_service(), token="t"), listing(a_service("db"))]
    after = event("DELETED", a_service("web", "11")) + event("ADDED", a_service("a", "12"))
    async with following(tmp_path, *pages, stream(after)) as it:
        await until(lambda: it.names == {"db", "a"})

        assert it.told == ["+web", "+db", "-web", "+a"]
        assert it.versions() == [None, None, "10"]


@in_loop
async def test_token_that_expires_between_pages_begins_the_list_anew(tmp_path):
    steps = [
        listing(a_service("old"), token="t1"),
        refusal(410, "Expired", "the provided continue parameter is too old"),
        listing(a_service(), version="20", token="t2"),
        listing(a_service("db"), version="20"),
    ]
    async with following(tmp_path, *steps) as it:
        await until(lambda: len(it.api.seen) == 5)

        assert it.names == {"web", "db"}
        assert it.told == ["+web", "+db"]
        assert [seen.query.get("continue") for seen in it.api.seen[:4]] == [None, "t1", None, "t2"]
        assert it.versions()[-1] == "20"


@in_loop
async def test_list_that_is_too_large_is_asked_for_in_smaller_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 2000)
    many = [a_service(f"s{number}") for number in range(30)]
    async with following(tmp_path, listing(*many), listing(*many[:3], token="t"), listing(*many[3:6])) as it:
        assert [int(seen.query["limit"]) for seen in it.api.seen[:3]] == [PAGE, PAGE // 8, PAGE // 8]
        assert len(it.names) == 6


@pytest.mark.parametrize(
    "body", [{}, {"kind": "Status"}, {"items": []}, {"items": 5, "metadata": {"resourceVersion": "1"}}]
)
def test_answer_that_is_no_list_is_not_taken_for_an_empty_one(tmp_path, body):
    async def follow():
        gone = stream(event("ERROR", a_status(410)), then=end)
        async with following(tmp_path, listing(a_service()), gone, answer(200, body)) as it:
            await until(lambda: len(it.api.seen) == 4)
            assert it.names == {"web"}

    asyncio.run(follow())


GONE = [
    pytest.param(refusal(410, "Expired", "too old resource version"), id="as-http-status"),
    pytest.param(stream(event("ERROR", a_status(410, "Expired")), then=end), id="as-event"),
]


@pytest.mark.parametrize("gone", GONE)
def test_version_that_is_gone_makes_a_new_list_and_that_finds_deletes(tmp_path, caplog, gone):
    async def follow():
        steps = [listing(a_service(), a_service("db")), gone, listing(a_service("db"), a_service("new"), version="30")]
        async with following(tmp_path, *steps) as it:
            await until(lambda: it.names == {"db", "new"})
            assert it.told == ["+web", "+db", "-web", "+new"]
            await until(lambda: len(it.api.seen) == 4)
            assert it.versions() == [None, "10", None, "30"]

    asyncio.run(follow())
    assert caplog.messages == []  # nothing was lost


@in_loop
async def test_version_that_is_always_gone_does_not_make_a_storm(tmp_path):
    async def both(request):
        return await (refusal(410) if request.query.get("watch") else listing(a_service()))(request)

    async with following(tmp_path, then=both, pace=replace(FAST, base_s=0.05, cap_s=0.4)) as it:
        await asyncio.sleep(1.5)

        assert len(it.api.seen) < 30


@in_loop
async def test_stream_that_ends_in_good_order_is_taken_up_where_it_ended(tmp_path, caplog):
    steps = [
        listing(a_service(), a_service("db")),
        stream(event("MODIFIED", a_service("web", "11")), bookmark("15"), then=end),
        stream(event("DELETED", a_service("web", "16"))),
    ]
    async with following(tmp_path, *steps, pace=replace(FAST, steady_s=0.0)) as it:
        await until(lambda: it.names == {"db"})

        assert it.versions() == [None, "10", "15"]  # no list: what was deleted meanwhile is told by the next stream
    assert caplog.messages == []


@in_loop
async def test_bookmarks_alone_keep_a_stream_alive_and_move_the_version(tmp_path):
    beats = [piece for number in range(10) for piece in (0.15, bookmark(str(20 + number)))]
    async with following(tmp_path, listing(), stream(*beats, then=end), pace=IMPATIENT) as it:
        await until(lambda: len(it.api.seen) == 3)

        assert it.versions() == [None, "10", "29"]
        assert it.reflector.state.failures == 0
        assert it.changes == []


@in_loop
async def test_silence_is_no_loss(tmp_path, caplog):
    """Nothing happens, and the server sends no bookmarks: the stream is opened anew from the same version."""
    pace = replace(FAST, idle_s=0.2)
    async with following(tmp_path, listing(a_service()), then=stream(), pace=pace) as it:
        await until(lambda: it.reflector.state.streams == 4)

        assert it.versions()[:4] == [None, "10", "10", "10"]
        assert it.reflector.state.failures == 0
        assert it.reflector.state.lost == ""
    assert caplog.messages == []


# What is to be heard of within 150 s, and is known to be due now.
ECHO = replace(FAST, idle_s=150.0, echo_s=2.0, spread_s=0.1)


@in_loop
async def test_stream_that_does_not_show_what_was_written_is_opened_anew(tmp_path, caplog):
    steps = [listing(a_service()), stream(event("ADDED", a_service("db", "11"))), stream(0.1, bookmark("12"))]
    async with following(tmp_path, *steps, pace=ECHO) as it:
        await until(lambda: "db" in it.names)
        started = time.monotonic()
        it.reflector.expect(boot_ns())
        await until(lambda: it.reflector.state.streams == 2)
        assert time.monotonic() - started >= ECHO.echo_s * 0.9
        it.reflector.expect(boot_ns())
        await until(lambda: it.reflector._version == "12")

        assert it.versions() == [None, "10", "11"]
        assert it.silences == 1
        assert it.reflector.state.failures == 0
        assert it.reflector.state.lost == ""


@in_loop
async def test_anything_that_comes_shows_that_the_stream_is_alive(tmp_path):
    pieces = [bookmark("11"), *(piece for number in range(12, 30) for piece in (0.15, bookmark(str(number))))]
    async with following(tmp_path, listing(a_service()), stream(*pieces), pace=ECHO) as it:
        await until(lambda: it.reflector._version == "11")
        asked_ns = boot_ns()
        it.reflector.expect(asked_ns)
        await until(lambda: it.reflector._version == "13")
        it.reflector.expect(asked_ns)  # an answer that is late: something has come since the request
        await until(lambda: it.reflector._version == "29")
        await asyncio.sleep(2 * ECHO.echo_s)  # nothing is to come: the test is that nothing happens

        assert it.versions() == [None, "10"]


@in_loop
async def test_stream_that_never_shows_anything_and_had_to_is_a_loss(tmp_path, caplog):
    """A proxy that holds watches back: to try again is right, to say that all is well is not."""
    async with following(tmp_path, listing(a_service()), then=stream(), pace=ECHO) as it:
        for streams in (1, 2):
            await until(lambda streams=streams: it.reflector.state.streams == streams)
            it.reflector.expect(boot_ns())
        await until(lambda: it.reflector.state.streams == 3)
        await asyncio.sleep(5 * ECHO.steady_s)  # it lasts, and that says nothing
        assert "does not show this node's own writes" in it.reflector.state.lost

        it.api.script(stream(0.05, bookmark("12")))
        it.reflector.expect(boot_ns())
        await until(lambda: it.reflector.state.lost == "")
        assert it.silences == 1
        assert it.reflector.state.failures == 3


@in_loop
async def test_doubt_about_one_stream_opens_others_anew(tmp_path, caplog):
    async with following(tmp_path, listing(a_service()), then=stream(), pace=ECHO) as it:
        it.reflector.doubt()  # between two streams there is none to doubt
        await until(lambda: it.reflector._patience is not None)
        it.reflector.doubt()
        await until(lambda: it.reflector.state.streams == 2)

        assert it.silences == 0
        assert it.reflector.state.failures == 0


@in_loop
async def test_stream_that_falls_silent_is_given_up(tmp_path):
    steps = [
        listing(a_service()),
        stream(event("ADDED", a_service("db", "11"))),
        stream(event("ADDED", a_service("x", "12"))),
    ]
    async with following(tmp_path, *steps, pace=IMPATIENT) as it:
        started = time.monotonic()
        await until(lambda: "x" in it.names)

        assert time.monotonic() - started >= IMPATIENT.idle_s * 0.9
        assert it.versions()[:3] == [None, "10", "11"]


@in_loop
async def test_server_that_hangs_before_headers_is_given_up(tmp_path):
    then = stream(event("ADDED", a_service("db", "11")))
    async with following(tmp_path, listing(), silence, then, pace=IMPATIENT) as it:
        await until(lambda: it.names == {"db"})

        assert it.versions() == [None, "10", "10"]


HALF = event("ADDED", a_service("half", "12"))[:40]

BROKEN_STREAMS = {
    "disconnect in the middle of a line": stream(event("ADDED", a_service("db", "11")), HALF, then=reset),
    "half a line and then the end": stream(event("ADDED", a_service("db", "11")), HALF, then=end),
    "frozen in the middle of a line": stream(event("ADDED", a_service("db", "11")), HALF, then=hold),
    "half a line with an end": stream(event("ADDED", a_service("db", "11")), HALF + b"\n"),
    "a line that is no event": stream(event("ADDED", a_service("db", "11")), b'{"x": 1}\n'),
    "a line that is no object": stream(event("ADDED", a_service("db", "11")), b"[]\n"),
    "an empty line": stream(event("ADDED", a_service("db", "11")), b"\n"),
    "a line of deep nesting": stream(event("ADDED", a_service("db", "11")), b"[" * 100_000 + b"\n"),
    "an event of an unknown type": stream(
        event("ADDED", a_service("db", "11")), event("EXPLODED", a_service("x", "99"))
    ),
    "an error event": stream(event("ADDED", a_service("db", "11")), event("ERROR", a_status(500))),
    "an error event without a code": stream(event("ADDED", a_service("db", "11")), event("ERROR", {"code": "x"})),
    "bytes that are no text": stream(event("ADDED", a_service("db", "11")), b"\xff\xfe\n"),
}


@pytest.mark.parametrize("step", BROKEN_STREAMS.values(), ids=BROKEN_STREAMS.keys())
def test_stream_that_breaks_is_taken_up_after_the_last_whole_event(tmp_path, step):
    async def follow():
        async with following(
            tmp_path, listing(a_service()), step, stream(event("DELETED", a_service("web", "13"))), pace=IMPATIENT
        ) as it:
            await until(lambda: it.names == {"db"})
            assert it.versions() == [None, "10", "11"]
            assert it.told == ["+web", "+db", "-web"]

    asyncio.run(follow())


REFUSALS = {
    "connection broken": broken,
    "429": refusal(429, "TooManyRequests", headers={"Retry-After": "0"}),
    "503 as text": answer(503, "upstream connect error"),
    "500": refusal(500),
    "403": refusal(403),
    "401": refusal(401),
    "404": refusal(404),
    "200 of a proxy": answer(200, "<html>please log in</html>"),
}


@pytest.mark.parametrize("step", REFUSALS.values(), ids=REFUSALS.keys())
def test_every_refusal_is_waited_out_while_what_is_known_stays(tmp_path, caplog, step):
    async def follow():
        async with following(
            tmp_path, listing(a_service()), step, step, stream(event("ADDED", a_service("db", "11")))
        ) as it:
            await until(lambda: it.names == {"web", "db"})
            assert it.told == ["+web", "+db"]
            await until(lambda: not it.reflector.state.lost)

    asyncio.run(follow())
    assert len(caplog.messages) == 2


@in_loop
async def test_wait_that_the_server_asks_for_is_kept(tmp_path):
    steps = [refusal(429, headers={"Retry-After": "1"}), listing(a_service())]
    async with following(tmp_path, *steps) as it:
        assert it.api.seen[1].at - it.api.seen[0].at >= 1.0


@in_loop
async def test_streams_that_end_at_once_do_not_make_a_storm(tmp_path):
    async def both(request):
        return await (stream(bookmark("11"), then=end) if request.query.get("watch") else listing())(request)

    async with following(tmp_path, then=both, pace=replace(DEFAULT_PACE, cap_s=1.0)) as it:
        await asyncio.sleep(2)

        assert len(it.api.seen) < 10  # kubernetes.aio.watch makes 800 requests in a second here


@in_loop
async def test_streams_that_break_again_and_again_are_lost_all_the_time(tmp_path, caplog):
    async def both(request):
        return await (stream(bookmark("11"), then=reset) if request.query.get("watch") else listing())(request)

    async with following(tmp_path, then=both, pace=replace(FAST, steady_s=0.3)) as it:
        await until(lambda: it.reflector.state.streams > 20, 10)

        assert it.reflector.state.lost
    assert len(caplog.messages) == 1


@in_loop
async def test_outage_costs_few_requests_little_cpu_and_two_lines(tmp_path, caplog):
    down = True

    async def step(request):
        if down:
            return await answer(503, "down")(request)
        return await (stream() if request.query.get("watch") else listing(a_service()))(request)

    async with following(tmp_path, then=step, pace=replace(DEFAULT_PACE, cap_s=2.0, steady_s=0.3), wait=False) as it:
        cpu = time.process_time()
        await asyncio.sleep(6)
        requests, cpu = len(it.api.seen), time.process_time() - cpu
        assert it.reflector.state.lost
        down = False
        await until(lambda: it.names == {"web"})
        await until(lambda: not it.reflector.state.lost)

    print(f"6 s of outage: {requests} requests, {cpu * 1000:.0f} ms of CPU, the server's part included")
    assert 2 <= requests <= 10
    assert cpu < 0.5
    assert [message.split(":")[1].split(";")[0].strip() for message in caplog.messages] == [
        "watch lost",
        "watching again",
    ]


@in_loop
async def test_server_that_is_not_there_is_waited_for(tmp_path, caplog):
    api = ScriptedApi(stream())
    async with api.serving():
        pass
    port = int(api.url.rpartition(":")[2])
    async with a_client(tmp_path, api.url) as client, Reflectors() as sources:
        reflector = Reflector(client, SERVICES, service, lambda _: None, pace=FAST)
        sources.start(reflector)
        await until(lambda: reflector.state.failures > 3)
        assert not reflector.synced
        api.script(listing(a_service()))
        async with api.serving(port=port):
            await until(lambda: reflector.synced and not reflector.state.lost)
    assert len(caplog.messages) == 2


@in_loop
async def test_waits_begin_anew_after_a_steady_time(tmp_path):
    fail = [refusal(503)] * 7
    steady = stream(event("ADDED", a_service("db", "11")), 0.2, then=reset)
    pace = replace(FAST, base_s=0.05, cap_s=10.0, steady_s=0.1)
    async with following(tmp_path, listing(), *fail, steady, then=stream(), pace=pace) as it:
        await until(lambda: len(it.api.seen) == 10, 10)

        waits = [later.at - earlier.at for earlier, later in zip(it.api.seen, it.api.seen[1:], strict=False)]
        assert waits[7] >= 1.6  # the seventh wait: 50 ms, doubled six times, less a half
        assert waits[8] < 3.2  # the first wait again, where an eighth would be so long at least


@in_loop
async def test_nothing_is_in_sync_before_the_first_list_of_each(tmp_path):
    async with an_api(tmp_path, then=stream()) as (api, client), Reflectors() as sources:
        go = asyncio.Event()

        async def late(request):
            await go.wait()
            return await listing(a_service())(request)

        api.script(listing(), stream())
        first, second = (Reflector(client, SERVICES, service, lambda _: None, pace=DEFAULT_PACE) for _ in range(2))
        sources.start(first)
        await until(lambda: first.synced)
        api.script(late)
        sources.start(second)
        await until(lambda: len(api.seen) == 3)
        assert (first.synced, second.synced) == (True, False)
        go.set()
        await until(lambda: second.synced)


@in_loop
async def test_reflector_that_is_stopped_forgets_and_begins_anew(tmp_path):
    async with an_api(tmp_path, listing(a_service()), then=silence) as (api, client), Reflectors() as sources:
        changes = []
        reflector = Reflector(client, SERVICES, service, changes.append, pace=FAST)
        sources.start(reflector)
        sources.start(reflector)
        await until(lambda: reflector.synced)
        await sources.stop(reflector)
        assert (dict(reflector.objects), reflector.synced, list(sources.running)) == ({}, False, [])
        requests = len(api.seen)

        sources.start(reflector)
        begun_anew = {"limit": str(PAGE)}
        await until(lambda: begun_anew in [seen.query for seen in api.seen[requests:]])
        await sources.stop(reflector)
        await sources.stop(reflector)


@in_loop
async def test_fault_in_a_callback_ends_whoever_relies_on_the_copy(tmp_path):
    def fail(_change):
        raise OSError("a fault that must not be taken for the network's")

    async def rely_on_it():
        async with (
            an_api(tmp_path, listing(), stream(event("ADDED", a_service()))) as (_, client),
            Reflectors() as sources,
        ):
            sources.start(Reflector(client, SERVICES, service, fail, pace=FAST))
            await asyncio.sleep(10)

    with pytest.raises(ExceptionGroup) as caught:
        await rely_on_it()

    assert caught.group_contains(OSError, match="must not be taken")


@in_loop
async def test_objects_without_a_name_are_counted_and_left_out(tmp_path):
    nameless = a_service()
    del nameless["metadata"]["name"]
    async with following(tmp_path, listing(nameless, 5, None, a_service()), stream(event("ADDED", nameless))) as it:
        await until(lambda: it.reflector.state.unreadable == 4)

        assert it.names == {"web"}


@in_loop
async def test_object_of_a_megabyte_is_read(tmp_path):
    large = a_service("large", "11")
    large["metadata"]["annotations"] = {"x": "y" * (3 << 20)}
    async with following(tmp_path, listing(), stream(event("ADDED", large))) as it:
        await until(lambda: it.names == {"large"})
