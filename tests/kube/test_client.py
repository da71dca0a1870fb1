"""Requests to the API server: sent once, with a limit of time, and with their outcome told apart."""

import asyncio
import base64
import socket
import ssl
import subprocess
import threading
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp.client_proto import ResponseHandler

from arpguard import __version__
from arpguard.errors import ConfigError
from arpguard.kube import client as client_module
from arpguard.kube import connecting as connecting_module
from arpguard.kube.client import Client, gather_lines
from arpguard.kube.connecting import FileAccess, PodAccess, find_access
from arpguard.kube.errors import (
    MAX_QUOTE,
    ClusterError,
    ConflictError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    RejectedError,
    ThrottledError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
)
from arpguard.kube.resources import ENDPOINT_SLICES, LEASES, NODES, SERVICES, Request
from support.kube.scripted_server import (
    ScriptedApi,
    a_client,
    an_api,
    answer,
    broken,
    in_loop,
    kubeconfig,
    refusal,
    silence,
    until,
)

GET = Request("get", LEASES, "arpguard", "node.a")
PUT = Request("update", LEASES, "arpguard", "node.a", body={"kind": "Lease"})


async def _error_of(folder: Path, step, request: Request = GET, timeout_s: float = 5.0):
    async with an_api(folder, step) as (_, client):
        with pytest.raises(ClusterError) as caught:
            await client.call(request, timeout_s)
    return caught.value


def test_paths_are_those_of_the_api():
    assert SERVICES.path() == "/api/v1/services"
    assert NODES.path(name="a") == "/api/v1/nodes/a"
    assert ENDPOINT_SLICES.path("default") == "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    assert LEASES.path("x/y", "../z") == "/apis/coordination.k8s.io/v1/namespaces/x%2Fy/leases/..%2Fz"


@in_loop
async def test_answer_is_the_json_as_it_came_and_the_time_before_it_was_sent(tmp_path):
    body = {"kind": "Lease", "unheardOf": {"x": [1]}}
    async with an_api(tmp_path, answer(200, body)) as (api, _):
        now = iter([17])
        access = await FileAccess.open_file(tmp_path / "kubeconfig")
        client = Client(access, "node-1", clock=lambda: next(now))
        answered = await client.call(GET)
        await client.aclose()

        assert (answered.status, answered.body, answered.sent_ns) == (200, body, 17)
        assert api.seen[0].path == "/apis/coordination.k8s.io/v1/namespaces/arpguard/leases/node.a"
        assert api.seen[0].headers["User-Agent"] == f"arpguard/{__version__} node-1"


@in_loop
async def test_what_is_asked_for_reaches_the_server_unchanged(tmp_path):
    query = {"labelSelector": "a=b,c in (d, e)", "continue": "x+y/z==&w"}
    async with an_api(tmp_path, answer(200, {})) as (api, client):
        await client.call(Request("list", SERVICES, "default", query=query))

        assert api.seen[0].query == query


@in_loop
async def test_put_whose_connection_breaks_after_it_was_read_is_sent_exactly_once(tmp_path):
    async with an_api(tmp_path, answer(200, {}), broken, then=answer(200, {})) as (api, client):
        await client.call(PUT)  # now there is a connection to use again, which aiohttp takes for a reason to repeat
        with pytest.raises(UnavailableError) as caught:
            await client.call(PUT)
        await asyncio.sleep(0.1)

        assert caught.value.outcome_unknown
        assert len(api.seen) == 2


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_redirect_is_not_followed(tmp_path, code):
    async def ask():
        step = answer(code, {}, {"Location": "/elsewhere"})
        async with an_api(tmp_path, step, then=answer(200, {})) as (api, client):
            with pytest.raises(RejectedError):
                await client.call(PUT)
            assert len(api.seen) == 1

    asyncio.run(ask())


@pytest.mark.parametrize("code", [500, 502, 503, 504, 429])
def test_no_status_makes_the_client_ask_again(tmp_path, code):
    async def ask():
        async with an_api(tmp_path, refusal(code, headers={"Retry-After": "0"}), then=answer(200, {})) as (api, client):
            with pytest.raises((UnavailableError, ThrottledError)):
                await client.call(GET)
            await asyncio.sleep(0.05)
            assert len(api.seen) == 1

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, RejectedError),
        (401, UnauthorizedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (405, RejectedError),
        (408, UnavailableError),
        (409, ConflictError),
        (410, GoneError),
        (413, RejectedError),
        (422, RejectedError),
        (429, ThrottledError),
        (500, UnavailableError),
        (503, UnavailableError),
        (504, UnavailableError),
    ],
)
def test_each_status_has_its_error(tmp_path, code, expected):
    error = asyncio.run(_error_of(tmp_path, refusal(code, "Reason", "the server says why"), PUT))

    assert type(error) is expected
    assert "the server says why" in str(error)
    assert "update leases.coordination.k8s.io arpguard/node.a" in str(error)
    assert error.failure.status == code


def test_forbidden_names_the_missing_verb(tmp_path):
    error = asyncio.run(_error_of(tmp_path, refusal(403), Request("watch", ENDPOINT_SLICES)))

    assert "allow the verb 'watch' on endpointslices.discovery.k8s.io" in str(error)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("99999999", 120.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("-1", 0.0), ("²", 0.0)],
)
def test_retry_after_is_read_and_bounded(tmp_path, header, seconds):
    error = asyncio.run(_error_of(tmp_path, refusal(429, headers={"Retry-After": header})))

    assert error.failure.retry_after_s == seconds


def test_body_that_is_no_status_never_gets_into_the_message(tmp_path):
    error = asyncio.run(_error_of(tmp_path, answer(503, "<html>secret</html>")))

    assert "secret" not in str(error)
    assert "503 Service Unavailable: the body (19 bytes) is not a Status object" in str(error)


def test_json_that_is_no_status_never_gets_into_the_message(tmp_path):
    error = asyncio.run(_error_of(tmp_path, answer(404, {"kind": "Secret", "message": "password"})))

    assert "password" not in str(error)


def test_long_message_is_cut_to_one_line(tmp_path):
    error = asyncio.run(_error_of(tmp_path, refusal(409, message="a\nb\x1b[31m" + "x" * 100_000)))

    assert "a b [31mxxx" in str(error)
    assert len(str(error)) < MAX_QUOTE + 150


def test_refusal_whose_body_breaks_off_keeps_its_status(tmp_path):
    async def step(request):
        request.transport.write(b"HTTP/1.1 409 Conflict\r\nContent-Length: 100\r\n\r\n{")
        request.transport.close()
        return await asyncio.Event().wait()

    assert type(asyncio.run(_error_of(tmp_path, step))) is ConflictError


@pytest.mark.parametrize("body", ["", "{", "[]", "null", "<html>", "[" * 100_000])
def test_success_that_makes_no_sense_leaves_the_outcome_unknown(tmp_path, body):
    error = asyncio.run(_error_of(tmp_path, answer(200, body), PUT))

    assert isinstance(error, UnavailableError)
    assert error.outcome_unknown


def test_answer_larger_than_the_limit_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 1000)

    assert type(asyncio.run(_error_of(tmp_path, answer(200, {"x": "y" * 2000})))) is TooLargeError


def test_request_that_is_not_answered_in_time_has_an_unknown_outcome(tmp_path):
    error = asyncio.run(_error_of(tmp_path, silence, PUT, 0.1))

    assert isinstance(error, UnavailableError)
    assert error.outcome_unknown
    assert "no answer in time" in str(error)


@in_loop
async def test_request_that_finds_no_server_was_certainly_not_done(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with a_client(tmp_path, f"http://127.0.0.1:{port}") as client:
        with pytest.raises(UnavailableError) as caught:
            await client.call(PUT, 1.0)

    assert not caught.value.outcome_unknown


@in_loop
async def test_connections_are_kept_alive_by_tcp(tmp_path):
    async with an_api(tmp_path, answer(200, {})) as (_, client):
        await client.call(GET)
        (connection,) = next(iter(client._session.connector._conns.values()))
        sock = connection[0].transport.get_extra_info("socket")

        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 25_000


@in_loop
async def test_environment_does_not_choose_a_proxy(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with an_api(tmp_path, answer(200, {})) as (_, client):
        assert (await client.call(GET)).status == 200


@in_loop
async def test_proxy_of_the_kubeconfig_is_used(tmp_path):
    proxy = ScriptedApi(answer(200, {"via": "proxy"}))
    more = {"cluster": ', proxy-url: "PROXY"'}
    async with proxy.serving():
        more = {key: text.replace("PROXY", proxy.url) for key, text in more.items()}
        async with a_client(tmp_path, "http://apiserver.invalid", **more) as client:
            assert (await client.call(GET)).body == {"via": "proxy"}


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_lines_are_whole_whatever_the_pieces(size):
    text = b"one\ntwo\n\nthree\nhalf"

    async def pieces():
        for start in range(0, len(text), size):
            yield text[start : start + size]

    async def collect():
        return [line async for line in gather_lines(pieces())]

    assert asyncio.run(collect()) == [b"one", b"two", b"", b"three"]


def test_line_without_an_end_is_given_up():
    async def pieces():
        while True:
            yield b"x" * 100

    async def collect():
        return [line async for line in gather_lines(pieces(), 1000)]

    with pytest.raises(ValueError, match="1000"):
        asyncio.run(collect())


# Credentials and certificates


def _certificates(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1."""
    key, cert = folder / f"{name}.key", folder / f"{name}.crt"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=api"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
    )
    return cert, key


def _server_tls(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context


def _reads_to_the_end(listening: socket.socket, tls: ssl.SSLContext, asked: threading.Event) -> bool:
    """Reads a request, then stays silent; returns whether the client closes the connection."""
    secure = tls.wrap_socket(listening.accept()[0], server_side=True)
    with socket.socket(fileno=secure.detach()) as raw:
        raw.settimeout(10)
        try:
            while raw.recv(65536):
                asked.set()
        except TimeoutError:
            return False
        except ConnectionResetError:
            pass
        return True


@asynccontextmanager
async def _one_that_reads_to_the_end(folder: Path) -> AsyncIterator[tuple[Client, asyncio.Task[bool], threading.Event]]:
    cert, key = _certificates(folder, "api")
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = asyncio.create_task(asyncio.to_thread(_reads_to_the_end, listening, _server_tls(cert, key), asked))
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        access = await find_access(kubeconfig(folder, url, cluster=f", certificate-authority: {cert}"))
        yield Client(access, "n"), server, asked


@in_loop
async def test_connection_of_a_request_that_was_given_up_is_closed_with_the_client(tmp_path):
    async with _one_that_reads_to_the_end(tmp_path) as (client, server, asked):
        given_up = asyncio.create_task(client.call(GET))
        await asyncio.to_thread(asked.wait)
        given_up.cancel()
        await asyncio.wait([given_up])
        await client.aclose()
        assert await server


@in_loop
async def test_connection_of_a_request_that_was_given_up_as_it_connected_is_closed_with_the_client(
    tmp_path, monkeypatch
):
    connection_made = ResponseHandler.connection_made

    def give_up(connection: ResponseHandler, transport: asyncio.BaseTransport) -> None:
        connection_made(connection, transport)
        given_up.cancel()

    monkeypatch.setattr(ResponseHandler, "connection_made", give_up)
    async with _one_that_reads_to_the_end(tmp_path) as (client, server, _):
        given_up = asyncio.create_task(client.call(GET))
        await asyncio.wait([given_up])
        await client.aclose()
        assert await server


def _pod(folder: Path, api: ScriptedApi, ca: Path, token: str = "first") -> PodAccess:
    account = folder / "account"
    account.mkdir()
    (account / "token").write_text(token)
    (account / "ca.crt").write_bytes(ca.read_bytes())
    port = api.url.rpartition(":")[2]
    return PodAccess(account, {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port})


@in_loop
async def test_service_account_is_used_and_its_token_read_anew_for_each_request(tmp_path):
    cert, key = _certificates(tmp_path, "api")
    api = ScriptedApi(answer(200, {}))
    async with api.serving(_server_tls(cert, key)):
        client = Client(_pod(tmp_path, api, cert), "node-1")
        await client.call(GET)
        (tmp_path / "account" / "token").write_text("second\n")
        await client.call(GET)
        await client.aclose()

        assert [seen.headers["Authorization"] for seen in api.seen] == ["Bearer first", "Bearer second"]


@in_loop
async def test_tls_connection_has_no_large_buffer(tmp_path):
    cert, key = _certificates(tmp_path, "api")
    api = ScriptedApi(answer(200, {}))
    async with api.serving(_server_tls(cert, key)):
        client = Client(_pod(tmp_path, api, cert), "node-1")
        tracemalloc.start()
        try:
            await client.call(GET)
            snapshot = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
        await client.aclose()

    of_tls = tracemalloc.Filter(inclusive=True, filename_pattern=asyncio.sslproto.__file__)
    largest = max(trace.size for trace in snapshot.filter_traces([of_tls]).traces)
    assert 16 * 1024 <= largest <= 64 * 1024 + 1  # bytearray ends with a zero


@pytest.mark.parametrize("token", ["", "\n", "a\r\nX-Evil: b", "\xe4"])
def test_token_file_without_a_token_is_an_error_that_names_it(tmp_path, token):
    async def ask():
        cert, key = _certificates(tmp_path, "api")
        api = ScriptedApi(answer(200, {}))
        async with api.serving(_server_tls(cert, key)):
            client = Client(_pod(tmp_path, api, cert), "node-1")
            (tmp_path / "account" / "token").write_bytes(token.encode("latin-1"))
            with pytest.raises(UnauthorizedError, match="token"):
                await client.call(GET)
            await client.aclose()
            assert api.seen == []

    asyncio.run(ask())


@in_loop
async def test_server_with_a_certificate_of_an_unknown_ca_is_not_spoken_to(tmp_path):
    (cert, key), (other, _) = _certificates(tmp_path, "api"), _certificates(tmp_path, "other")
    api = ScriptedApi(answer(200, {}))
    async with api.serving(_server_tls(cert, key)):
        client = Client(_pod(tmp_path, api, other), "node-1")
        with pytest.raises(UnavailableError, match="certificate") as caught:
            await client.call(PUT)
        await client.aclose()

        assert not caught.value.outcome_unknown
        assert api.seen == []


@in_loop
async def test_ca_that_was_replaced_is_read_again(tmp_path):
    (cert, key), (other, _) = _certificates(tmp_path, "api"), _certificates(tmp_path, "other")
    api = ScriptedApi(answer(200, {}))
    async with api.serving(_server_tls(cert, key)):
        client = Client(_pod(tmp_path, api, other), "node-1")
        with pytest.raises(UnavailableError, match="certificate"):
            await client.call(GET)
        (tmp_path / "account" / "ca.crt").write_bytes(cert.read_bytes())
        assert (await client.call(GET)).status == 200
        await client.aclose()


@in_loop
async def test_kubeconfig_with_embedded_certificates_and_a_token(tmp_path):
    cert, key = _certificates(tmp_path, "api")
    ca = base64.b64encode(cert.read_bytes()).decode()
    api = ScriptedApi(answer(200, {}))
    more = {"cluster": f", certificate-authority-data: {ca}", "user": "{token: abc}"}
    async with api.serving(_server_tls(cert, key)), a_client(tmp_path, api.url, **more) as client:
        await client.call(GET)

        assert api.seen[0].headers["Authorization"] == "Bearer abc"


@in_loop
async def test_kubeconfig_is_read_again_after_its_credentials_were_refused(tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    async with an_api(tmp_path, refusal(401), then=answer(200, {})) as (api, _):
        async with a_client(tmp_path, api.url, user=f"{{tokenFile: {token}}}") as client:
            token.write_text("new")
            with pytest.raises(UnauthorizedError):
                await client.call(GET)
            await client.call(GET)

        assert [seen.headers["Authorization"] for seen in api.seen] == ["Bearer old", "Bearer new"]


@in_loop
async def test_plugin_that_hangs_is_started_once_and_holds_requests_up_for_a_limited_time(tmp_path, monkeypatch):
    monkeypatch.setattr(connecting_module, "LOOK_TIMEOUT_S", 0.2)
    token, started = tmp_path / "token", tmp_path / "started"
    token.write_text("old")
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho $$ >>{started}\nsleep 3\n")
    plugin.chmod(0o755)
    exec_user = f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {plugin}, interactiveMode: Never}}}}"
    api = ScriptedApi(then=refusal(401))
    async with api.serving(), a_client(tmp_path, api.url, user=f"{{tokenFile: {token}}}") as client:
        with pytest.raises(UnauthorizedError, match="401"):
            await client.call(GET)
        kubeconfig(tmp_path, api.url, user=exec_user)
        for _ in range(3):
            with pytest.raises(UnauthorizedError, match="takes too long"):
                await client.call(GET)
        await until(lambda: client._access._reading is None)

        assert len(started.read_text().split()) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "kind: Config", "current-context: x\ncontexts: 5\n", "\x00", "current-context: {}"]
)
def test_file_that_is_no_kubeconfig_is_a_configuration_error(tmp_path, text):
    path = tmp_path / "kubeconfig"
    path.write_text(text)

    with pytest.raises(ConfigError, match="kubeconfig"):
        asyncio.run(FileAccess.open_file(path))


def test_kubeconfig_that_is_not_there_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        asyncio.run(FileAccess.open_file(tmp_path / "none"))


def test_pod_without_a_service_account_is_told_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match="--kubeconfig"):
        PodAccess(tmp_path, {})
