"""Objects of other announcers are followed on a server, with the rights that the documentation gives, and no others."""

import asyncio
import copy
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address

import pytest

from arpguard.core.following import ON_DEMAND, Following, Source
from arpguard.kube.client import Client
from arpguard.kube.connecting import find_access
from arpguard.kube.errors import ClusterError
from arpguard.kube.following import SOURCES, FollowSource, Readable, can_read, is_served
from arpguard.kube.projections import key_of, service
from arpguard.kube.reflector import Reflector
from arpguard.kube.resources import L2_STATUSES, LEASES
from arpguard_lab.apiserver.server import ApiServer, Options
from support.kube.plain_http import MERGE, Api
from support.kube.recordings import OF, recorded
from support.kube.scripted_server import an_api, in_loop, refusal, until

IP = ip_address("192.0.2.40")

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicel2statuses.metallb.io"},
    "spec": {
        "group": "metallb.io",
        "scope": "Namespaced",
        "names": {"plural": "servicel2statuses", "kind": "ServiceL2Status"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}}}],
    },
}
NOT_INSTALLED = Readable(readable=False, why="not installed")
RBAC = "rbac.authorization.k8s.io"


def a_role(source: Source, namespace: str = "", **rule: list) -> list[dict]:
    """As docs/follow.md has it; without a namespace, for the whole cluster."""
    resource = OF[source].resource
    metadata = {"name": "arpguard-follow", **({"namespace": namespace} if namespace else {})}
    role = "Role" if namespace else "ClusterRole"
    account = {"kind": "ServiceAccount", "name": "arpguard", "namespace": "arpguard"}
    rules = [{"apiGroups": [resource.group], "resources": [resource.plural], "verbs": ["list", "watch"], **rule}]
    common = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
    reference = {"apiGroup": RBAC, "kind": role, "name": "arpguard-follow"}
    return [
        {**common, "kind": role, "rules": rules},
        {**common, "kind": f"{role}Binding", "subjects": [account], "roleRef": reference},
    ]


@asynccontextmanager
async def a_server(tmp_path, *objects: dict, rbac: Sequence[dict] = ()):
    """A server with these objects and roles, and a client of it as the agent's service account."""
    async with ApiServer(Options(tls=False)) as server:
        for body in (*objects, *rbac):
            server.load([copy.deepcopy(body)])
        server.enforce_rbac()
        path = tmp_path / "kubeconfig"
        server.write_kubeconfig(path, "agent", "arpguard/arpguard")
        client = Client(await find_access(path), "node-1")
        try:
            yield server, client
        finally:
            await client.aclose()


RULES = {
    Source.METALLB: a_role(Source.METALLB, "metallb-system"),
    Source.CILIUM: a_role(Source.CILIUM, "kube-system"),
    Source.KUBE_VIP: a_role(Source.KUBE_VIP, "kube-system", resourceNames=["plndr-svcs-lock"]),
    Source.OPENELB: a_role(Source.OPENELB, "openelb-system", resourceNames=["openelb-speaker"]),
    Source.KUBE_VIP_SERVICES: a_role(Source.KUBE_VIP_SERVICES),
}
ABOUT = {
    Source.METALLB: ("metallb/status", "metallb/service"),
    Source.CILIUM: ("cilium/lease", "cilium/service"),
    Source.KUBE_VIP: ("kube-vip/lock", "kube-vip/service-of-its-class"),
    Source.OPENELB: ("openelb/lease", "openelb/service-0.5"),
    Source.KUBE_VIP_SERVICES: ("kube-vip/lease-of-the-service", "kube-vip/service-of-its-class"),
}


OF_A_KUBELET = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"namespace": "kube-node-lease", "name": "worker-1"},
    "spec": {"holderIdentity": "worker-1"},
}


@asynccontextmanager
async def followed(client: Client, row: FollowSource, following: Following):
    reflector = Reflector(
        client, row.resource, row.project, lambda change: following.put(row.source, change.key, change.new), row.scope
    )
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()


@pytest.mark.parametrize("source", sorted(set(Source) - ON_DEMAND, key=list(Source).index), ids=lambda it: it.name)
@in_loop
async def test_source_is_followed_with_the_rights_that_the_documentation_gives(tmp_path, source):
    path, about = ABOUT[source]
    following, raw = Following(), recorded(path)
    asked = service(recorded(about))
    async with (
        a_server(tmp_path, DEFINITION, raw, OF_A_KUBELET, rbac=RULES[source]) as (server, client),
        followed(client, OF[source], following) as reflector,
    ):
        assert await can_read(client, OF[source]) == Readable(readable=True)
        await until(lambda: following.node_of(asked, IP).node)
        assert list(reflector.objects) == [key_of(raw)]

        server.add_client("root")
        root = Api(server.kubeconfig("root"))
        url = OF[source].resource.path(*key_of(raw))
        moved = {"spec": {"holderIdentity": "worker-9"}, "metadata": {"labels": {"metallb.io/node": "worker-9"}}}
        assert (await asyncio.to_thread(root.ask, "PATCH", url, moved, MERGE)).code == 200
        await until(lambda: following.node_of(asked, IP).node == "worker-9")
        assert (await asyncio.to_thread(root.ask, "DELETE", url)).code == 200
        await until(lambda: not following.node_of(asked, IP).node)
        assert server.unused_grants("agent") == []


@in_loop
async def test_events_of_speakers_are_watched_with_the_rights_that_the_documentation_gives(tmp_path):
    raw = recorded("metallb/event")
    other, of_bgp = copy.deepcopy(raw), copy.deepcopy(raw)
    other["metadata"]["name"], other["reason"] = "other", "IPAllocated"
    of_bgp["metadata"]["name"], of_bgp["message"] = "bgp", 'announcing from node "worker-1" with protocol "bgp"'
    row = OF[Source.METALLB_EVENT]
    rules = a_role(Source.METALLB_EVENT)
    async with a_server(tmp_path, raw, other, of_bgp, rbac=rules) as (server, client):
        assert (await can_read(client, row)).readable
        for place, node in {"": "worker-1", "shop": "worker-1", "elsewhere": ""}.items():
            following = Following()
            async with followed(client, row.within(place), following) as reflector:
                await until(lambda it=reflector: it.synced and it.state.streams)
            assert following.node_of(service(recorded("metallb/service")), IP).node == node
        assert server.unused_grants("agent") == []


@pytest.mark.parametrize("source", Source, ids=lambda source: source.name)
@in_loop
async def test_source_that_may_not_be_read_is_a_problem_that_names_the_right(tmp_path, source):
    async with a_server(tmp_path, DEFINITION) as (_, client):
        found = await can_read(client, OF[source])

    assert not found.readable
    assert found.forbidden
    assert f"allow the verb 'list' on {OF[source].resource}" in found.why


@in_loop
async def test_kind_that_is_not_installed_is_no_problem(tmp_path):
    async with a_server(tmp_path, rbac=RULES[Source.METALLB]) as (server, client):
        assert not await is_served(client, L2_STATUSES)
        assert await is_served(client, LEASES)
        assert not await is_served(client, replace(LEASES, plural="borrowings"))
        assert await can_read(client, OF[Source.METALLB]) == NOT_INSTALLED

        server.load([DEFINITION])
        assert await is_served(client, L2_STATUSES)
        assert (await can_read(client, OF[Source.METALLB])).readable


@in_loop
async def test_kind_that_is_not_installed_is_no_problem_even_without_the_right_to_read_it(tmp_path):
    """A server looks at the right before it looks whether there is such a kind."""
    async with an_api(tmp_path, refusal(404), refusal(403)) as (api, client):
        assert await can_read(client, OF[Source.METALLB]) == NOT_INSTALLED
        assert [seen.path for seen in api.seen] == ["/apis/metallb.io/v1beta1"]


@in_loop
async def test_server_that_cannot_tell_is_an_error(tmp_path):
    async with an_api(tmp_path, refusal(503)) as (_, client):
        with pytest.raises(ClusterError):
            await is_served(client, L2_STATUSES)


def test_source_may_be_in_another_namespace():
    moved = OF[Source.KUBE_VIP].within("network")

    assert moved.scope == replace(OF[Source.KUBE_VIP].scope, namespace="network")
    assert {each.source for each in SOURCES} == set(Source)
