"""grpc.health.v1 tells of each component, and reflection lists the services."""

import signal
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from api.apitools import NOT_FOUND, a_node, an_api, ended, served
from api.conftest import CONFIG
from arpguard.core.cluster import SourceState
from arpguard.dataplane import loader, syscall
from arpguard.dataplane.maps import ControlValue
from arpguard.model import NodeState
from arpguard.v1 import agent_pb2 as pb
from support.kube.cluster_states import a_cluster
from support.netns.waiting import HUNG_S, until

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

WHOLE = ["", "arpguard.v1.AgentService", "dataplane"]
WRONG = "mode: fast\n"


def watched(api, component: str) -> Iterator[str]:
    for answer in api.health.Watch(health_pb2.HealthCheckRequest(service=component), timeout=60):
        yield health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


@pytest.mark.parametrize("component", [*WHOLE, "config"])
def test_component_of_a_sound_agent_is_serving(api, component):
    assert api.status_of(component) == "SERVING"


def test_kubernetes_is_unknown_to_a_standalone_agent(api):
    assert api.status_of("kubernetes") == "UNKNOWN"


@pytest.mark.parametrize("component", ["x", "dataplane ", "x" * 60_000])
def test_unknown_component_is_not_found_and_the_known_ones_are_named(api, component):
    assert ended(lambda: api.status_of(component)) == (
        NOT_FOUND,
        (
            "service: no such component; the components are "
            "'', 'arpguard.v1.AgentService', 'dataplane', 'config', 'kubernetes'"
        ),
    )


def test_wrong_edit_makes_the_configuration_not_serving_and_nothing_else(api, agent):
    """A probe must not restart an agent that guards on with the last good configuration."""
    stream = watched(api, "config")
    assert next(stream) == "SERVING"
    agent.configure(WRONG)
    assert next(stream) == "NOT_SERVING"
    assert [api.status_of(component) for component in ("config", *WHOLE)] == ["NOT_SERVING"] + ["SERVING"] * 3
    agent.configure(CONFIG)
    assert next(stream) == "SERVING"
    assert api.status_of("config") == "SERVING"


def test_watch_of_an_unknown_component_says_so_and_goes_on(api):
    """As the protocol has it: it may become known."""
    call = api.health.Watch(health_pb2.HealthCheckRequest(service="x"), timeout=20)

    assert next(call).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    assert ended(lambda: next(call))[0] is grpc.StatusCode.DEADLINE_EXCEEDED


def test_dataplane_is_not_serving_while_the_kernel_has_not_been_told(loaded, tmp_path):
    """The control value is the kernel's: a probe reads it back."""
    with served(a_node(loaded, links=0), tmp_path) as node, an_api(node.address) as api:
        assert [api.status_of(component) for component in WHOLE] == ["SERVING"] * 3
        stream = watched(api, "dataplane")
        assert next(stream) == "SERVING"
        wipe(loaded)
        assert next(stream) == "NOT_SERVING"
        assert [api.status_of(component) for component in WHOLE] == ["NOT_SERVING"] * 3


def wipe(loaded: loader.Loaded) -> None:
    """Somebody has overwritten the control value with nothing."""
    size = syscall.map_info(loaded.maps["control"]).value_size * syscall.possible_cpus()
    syscall.map_update(loaded.maps["control"], bytes(4), bytes(size))
    assert ControlValue(loaded.maps["control"]).read() is None


def test_dataplane_is_not_serving_while_a_link_has_no_program(loaded, tmp_path):
    with served(a_node(loaded, links=1), tmp_path) as node, an_api(node.address) as api:
        assert api.status_of("dataplane") == "NOT_SERVING"
        assert api.status_of("config") == "NOT_SERVING", "none is in force"
        node.on_loop(lambda: setattr(node.node, "state", NodeState(control=node.node.state.control)))
        assert api.status_of("dataplane") == "SERVING"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "SERVING"),
        ({"complete": False}, "NOT_SERVING"),
        ({"sources": {"services": SourceState(lost="403")}}, "NOT_SERVING"),
        ({"renewal_lost": "timed out"}, "NOT_SERVING"),
        ({"yielding": True}, "NOT_SERVING"),
    ],
    ids=str,
)
def test_what_is_wrong_with_the_cluster_is_not_of_the_whole(changes, status, loaded, tmp_path):
    with served(a_node(loaded, links=0), tmp_path) as node, an_api(node.address) as api:
        node.on_loop(lambda: setattr(node.node, "cluster", a_cluster(**changes)))

        assert api.status_of("kubernetes") == status
        assert [api.status_of(component) for component in WHOLE] == ["SERVING"] * 3


def test_health_is_unavailable_once_the_agent_has_gone(agent, api):
    agent.kill(signal.SIGTERM)
    try:
        assert ended(lambda: api.status_of(""))[0] is grpc.StatusCode.UNAVAILABLE
    finally:
        agent.start()
        agent.wait_for()
    until(lambda: api.channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=HUNG_S, wait_for_ready=True))


# ---- reflection --------------------------------------------------------------------------------------------------


def reflected(api, **question: object) -> reflection_pb2.ServerReflectionResponse:
    stub = reflection_pb2_grpc.ServerReflectionStub(api.channel)
    (answer,) = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**question)]), timeout=HUNG_S)
    return answer


def test_reflection_lists_exactly_the_services(api):
    found = reflected(api, list_services="").list_services_response.service

    assert sorted(service.name for service in found) == [
        "arpguard.v1.AgentService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    ]


@pytest.mark.parametrize("symbol", ["AgentService", "AgentService.WatchDecisions", "Vip", "Vip.address", "Reason"])
def test_reflection_gives_the_definition_that_the_clients_are_made_of(api, symbol):
    answer = reflected(api, file_containing_symbol=f"arpguard.v1.{symbol}")

    files = [FileDescriptorProto.FromString(raw) for raw in answer.file_descriptor_response.file_descriptor_proto]
    (found,) = (file for file in files if file.name == pb.DESCRIPTOR.name)
    vip = next(message for message in found.message_type if message.name == "Vip")
    assert {"ifindex": "ifindex", "answer_mac": "answerMac"}.items() <= {f.name: f.json_name for f in vip.field}.items()
    _forget_json_names(found.message_type)
    assert found == FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)


def _forget_json_names(messages):
    for message in messages:
        for field in message.field:
            field.ClearField("json_name")
        _forget_json_names(message.nested_type)


@pytest.mark.parametrize(
    "question",
    [
        {"file_containing_symbol": "arpguard.v1.Nothing"},
        {"file_containing_symbol": "arpguard.v1.AgentService.Nothing"},
        {"file_containing_symbol": ""},
        {"file_by_filename": "../../etc/passwd"},
    ],
    ids=str,
)
def test_reflection_does_not_know_what_is_not_there(api, question):
    assert reflected(api, **question).error_response.error_code == NOT_FOUND.value[0]
