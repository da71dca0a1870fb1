"""Events reach the API, and nothing waits for them."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from arpguard.core.reporting import Notice, Subject
from arpguard.kube import events as events_module
from arpguard.kube.events import ATTEMPTS, WAITING, EventWriter
from support.kube.scripted_server import an_api, answer, broken, in_loop, refusal, silence, until
from support.netns.waiting import HUNG_S

WALL = 1_700_000_000_000_000_000
SERVICE = Subject("v1", "Service", "shop", "web", "u-1")
NOTICE = Notice(SERVICE, "VipConflict", "Guard", "02:00:00:00:00:01 claims 192.0.2.1")
CREATED = answer(201, {"kind": "Event"})


@pytest.fixture(autouse=True)
def _times(monkeypatch):
    monkeypatch.setattr(events_module, "time_ns", lambda: WALL)
    monkeypatch.setattr(events_module, "RETRY_S", 0.01)


@asynccontextmanager
async def writing(folder, *steps, then=CREATED):
    async with an_api(folder, *steps, then=then) as (api, client):
        writer = EventWriter(client, "node-1")
        task = asyncio.create_task(writer.run())
        try:
            yield api, writer
        finally:
            task.cancel()
            await asyncio.wait([task])


@in_loop
async def test_event_has_what_the_api_asks_for(tmp_path):
    async with writing(tmp_path) as (api, writer):
        writer.post(NOTICE)
        await until(lambda: writer.written == 1)

        (seen,) = api.seen
        assert (seen.method, seen.path) == ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events")
        assert seen.body == {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"web.{WALL:x}", "namespace": "shop"},
            "eventTime": "2023-11-14T22:13:20.000000Z",
            "type": "Warning",
            "reason": "VipConflict",
            "action": "Guard",
            "note": "02:00:00:00:00:01 claims 192.0.2.1",
            "regarding": {"apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web", "uid": "u-1"},
            "reportingController": "arpguard.io/agent",
            "reportingInstance": "arpguard-node-1",
        }


@in_loop
async def test_what_happens_again_patches_the_series(tmp_path):
    async with writing(tmp_path) as (api, writer):
        for _ in range(50):
            writer.post(NOTICE)
        await until(lambda: writer.written == 2)
        await asyncio.sleep(0.05)

        created, patched = api.seen
        assert (patched.method, patched.path) == ("PATCH", f"{created.path}/web.{WALL:x}")
        assert patched.headers["Content-Type"] == "application/merge-patch+json"
        assert patched.body == {"series": {"count": 2, "lastObservedTime": "2023-11-14T22:13:20.000000Z"}}


@in_loop
async def test_event_about_an_object_of_the_cluster_is_in_the_default_namespace(tmp_path):
    async with writing(tmp_path) as (api, writer):
        writer.post(replace(NOTICE, subject=Subject("v1", "Node", "", "node-1")))
        await until(lambda: api.seen)

        assert api.seen[0].body["metadata"]["namespace"] == "default"


@pytest.mark.parametrize("step", [refusal(503), refusal(429), broken])
def test_passing_trouble_is_waited_out_and_the_name_stays(tmp_path, step):
    async def write():
        async with writing(tmp_path, step, step, refusal(409, "AlreadyExists")) as (api, writer):
            writer.post(NOTICE)
            await until(lambda: writer.written == 1)
            assert len({seen.body["metadata"]["name"] for seen in api.seen}) == 1
            assert (len(api.seen), writer.dropped) == (3, 0)

    asyncio.run(write())


@in_loop
async def test_refused_events_are_dropped_counted_and_said_once(tmp_path, caplog):
    async with writing(tmp_path, then=refusal(403)) as (api, writer):
        for number in range(5):
            writer.post(replace(NOTICE, note=str(number)))
        await until(lambda: writer.dropped == 5)

        assert len(api.seen) == 5
    assert len(caplog.messages) == 1
    assert "'create' on events.events.k8s.io" in caplog.messages[0]


@in_loop
async def test_server_that_is_away_is_tried_a_few_times(tmp_path):
    async with writing(tmp_path, then=refusal(503)) as (api, writer):
        writer.post(NOTICE)
        await until(lambda: writer.dropped == 1)

        assert len(api.seen) == ATTEMPTS


@in_loop
async def test_series_whose_event_has_expired_begins_anew(tmp_path, caplog):
    async with writing(tmp_path, CREATED, refusal(404)) as (api, writer):
        for _ in range(2):
            writer.post(NOTICE)
        await until(lambda: writer.dropped == 1)
        writer.post(NOTICE)
        await until(lambda: writer.written == 2)

        assert [seen.method for seen in api.seen] == ["POST", "PATCH", "POST"]
    assert caplog.messages == []


@in_loop
async def test_nothing_waits_while_the_server_hangs(tmp_path):
    async with writing(tmp_path, then=silence) as (_, writer):
        for number in range(WAITING * 2):
            subject = replace(SERVICE, name=f"s{number}")
            writer.post(replace(NOTICE, subject=subject))

        assert writer.dropped > 0
        assert writer._queue.qsize() <= WAITING


@in_loop
async def test_last_count_of_a_series_is_written_when_it_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(events_module, "SWEEP_S", 0.02)
    now = [0]
    monkeypatch.setattr(events_module, "boot_ns", lambda: now[0])
    async with an_api(tmp_path, then=CREATED) as (api, client):
        writer = EventWriter(client, "node-1")
        task = asyncio.create_task(writer.run())
        for _ in range(7):
            writer.post(NOTICE)
        await until(lambda: writer.written == 2)
        now[0] = 10**12
        await until(lambda: writer.written == 3)
        task.cancel()
        await asyncio.wait([task])

        assert api.seen[-1].body["series"]["count"] == 7


@in_loop
async def test_long_notes_are_cut_to_what_the_api_takes(tmp_path):
    async with writing(tmp_path) as (api, writer):
        writer.post(replace(NOTICE, note="\xe4" * 2000 + "\ud800"))
        await until(lambda: api.seen)

        assert len(api.seen[0].body["note"].encode()) <= 1024


@pytest.mark.parametrize("steps", range(6))
@in_loop
async def test_writer_ends_though_something_was_said_a_moment_before(tmp_path, steps):
    async with an_api(tmp_path, then=CREATED) as (_, client):
        writer = EventWriter(client, "node-1")
        task = asyncio.create_task(writer.run())
        await asyncio.sleep(0)
        writer.post(NOTICE)
        for _ in range(steps):
            await asyncio.sleep(0)

        task.cancel()
        await asyncio.wait([task], timeout=HUNG_S)

        assert task.cancelled()
