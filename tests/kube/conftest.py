import uuid

import pytest

from arpguard_lab.apiserver.embedded import running
from arpguard_lab.apiserver.server import Options
from support.kube.agent_side import Scene, Segment
from support.kube.plain_http import Api


@pytest.fixture(scope="module", autouse=True)
def _trusting_nobody(without_authorities):
    pass


@pytest.fixture
def server():
    with running() as embedded:
        yield embedded


@pytest.fixture
def client(server):
    """Makes clients by name."""

    def make(name: str = "admin", service_account: str = "", **changes) -> Api:
        server.do(lambda it: it.add_client(name, service_account))
        return Api(server.do(lambda it: it.kubeconfig(name)), **changes)

    return make


@pytest.fixture
def namespace():
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def leases(namespace):
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


@pytest.fixture
def scene(tmp_path):
    """A server with the namespaces of agents and Services, for tests of whole agents."""
    with running(Options(tls=False)) as embedded:
        yield Scene(embedded, tmp_path)


@pytest.fixture
def segment(monkeypatch):
    """Who is on the segment beside the nodes; there is no real one."""
    segment = type("OneSegment", (Segment,), {"strangers": {}, "asked": [], "asked_on": []})
    monkeypatch.setattr("arpguard.runtime.cluster.segment.Prober", segment)
    return segment
