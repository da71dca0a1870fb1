import uuid

import pytest

from arpguard.lab.apiserver.embedded import running
from kubehttp import Api


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
