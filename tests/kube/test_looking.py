"""One look at a cluster: what is made of odd objects."""

import asyncio
from contextlib import aclosing
from ipaddress import ip_address

import pytest

from arpguard.core.checkup.snapshot import Eip, Followable, KubeProxy, Unread
from arpguard.core.following import Source
from arpguard.kube import looking
from arpguard.kube.client import Client
from arpguard.kube.connecting import find_access
from arpguard.kube.errors import Failure, ForbiddenError, NotFoundError, UnavailableError
from arpguard_lab.apiserver.server import ApiServer, Options
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.scene import shipped_manifests
from support.kube.recordings import OF
from support.kube.scripted_server import in_loop


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: KubeProxyConfiguration\nmode: ipvs\nipvs: {strictARP: true}", KubeProxy("ipvs", strict_arp=True)),
        ("kind: KubeProxyConfiguration\nmode: IPVS ", KubeProxy("ipvs")),
        ("kind: KubeProxyConfiguration\nmode: ipvs\nipvs: {strictARP: 'true'}", KubeProxy("ipvs")),
        ("kind: KubeProxyConfiguration\nmode: 7\nipvs: []", KubeProxy("")),
    ],
)
def test_kube_proxys_configuration(text, expected):
    assert looking.parse_kube_proxy(text) == expected


@pytest.mark.parametrize("text", ["", "7", "[]", "kind: Other", "a: [", "\0", "[" * 3000, "a: &a [*a]"])
def test_what_is_no_configuration_of_kube_proxy_is_said_to_be_none(text):
    assert isinstance(looking.parse_kube_proxy(text), Unread)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"interface": "can_reach:192.0.2.9"}, Eip("p", ip_address("192.0.2.9"))),
        ({"interface": "can_reach: 2001:db8::9"}, Eip("p", ip_address("2001:db8::9"))),
        ({"interface": "eth0"}, None),
        ({"interface": "can_reach:nobody"}, None),
        ({"interface": 7}, None),
        (None, None),
        ([], None),
    ],
)
def test_eips_of_openelb(spec, expected):
    assert looking._eip("p", {"spec": spec}) == expected


@pytest.mark.parametrize("texts", [{"other": "mode: observe", "arpguard": "mode: enforce"}, {"other": "mode: observe"}])
@in_loop
async def test_configmap_is_read_with_the_rights_that_the_manifests_give_the_agent(tmp_path, texts):
    rights = objects.moved(shipped_manifests(), "arpguard", "arpguard")
    path = tmp_path / "kubeconfig"
    async with ApiServer(Options(tls=False)) as server:
        server.load([*rights, *(objects.config_map("arpguard", name, text) for name, text in texts.items())])
        server.enforce_rbac()
        server.write_kubeconfig(path, "agent", "arpguard/arpguard")
        async with aclosing(Client(await find_access(path), "node-1")) as client:
            found = await looking.read_config_map(client, "arpguard", "arpguard")

    assert (found.text if found else None) == texts.get("arpguard")


class _Refusing:
    def __init__(self, error) -> None:
        self._error = error

    async def call(self, *_):
        raise self._error


def test_announcers_that_cannot_be_read_say_why():
    failures = (
        NotFoundError(Failure("list", "leases", 404, "no")),
        ForbiddenError(Failure("list", "leases", 403, "no")),
        UnavailableError(Failure("list", "leases", 503, "no")),
    )
    (absent,), (hidden,), (away,) = (
        asyncio.run(looking.read_announcers(_Refusing(error), [OF[Source.CILIUM]])) for error in failures
    )

    assert absent == Followable("Cilium's Lease", "not installed")
    assert "allow the verb 'list' on leases" in hidden.unread
    assert away.unread == "cannot list leases: no"


def test_where_there_is_no_openelb_there_are_no_eips_and_where_they_are_hidden_they_are_unknown():
    missing = NotFoundError(Failure("list", "eips", 404, "no"))
    hidden = ForbiddenError(Failure("list", "eips", 403, "no"))
    assert asyncio.run(looking.read_eips(_Refusing(missing))) == ()
    assert isinstance(asyncio.run(looking.read_eips(_Refusing(hidden))), Unread)
