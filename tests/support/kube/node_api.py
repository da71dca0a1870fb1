"""The lab's API server beside one node, in its namespace, and an administrator who asks it there."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from arpguard_lab.apiserver.embedded import Embedded, running
from arpguard_lab.apiserver.server import Options
from arpguard_lab.netns import Netns
from support.kube.plain_http import Api, Reply


@contextmanager
def a_server(netns: Netns, scene: Iterable[dict]) -> Iterator[Embedded]:
    """With the objects of a scene. Threads are where those were that started them."""
    embedded = running(Options(tls=False))
    server = netns.call(embedded.__enter__)
    try:
        server.do(lambda it: it.load(scene))
        server.do(lambda it: it.add_client("admin"))
        yield server
    finally:
        embedded.__exit__(None, None, None)


def ask(netns: Netns, server: Embedded, method: str, path: str) -> Reply:
    """What the server answers the administrator."""
    admin = Api(server.do(lambda it: it.kubeconfig("admin")))
    return netns.call(lambda: admin.ask(method, path))


def events(netns: Netns, server: Embedded, reason: str) -> list[dict]:
    """The Events with a reason."""
    found = ask(netns, server, "GET", "/apis/events.k8s.io/v1/events").body["items"]
    return [event for event in found if event["reason"] == reason]
