"""Where an address comes from, and why it is guarded nowhere."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from arpguard.config.model import AgentConfig, ServicesConfig
from arpguard.core.admission import Avoided
from arpguard.core.cluster import Node, Service
from arpguard.core.origins import Origin
from arpguard.core.sourcing import Sourcing
from arpguard.model import Owner, OwnerKind, Vip

VIP, FAR, NODE = ip_address("192.0.2.50"), ip_address("203.0.113.50"), ip_address("192.0.2.1")
IN_ORDER = "; service shop/a takes precedence: its name sorts first"
ANNOTATED = "; service shop/z takes precedence: it has an owner annotation"
NOT_MEANT = "service shop/a has this address, but is ignored: it has no annotation arpguard.io/owner"
ITEM = Vip(VIP, Owner(OwnerKind.EXTERNAL))


def a_service(name: str, address=VIP, owner: str = "", **more) -> Service:
    notes = (("arpguard.io/owner", owner),) if owner else ()
    return Service("shop", name, annotations=notes, external_ips=(address,), **more)


def origin(address, *services: Service, vips=(), **services_config) -> Origin:
    config = AgentConfig(
        vips=tuple(vips), ranges=(ip_network("192.0.2.0/24"),), services=ServicesConfig(**services_config)
    )
    sourcing = Sourcing()
    nodes = {"n1": Node("n1", addresses=(NODE,))}
    sourcing.collect(config, {(found.namespace, found.name): found for found in services}, None, nodes, Avoided())
    return sourcing.origin(address)


@pytest.mark.parametrize(
    ("services", "vips", "why"),
    [
        ([], [ITEM], "an item of `vips:` takes precedence over every Service"),
        ([a_service("a", owner="elect")], [], "its annotation arpguard.io/owner says so"),
        ([a_service("a")], [], "the setting `services` selects it"),
    ],
    ids=["item", "annotated", "selected"],
)
def test_source_says_why_it_has_the_say(services, vips, why):
    assert origin(VIP, *services, vips=vips) == Origin(why)


def test_those_that_do_not_have_the_say_are_named_with_the_reason():
    services = [a_service("a"), a_service("b"), a_service("z", owner="external")]

    assert origin(VIP, *services).others == (
        "service shop/a also has this address, with other settings (owner elect)" + ANNOTATED,
        "service shop/b also has this address, with other settings (owner elect)" + ANNOTATED,
    )
    assert origin(VIP, *services[:2]).others == ("service shop/b shares the address, with the same settings",)
    assert origin(VIP, a_service("a", owner="elect"), a_service("b", owner="external")).others == (
        f"service shop/b also has this address, with other settings (owner external){IN_ORDER}",
    )


def test_namespace_that_had_the_address_first_is_the_reason_before_annotations():
    first = a_service("z", made="2026-01-01T00:00:00Z")
    later = replace(a_service("a", owner="external", made="2026-02-01T00:00:00Z"), namespace="other")

    (other,) = origin(VIP, later, first).others
    assert other.startswith("service other/a also has this address, with other settings (owner external)")
    assert other.endswith(
        "service shop/z takes precedence: it is in the namespace with the oldest Service that has this address"
    )


@pytest.mark.parametrize(
    ("address", "services", "config", "refusals"),
    [
        (VIP, [], {}, []),
        (
            FAR,
            [a_service("a", FAR)],
            {},
            ["service shop/a has this address, but it is in none of the configuration's `ranges` (192.0.2.0/24)"],
        ),
        (
            NODE,
            [a_service("a", NODE)],
            {},
            [
                (
                    "192.0.2.1 is the address of node n1: guarding it would cut the node off; "
                    "choose an address that no host has"
                ),
                "service shop/a has this address",
            ],
        ),
        (
            VIP,
            [a_service("a")],
            {"enabled": False},
            [
                f"{NOT_MEANT}, and `services.enabled` is false",
            ],
        ),
        (
            VIP,
            [a_service("a")],
            {"selector": {"x": "y"}},
            [
                f"{NOT_MEANT}, and `services.selector` does not select it",
            ],
        ),
        (
            ip_address("2001:db8::1"),
            [a_service("a", ip_address("2001:db8::1"))],
            {},
            ["service shop/a has this address, but it is in none of the configuration's `ranges` (192.0.2.0/24)"],
        ),
    ],
    ids=["nobody asks", "range", "node", "off", "selector", "IPv6"],
)
def test_address_that_is_guarded_nowhere_has_its_reasons(address, services, config, refusals):
    assert origin(address, *services, **config) == Origin(refusals=tuple(refusals))


def test_owner_that_cannot_be_read_is_the_reason():
    (refusal,) = origin(VIP, a_service("a", owner="me")).refusals

    assert refusal.startswith(
        "service shop/a has this address, but its owner cannot be read: service shop/a: annotation"
    )


def test_nothing_is_known_before_anything_was_collected():
    assert Sourcing().origin(VIP) == Origin()


def test_service_without_a_namespace_is_not_taken_for_the_configuration():
    """The API server makes none, but an object that is not as it should be stops no agent."""
    first = replace(a_service("a", made="2026-01-01T00:00:00Z"), namespace="")
    later = a_service("b", owner="external", made="2026-02-01T00:00:00Z")

    (other,) = origin(VIP, later, first).others
    assert other.endswith("it is in the namespace with the oldest Service that has this address")
