"""All agents have one secret, whoever creates it, and one that is none is refused without being shown."""

import asyncio
import base64
from contextlib import AsyncExitStack

import pytest

from arpguard.kube.clustersecret import LEN, ClusterSecretError, NoRightError, cluster_secret, secret_in
from arpguard.kube.errors import ClusterError, NotFoundError, UnavailableError
from arpguard_lab.apiserver.embedded import running
from arpguard_lab.apiserver.server import Options
from arpguard_lab.cluster import objects
from support.kube.plain_http import Api
from support.kube.scripted_server import a_client, an_api, answer, broken, in_loop, refusal

PLACE = ("arpguard", "arpguard-vouching")
PATH = "/api/v1/namespaces/arpguard/secrets"
OURS, THEIRS = b"o" * LEN, b"t" * 44


def a_secret(value: bytes) -> dict:
    return {"kind": "Secret", "apiVersion": "v1", "data": {"key": base64.b64encode(value).decode()}}


def there(value: bytes):
    return answer(200, a_secret(value))


@pytest.fixture
def server():
    with running(Options(tls=False, objects=[objects.namespace("arpguard")])) as server:
        server.do(lambda it: it.add_client("admin"))
        yield server


def stored(server) -> list[dict]:
    api = Api(server.do(lambda it: it.kubeconfig("admin")))
    return api.ask("GET", PATH).body["items"]


@in_loop
async def test_agents_that_start_at_once_have_the_one_secret_that_one_of_them_created(server, tmp_path):
    async with AsyncExitStack() as stack:
        folders = [tmp_path / str(number) for number in range(10)]
        for folder in folders:
            folder.mkdir()
        url = server.do(lambda it: it.url)
        clients = [await stack.enter_async_context(a_client(folder, url)) for folder in folders]

        found = await asyncio.gather(*(cluster_secret(client, *PLACE) for client in clients))
        again = await cluster_secret(clients[0], *PLACE)

    (secret,) = stored(server)
    assert {*found, again} == {base64.b64decode(secret["data"]["key"])}
    assert len(again) == LEN
    assert len(set(again)) > LEN // 2, "they are random"
    assert (secret["type"], secret["immutable"]) == ("Opaque", True)
    assert secret["metadata"]["labels"] == {"app.kubernetes.io/name": "arpguard"}


@in_loop
async def test_secret_that_is_there_is_read_and_nothing_is_written(tmp_path):
    async with an_api(tmp_path, there(THEIRS)) as (api, client):
        assert await cluster_secret(client, *PLACE) == THEIRS

        assert [(seen.method, seen.path) for seen in api.seen] == [("GET", f"{PATH}/arpguard-vouching")]


@in_loop
async def test_who_comes_second_takes_what_the_first_one_created(tmp_path):
    async with an_api(tmp_path, refusal(404), refusal(409, "AlreadyExists"), there(THEIRS)) as (api, client):
        assert await cluster_secret(client, *PLACE) == THEIRS

        assert [seen.method for seen in api.seen] == ["GET", "POST", "GET"]


@in_loop
async def test_created_secret_whose_answer_was_lost_is_found_by_the_next_try(tmp_path):
    async with an_api(tmp_path, refusal(404), broken, there(OURS)) as (_, client):
        with pytest.raises(UnavailableError):
            await cluster_secret(client, *PLACE)

        assert await cluster_secret(client, *PLACE) == OURS


@pytest.mark.parametrize("steps", [[refusal(403)], [refusal(404), refusal(403)]], ids=["get", "create"])
def test_missing_right_says_where_it_comes_from(steps, tmp_path):
    async def ask():
        async with an_api(tmp_path, *steps) as (_, client):
            with pytest.raises(NoRightError, match="grant the rights that the manifests and the chart grant") as caught:
                await cluster_secret(client, *PLACE)
            assert f"the verb '{'create' if len(steps) > 1 else 'get'}'" in str(caught.value)

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("steps", "expected", "said"),
    [
        ([refusal(503)], UnavailableError, "cannot get secrets"),
        ([refusal(404), refusal(404, "NotFound", "namespaces not found")], NotFoundError, "namespaces not found"),
        ([refusal(404), refusal(409), refusal(404)], ClusterSecretError, "was deleted while the agent read it"),
        ([there(b"short" * 6)], ClusterSecretError, "has 30 bytes, not 32 or more: delete the Secret and restart"),
    ],
    ids=["away", "no namespace", "deleted", "short"],
)
def test_nobody_vouches_without_a_secret_and_it_is_said_why(steps, expected, said, tmp_path):
    async def ask():
        async with an_api(tmp_path, *steps) as (_, client):
            with pytest.raises((ClusterError, ClusterSecretError)) as caught:
                await cluster_secret(client, *PLACE)
            assert type(caught.value) is expected
            assert said in str(caught.value)

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({}, "has no data.key"),
        ({"data": None}, "has no data.key"),
        ({"data": {"other": "eA=="}}, "has no data.key"),
        ({"data": {"key": 7}}, "has no data.key"),
        ({"data": {"key": "\u2028 no base64"}}, "data.key is not base64"),
        ({"data": {"key": "hunter2"}}, "data.key is not base64"),
        ({"data": {"key": "hunter2!" + "A" * 41}}, "data.key is not base64"),
        ({"data": {"key": ""}}, "data.key has 0 bytes"),
        (a_secret(b"x" * 31), "data.key has 31 bytes"),
    ],
)
def test_secret_that_is_none_is_refused_and_not_shown(raw, said):
    with pytest.raises(ClusterSecretError) as caught:
        secret_in(raw, "Secret a/b")

    text = str(caught.value)
    assert text.startswith(f"Secret a/b{':' * ('has no' not in said)} {said}")
    assert text.isprintable()
    assert "hunter" not in text


def test_longer_secret_is_taken_as_it_is():
    assert secret_in(a_secret(THEIRS), "x") == THEIRS
