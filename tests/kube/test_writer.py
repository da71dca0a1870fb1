"""Leases are written by comparing and swapping, and what a write came to is never guessed."""

import asyncio
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.core.cluster import Lease
from arpguard.core.times import micro_time
from arpguard.kube import writer as writer_module
from arpguard.kube.errors import UnavailableError
from arpguard.kube.writer import (
    Applied,
    Conflicted,
    LeaseContent,
    LeaseWriter,
    Missing,
    Refused,
    Unknown,
)
from support.kube.scripted_server import a_status, an_api, answer, broken, in_loop, listing, refusal, silence

SEEN = Lease("node.a", "u-1", "7", holder="a")
CONTENT = LeaseContent("a", 3, (("arpguard.io/epoch", "e"),), (("app", "arpguard"),), ("arpguard.io/claim",), 2)
PATH = "/apis/coordination.k8s.io/v1/namespaces/arpguard/leases"
WALL_NS = 1_700_000_000_000_000_000


def a_lease(version: str = "8", uid: str = "u-1", name: str = "node.a") -> dict:
    return {
        "kind": "Lease",
        "metadata": {"namespace": "arpguard", "name": name, "uid": uid, "resourceVersion": version},
        "spec": {"holderIdentity": "a"},
    }


@pytest.fixture(autouse=True)
def _wall_clock(monkeypatch):
    monkeypatch.setattr(writer_module, "time_ns", lambda: WALL_NS)


async def _write(folder, step, write):
    async with an_api(folder, step) as (api, client):
        outcome = await write(LeaseWriter(client, "arpguard", 0.3 if step is silence else 5.0))
        return outcome, api.seen


def _replace(writer):
    return writer.replace(SEEN, CONTENT)


def _renew(writer):
    return writer.renew(SEEN, CONTENT)


def _create(writer):
    return writer.create("node.a", CONTENT)


def _delete(writer):
    return writer.delete(SEEN)


def test_replacement_names_uid_and_version_and_says_all(tmp_path):
    outcome, (seen,) = asyncio.run(_write(tmp_path, answer(200, a_lease()), _replace))

    assert (seen.method, seen.path) == ("PUT", f"{PATH}/node.a")
    assert seen.body == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "node.a",
            "namespace": "arpguard",
            "uid": "u-1",
            "resourceVersion": "7",
            "labels": {"app": "arpguard"},
            "annotations": {"arpguard.io/epoch": "e"},
            "finalizers": ["arpguard.io/claim"],
        },
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 3,
            "leaseTransitions": 2,
            "renewTime": "2023-11-14T22:13:20.000000Z",
        },
    }
    assert outcome.lease == Lease("node.a", "u-1", "8", holder="a")


def test_renewal_is_a_patch_that_says_what_a_replacement_says(tmp_path):
    outcome, (seen,) = asyncio.run(_write(tmp_path, answer(200, a_lease()), _renew))
    _, (replacement,) = asyncio.run(_write(tmp_path, answer(200, a_lease()), _replace))

    assert (seen.method, seen.path) == ("PATCH", f"{PATH}/node.a")
    assert seen.headers["Content-Type"] == "application/merge-patch+json"
    assert seen.body == replacement.body
    assert outcome.lease == Lease("node.a", "u-1", "8", holder="a")


def test_renewal_takes_away_what_is_to_be_absent(tmp_path):
    content = replace(CONTENT, absent=("arpguard.io/vouchers",))
    _, (renewal,) = asyncio.run(_write(tmp_path, answer(200, a_lease()), lambda writer: writer.renew(SEEN, content)))
    _, (other,) = asyncio.run(_write(tmp_path, answer(200, a_lease()), lambda writer: writer.replace(SEEN, content)))

    assert renewal.body["metadata"]["annotations"] == {"arpguard.io/epoch": "e", "arpguard.io/vouchers": None}
    assert other.body["metadata"]["annotations"] == {"arpguard.io/epoch": "e"}


@in_loop
async def test_renewal_that_no_role_allows_is_a_replacement_from_then_on(tmp_path, caplog):
    done = answer(200, a_lease())
    async with an_api(tmp_path, refusal(403), done, done) as (api, client):
        writer = LeaseWriter(client, "arpguard", 5.0)
        outcomes = [await _renew(writer) for _ in range(2)]

    assert [type(outcome) for outcome in outcomes] == [Applied, Applied]
    assert [seen.method for seen in api.seen] == ["PATCH", "PUT", "PUT"]
    assert len([line for line in caplog.messages if "renewing with update requests" in line]) == 1


@pytest.mark.parametrize(
    ("step", "expected"),
    [(refusal(409, "Conflict"), Conflicted), (refusal(404, "NotFound"), Missing), (refusal(503), Unknown)],
)
def test_renewals_outcome_is_that_of_a_replacement(tmp_path, step, expected):
    outcome, requests = asyncio.run(_write(tmp_path, step, _renew))

    assert isinstance(outcome, expected)
    assert [seen.method for seen in requests] == ["PATCH"]


def test_creation_names_neither(tmp_path):
    outcome, (seen,) = asyncio.run(_write(tmp_path, answer(201, a_lease()), _create))

    assert (seen.method, seen.path) == ("POST", PATH)
    assert seen.body["metadata"].keys() == {"name", "namespace", "labels", "annotations", "finalizers"}
    assert isinstance(outcome, Applied)


@pytest.mark.parametrize("body", [a_status(200), a_lease("9")], ids=["gone", "held by finalizers"])
def test_deletion_names_uid_and_version(tmp_path, body):
    outcome, (seen,) = asyncio.run(_write(tmp_path, answer(200, body), _delete))

    assert (seen.method, seen.path) == ("DELETE", f"{PATH}/node.a")
    assert seen.body["preconditions"] == {"uid": "u-1", "resourceVersion": "7"}
    assert isinstance(outcome, Applied)


@pytest.mark.parametrize("seen", [Lease("node.a", "u-1"), Lease("node.a", "", "7")])
@pytest.mark.parametrize("write", ["replace", "renew", "delete"])
def test_nothing_is_sent_without_uid_and_version(tmp_path, seen, write):
    arguments = (seen,) if write == "delete" else (seen, CONTENT)
    outcome, requests = asyncio.run(
        _write(tmp_path, answer(200, a_lease()), lambda writer: getattr(writer, write)(*arguments))
    )

    assert isinstance(outcome, Refused)
    assert requests == []


@in_loop
async def test_time_of_sending_is_read_before_the_server_has_the_request(tmp_path):
    now = [100]

    async def step(request):
        now[0] = 200
        return await answer(200, a_lease())(request)

    async with an_api(tmp_path, step) as (_, client):
        client._clock = lambda: now[0]
        outcome = await LeaseWriter(client, "arpguard", 1).replace(SEEN, CONTENT)

    assert outcome.sent_ns == 100


OUTCOMES = [
    (refusal(409, "Conflict"), Conflicted),
    (refusal(404, "NotFound"), Missing),
    (refusal(500), Unknown),
    (refusal(503), Unknown),
    (refusal(504, "Timeout"), Unknown),
    (answer(502, "bad gateway"), Unknown),
    (broken, Unknown),
    (silence, Unknown),
    (answer(200, "<html>"), Unknown),
    (answer(200, {}), Unknown),
    (answer(200, a_lease(uid="u-2")), Unknown),
    (answer(200, a_lease(name="node.b")), Unknown),
    (answer(200, a_lease(version="")), Unknown),
    (refusal(429), Refused),
    (refusal(403), Refused),
    (refusal(401), Refused),
    (refusal(400), Refused),
    (refusal(422), Refused),
    (answer(307, {}, {"Location": "/x"}), Refused),
]


@pytest.mark.parametrize(("step", "expected"), OUTCOMES)
@pytest.mark.parametrize("write", [_replace, _delete])
def test_each_answer_has_its_outcome_and_nothing_is_sent_twice(tmp_path, step, expected, write):
    outcome, requests = asyncio.run(_write(tmp_path, step, write))

    assert type(outcome) is expected
    assert len(requests) == 1


def test_throttled_write_may_be_tried_later(tmp_path):
    outcome, _ = asyncio.run(_write(tmp_path, refusal(429, headers={"Retry-After": "3"}), _replace))

    assert (outcome.passing, outcome.retry_after_s) == (True, 3.0)


def test_forbidden_write_is_not_a_passing_trouble_and_names_the_verb(tmp_path):
    outcome, _ = asyncio.run(_write(tmp_path, refusal(403), _replace))

    assert not outcome.passing
    assert "'update'" in outcome.reason


@in_loop
async def test_write_that_finds_no_server_was_not_done(tmp_path):
    async with an_api(tmp_path) as (_, client):
        client._access._configuration.host = "http://127.0.0.1:1"
        outcome = await LeaseWriter(client, "arpguard", 1).replace(SEEN, CONTENT)

    assert type(outcome) is Refused
    assert outcome.passing


def test_read_gives_the_lease_as_it_is_now(tmp_path):
    lease, (seen,) = asyncio.run(_write(tmp_path, answer(200, a_lease()), lambda writer: writer.read("node.a")))

    assert (seen.method, seen.path, seen.query) == ("GET", f"{PATH}/node.a", {})
    assert lease.version == "8"


def test_read_of_what_is_not_there_is_none(tmp_path):
    assert asyncio.run(_write(tmp_path, refusal(404), lambda writer: writer.read("x")))[0] is None


def test_read_that_fails_is_an_error(tmp_path):
    with pytest.raises(UnavailableError):
        asyncio.run(_write(tmp_path, refusal(503), lambda writer: writer.read("x")))


@in_loop
async def test_list_is_of_the_present_and_counts_from_its_first_page(tmp_path):
    now = iter([100, 200])
    steps = [listing(a_lease(name="node.a"), token="t"), listing(a_lease(name="node.b"))]
    async with an_api(tmp_path, *steps) as (api, client):
        client._clock = lambda: next(now)
        leases, sent_ns = await LeaseWriter(client, "arpguard", 1).list("app=arpguard")

        assert [lease.name for lease in leases] == ["node.a", "node.b"]
        assert sent_ns == 100
        assert "resourceVersion" not in api.seen[0].query
        assert api.seen[0].query["labelSelector"] == "app=arpguard"


@pytest.mark.parametrize(
    ("wall_ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_700_000_000_000_000_000, "2023-11-14T22:13:20.000000Z"),
        (1_700_000_000_000_001_999, "2023-11-14T22:13:20.000001Z"),
        (1_700_000_000_120_000_000, "2023-11-14T22:13:20.120000Z"),
    ],
)
def test_micro_time_has_six_digits(wall_ns, text):
    assert micro_time(wall_ns) == text


@given(st.integers(0, 4 * 10**18))
def test_every_micro_time_has_the_form_that_the_server_parses(wall_ns):
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", micro_time(wall_ns))
