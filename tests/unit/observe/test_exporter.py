"""The exporter over real HTTP: what it serves, what it refuses, and whom it does not wait for."""

import asyncio
import gzip
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from arpguard.errors import ListenError
from arpguard.observe import exporter as module
from arpguard.observe.exporter import DEADLINE_S, MAX_CONNECTIONS, MAX_HEAD_BYTES, PATIENCE_S, PLACES_OF_ONE, Exporter
from arpguard_lab.patience import Patience
from support.netns.waiting import HUNG_S

ANY = "127.0.0.1:0"
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n"


class Agent:
    """An event loop in a thread of its own, with an exporter on it."""

    def __init__(self, listen=ANY) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.exporter = Exporter()
        self.registry = CollectorRegistry()
        self.collected_by = []
        gauge = Gauge("answer", "to all questions", registry=self.registry)
        gauge.set_function(self._value)
        try:
            self.on_loop(lambda: self.exporter.start(listen, self.registry))
        except BaseException:
            self.end()
            raise
        self.port = self.exporter.port

    def _value(self) -> float:
        self.collected_by.append(threading.current_thread())
        return 42

    def on_loop(self, act):
        async def run():
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(HUNG_S)

    @contextmanager
    def hanging(self):
        """The loop does nothing until the end of the block."""
        go_on, hangs = threading.Event(), threading.Event()
        self.loop.call_soon_threadsafe(lambda: (hangs.set(), go_on.wait(HUNG_S)))
        assert hangs.wait(HUNG_S)
        try:
            yield
        finally:
            go_on.set()

    def is_asked(self) -> bool:
        """Whether a scrape waits for the loop."""
        return not self.exporter._server._collector._result.done()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(HUNG_S)
        self.loop.close()


@contextmanager
def an_agent(listen=ANY):
    agent = Agent(listen)
    try:
        yield agent
    finally:
        agent.on_loop(agent.exporter.close)
        agent.end()


@pytest.fixture
def agent():
    with an_agent() as running:
        yield running


def ask(port, method="GET", path="/metrics", headers=None, host="127.0.0.1", source=None):
    """(status, headers, body)"""
    connection = HTTPConnection(host, port, timeout=HUNG_S, source_address=source)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def client_address(number):
    """Where a client binds: the number makes the host."""
    return f"127.0.1.{number}", 0


@contextmanager
def connected(port, count=1, send=b"", source=None):
    """So many clients that have sent this and nothing more: each from an address of its own, or all from one."""
    clients = []
    try:
        for number in range(count):
            own = source or client_address(number + 1)
            clients.append(socket.create_connection(("127.0.0.1", port), timeout=HUNG_S, source_address=own))
            clients[-1].sendall(send)
        yield clients
    finally:
        for client in clients:
            client.close()


def received(client) -> bytes:
    """All until the server ends the connection."""
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts)


def until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.01)


def serving_threads():
    return [thread for thread in threading.enumerate() if thread.name == "metrics-request"]


# ---- what is served ----------------------------------------------------------------------------------------------


def test_metrics_are_served(agent):
    status, headers, body = ask(agent.port)
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    (family,) = text_string_to_metric_families(body.decode())
    assert (family.name, family.documentation, family.samples[0].value) == ("answer", "to all questions", 42)


def test_openmetrics_is_served_to_those_who_ask_for_it(agent):
    _, headers, body = ask(agent.port, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")


def test_compressed_for_those_who_ask_for_it(agent):
    _, headers, body = ask(agent.port, headers={"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"
    assert b"answer 42.0" in gzip.decompress(body)


def test_head_has_the_headers_of_get_and_no_body(agent):
    _, of_get, body = ask(agent.port)
    status, of_head, _ = ask(agent.port, "HEAD")
    assert status == 200
    assert of_head["Content-Length"] == of_get["Content-Length"] == str(len(body))
    with connected(agent.port, send=SCRAPE.replace(b"GET", b"HEAD")) as (client,):
        assert received(client).endswith(b"\r\n\r\n")


def test_query_does_not_matter(agent):
    assert ask(agent.port, path="/metrics?name[]=other")[2] == ask(agent.port)[2]


def test_root_points_to_the_metrics(agent):
    status, _, body = ask(agent.port, path="/")
    assert status == 200
    assert b'href="/metrics"' in body


@pytest.mark.parametrize("path", ["/metric", "/metrics/", "/favicon.ico", "/-/healthy", "/..", "http://node/metrics"])
def test_other_paths_are_not_there(agent, path):
    assert ask(agent.port, path=path)[0] == 404


@pytest.mark.parametrize("path", ["/", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_are_refused(agent, method, path):
    status, headers, _ = ask(agent.port, method, path)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_software_is_not_told_to_strangers(agent):
    for path in ("/metrics", "/", "/other"):
        assert ask(agent.port, path=path)[1]["Server"] == "arpguard"


# ---- whose thread, and how often ---------------------------------------------------------------------------------


def test_collected_on_the_loops_thread(agent):
    ask(agent.port)
    assert agent.collected_by == [agent.thread]


def test_many_scrapes_at_once_are_one_collection(agent, monkeypatch):
    monkeypatch.setattr(module, "REUSE_S", 60)
    with connected(agent.port, MAX_CONNECTIONS) as clients:
        with agent.hanging():
            for client in clients:
                client.sendall(SCRAPE)
            until(agent.is_asked)
        assert all(b"answer 42.0" in received(client) for client in clients)
    assert len(agent.collected_by) == 1


def test_a_later_scrape_is_collected_anew(agent):
    ask(agent.port)
    until(lambda: ask(agent.port)[0] == 200 and len(agent.collected_by) == 2)


def test_agent_that_hangs_looks_down_and_comes_back(agent, monkeypatch):
    monkeypatch.setattr(module, "DEADLINE_S", 2.0)
    with agent.hanging():
        status, _, body = ask(agent.port)
        assert (status, body) == (503, b"the agent does not answer\n")
    until(lambda: ask(agent.port)[0] == 200)


def test_fault_in_a_metric_is_logged_and_told(agent, caplog):
    def fault() -> float:
        raise KeyError("fault")

    Gauge("broken", "always", registry=agent.registry).set_function(fault)
    assert ask(agent.port)[0] == 500
    assert "metrics cannot be collected" in caplog.text
    assert "KeyError" in caplog.text


def test_nothing_is_written_for_requests(agent, capfd, caplog):
    caplog.set_level("INFO")
    for path in ("/metrics", "/", "/other"):
        ask(agent.port, path=path)
    with connected(agent.port, send=b"GARBAGE\r\n\r\n") as (client,):
        received(client)
    assert (*capfd.readouterr(), caplog.text) == ("", "", "")


# ---- clients that are slow or hostile ----------------------------------------------------------------------------


@pytest.fixture
def patient(monkeypatch):
    """A server whose patience no test lasts for; what takes fewer seconds than this did not wait for it."""
    monkeypatch.setattr(module, "PATIENCE_S", 60.0)
    monkeypatch.setattr(module, "DEADLINE_S", 60.0)
    return 30.0


def test_slow_clients_do_not_keep_a_scraper_waiting(agent):
    with connected(agent.port, 3 * MAX_CONNECTIONS, b"GET /metr"):
        patience = Patience(DEADLINE_S)
        assert ask(agent.port)[0] == 200
        # Those before it in the queue pass through all places, one patience for a full set; else they keep them.
        assert not patience.is_over


def test_clients_that_send_a_byte_now_and_then_do_not_keep_a_scraper_waiting(agent):
    stop = threading.Event()

    def drip(clients):
        for byte in b"GET /metrics HTTP/1.1\r\nX: " + bytes([120] * 10_000):
            for client in clients:
                try:
                    client.sendall(bytes([byte]))
                except OSError:
                    return
            if stop.wait(0.02):
                return

    with connected(agent.port, MAX_CONNECTIONS) as clients:
        dripping = threading.Thread(target=drip, args=(clients,))
        dripping.start()
        try:
            patience = Patience(DEADLINE_S)
            assert ask(agent.port)[0] == 200
            assert not patience.is_over
        finally:
            stop.set()
            dripping.join()


def test_no_more_threads_than_places(agent):
    with connected(agent.port, 4 * MAX_CONNECTIONS, b"GET"):
        until(lambda: len(serving_threads()) == MAX_CONNECTIONS)
        deadline = time.monotonic() + 2 * PATIENCE_S
        while time.monotonic() < deadline:
            assert len(agent.exporter._server._connections._open) <= MAX_CONNECTIONS
            until(lambda: len(serving_threads()) <= MAX_CONNECTIONS + 1)  # others may be just ending
            time.sleep(0.01)
    until(lambda: not serving_threads())


def test_a_client_that_is_alone_has_its_deadline(agent, monkeypatch):
    monkeypatch.setattr(module, "DEADLINE_S", 0.3)
    began = time.monotonic()
    with connected(agent.port, send=b"GET /metrics HTTP/1.1\r\n") as (client,):
        assert received(client) == b""
        assert 0.3 <= time.monotonic() - began < 30


def test_a_client_that_drips_has_the_same_deadline(agent, monkeypatch):
    monkeypatch.setattr(module, "DEADLINE_S", 0.5)
    with connected(agent.port) as (client,):
        client.settimeout(0.02)  # between two bytes
        until(lambda: not _still_open(client), 30)


def _still_open(client) -> bool:
    try:
        client.sendall(b"x")
        return client.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_scrapers_that_come_together_are_all_answered(agent, monkeypatch):
    monkeypatch.setattr(module, "SILENCE_S", 60)
    monkeypatch.setattr(module, "PATIENCE_S", 60)
    statuses = []
    scrapers = [
        threading.Thread(target=lambda own: statuses.append(ask(agent.port, source=own)[0]), args=(client_address(n),))
        for n in range(1, 3 * MAX_CONNECTIONS + 1)
    ]
    for scraper in scrapers:
        scraper.start()
    for scraper in scrapers:
        scraper.join()
    assert statuses == [200] * len(scrapers)


def test_a_scrape_is_not_cut_off_for_another_before_its_time(agent, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 60)
    with connected(agent.port, MAX_CONNECTIONS + 1, SCRAPE[:3]) as clients:
        with agent.hanging():
            for client in clients:
                client.sendall(SCRAPE[3:])
            clients[-1].settimeout(0.2)
            with pytest.raises(TimeoutError):
                clients[-1].recv(1)  # it waits for a place
            clients[-1].settimeout(20)
        assert all(b"answer 42.0" in received(client) for client in clients)


def test_clients_that_say_nothing_do_not_keep_a_scraper_waiting(agent, patient):
    with connected(agent.port, 3 * MAX_CONNECTIONS):
        began = time.monotonic()
        assert ask(agent.port)[0] == 200
        assert time.monotonic() - began < patient


@pytest.mark.parametrize("send", [b"", b"GET /metr"], ids=["silent", "slow"])
def test_a_client_that_reconnects_at_once_does_not_keep_a_scraper_waiting(agent, patient, send):
    stop = threading.Event()

    def come_again():
        while not stop.is_set():
            with suppress(OSError), connected(agent.port, 1, send, client_address(1)) as (client,):
                received(client)

    pests = [threading.Thread(target=come_again) for _ in range(2 * MAX_CONNECTIONS)]
    for pest in pests:
        pest.start()
    try:
        until(serving_threads)
        for _ in range(5):
            began = time.monotonic()
            assert ask(agent.port)[0] == 200
            assert time.monotonic() - began < patient
    finally:
        stop.set()
        agent.on_loop(agent.exporter.close)
        for pest in pests:
            pest.join()


def test_an_address_has_few_places_and_its_newcomer_takes_that_of_its_oldest(agent, patient):
    with connected(agent.port, PLACES_OF_ONE + 1, b"GET", client_address(1)) as (oldest, *others):
        began = time.monotonic()
        assert _what_comes(oldest) == b""
        assert time.monotonic() - began < patient
        until(lambda: len(serving_threads()) == PLACES_OF_ONE)
        for other in others:
            other.settimeout(0.05)
            assert _still_open(other)


def test_of_one_address_those_that_say_nothing_give_way_first(agent, patient):
    with agent.hanging(), connected(agent.port, 1, SCRAPE, client_address(1)) as (scraper,):
        until(agent.is_asked)
        with connected(agent.port, 3 * PLACES_OF_ONE, b"", client_address(1)) as silent:
            assert _what_comes(silent[0]) == b""
            scraper.settimeout(0.1)
            with pytest.raises(TimeoutError):
                scraper.recv(1)  # it still waits for the loop


def test_a_head_that_is_too_long_is_refused(agent):
    with connected(agent.port, send=b"GET /metrics HTTP/1.1\r\nX: ".ljust(MAX_HEAD_BYTES, b"x")) as (client,):
        assert received(client).startswith(b"HTTP/1.0 431 ")


def test_a_head_that_is_almost_too_long_is_not(agent):
    filler = b"x" * (MAX_HEAD_BYTES - len(SCRAPE) - len("X: \r\n") - 1)
    with connected(agent.port, send=SCRAPE[:-2] + b"X: " + filler + b"\r\n\r\n") as (client,):
        assert b" 200 OK\r\n" in received(client)


@pytest.mark.parametrize(
    "garbage",
    [b"\r\n\r\n", b"\x16\x03\x01\x02\x00\n\n", b"GET\r\n\r\n", b"GET /metrics HTTP/9\r\n\r\n", b"a b c d\r\n\r\n"],
)
def test_garbage_harms_nobody(agent, garbage):
    with connected(agent.port, send=garbage) as (client,):
        assert b"200 OK" not in received(client)
    assert ask(agent.port)[0] == 200


def test_a_client_that_leaves_early_harms_nobody(agent, capfd):
    for _ in range(2 * MAX_CONNECTIONS):
        with connected(agent.port, send=SCRAPE):
            pass
    assert ask(agent.port)[0] == 200
    assert capfd.readouterr() == ("", "")


# ---- listening ---------------------------------------------------------------------------------------------------


def test_listens_on_ipv6():
    with an_agent("[::1]:0") as agent:
        assert ask(agent.port, host="::1")[0] == 200


def test_starts_again_on_the_same_port_at_once():
    with an_agent() as first:
        port = first.port
        assert ask(port)[0] == 200  # the server ends the connection first: its side waits in TIME_WAIT
    with an_agent(f"127.0.0.1:{port}") as second:
        assert ask(second.port)[0] == 200


@pytest.mark.parametrize("listen", ["127.0.0.1:{}", "0.0.0.0:{}"])
def test_two_agents_on_one_port_are_refused(agent, listen):
    address = listen.format(agent.port)
    with pytest.raises(ListenError) as refused:
        Agent(address)
    assert f"cannot listen on {address}: address already in use; remove the cause, or change metrics.listen" in str(
        refused.value
    )


def test_an_address_of_another_host_is_refused():
    with pytest.raises(ListenError, match="cannot assign requested address"):
        Agent("192.0.2.1:9469")


def test_off_listens_nowhere():
    with an_agent("") as agent:
        assert agent.port == 0


def test_closing_is_quick_and_leaves_nothing(agent):
    with connected(agent.port, 2 * MAX_CONNECTIONS, b"GET"):
        until(lambda: len(serving_threads()) == MAX_CONNECTIONS)
        patience = Patience(DEADLINE_S)
        agent.on_loop(agent.exporter.close)
        assert not patience.is_over
        until(lambda: not serving_threads(), DEADLINE_S)
    assert "metrics" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(ConnectionRefusedError):
        ask(agent.port)


def test_closing_does_not_wait_for_those_who_wait_for_the_loop(agent, patient):
    took = []

    def close():
        began = time.monotonic()
        agent.exporter.close()
        took.append(time.monotonic() - began)

    with connected(agent.port, 2) as clients:
        with agent.hanging():
            agent.loop.call_soon_threadsafe(close)  # before what the clients wait for
            for client in clients:
                client.sendall(SCRAPE)
            until(agent.is_asked)
        assert not any(b"200 OK" in _what_comes(client) for client in clients)
    until(lambda: took)
    assert took[0] < patient


def _what_comes(client) -> bytes:
    try:
        return received(client)
    except ConnectionError:
        return b""
