"""Which links a node publishes: a deaf one is as good as down, unless no other node could own its VIPs."""

from ipaddress import IPv4Address, IPv4Network
from types import SimpleNamespace

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.cluster import Node
from arpguard.core.ownership.records import PublishedLink
from arpguard.model import Link, Owner, OwnerKind, Vip
from arpguard.runtime.cluster import publishing
from arpguard.runtime.cluster.publishing import TELLINGS, TOGETHER_NS, LinkPublisher
from arpguard.units import NS_PER_S

LAN = IPv4Network("192.0.2.0/24")
MAC = MacAddress(b"\2\0\0\0\0\1")
VIP = IPv4Address("192.0.2.50")
OTHER = {"n2": (PublishedLink("eth0", MAC, (LAN,)),)}


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(ns=1000 * NS_PER_S)
    monkeypatch.setattr(publishing, "boot_ns", lambda: now.ns)
    return now


@pytest.fixture
def links(clock) -> LinkPublisher:
    link = Link(2, "eth0", MAC, up=True, on_link=(LAN,))
    return LinkPublisher(
        SimpleNamespace(
            node="n1",
            kernel=SimpleNamespace(state=SimpleNamespace(links=(link,))),
            cluster=SimpleNamespace(
                nodes={name: Node(name, ready=True) for name in ("n1", "n2")}, announcers=SimpleNamespace(reports={})
            ),
            outlook=SimpleNamespace(
                known=True,
                vips={VIP: Vip(VIP, Owner(OwnerKind.ELECT))},
                lease=SimpleNamespace(renew_ns=TELLINGS * NS_PER_S),
            ),
        ),
        (),
    )


def names(links: LinkPublisher) -> list[str]:
    return [link.name for link in links.now()]


def test_a_deaf_link_is_not_published_until_a_while_after_it_hears(links, clock):
    assert names(links) == ["eth0"]
    links.deaf = "eth0"
    links.believe_in_need(OTHER, frozenset({"n1", "n2"}))
    assert names(links) == []

    links.deaf = ""
    assert names(links) == []
    clock.ns += NS_PER_S
    assert names(links) == ["eth0"]


def test_a_deaf_link_is_published_while_no_other_node_could_own_the_vips(links):
    links.deaf = "eth0"
    assert names(links) == []
    links.believe_in_need(OTHER, frozenset({"n1"}))
    assert names(links) == ["eth0"]
    links.believe_in_need(OTHER, frozenset({"n1"}))
    assert names(links) == ["eth0"]


def test_one_that_was_needed_once_is_deaf_the_next_time(links, clock):
    links.deaf = "eth0"
    links.now()
    links.believe_in_need(OTHER, frozenset({"n1"}))
    links.deaf = ""
    links.believe_in_need(OTHER, frozenset({"n1", "n2"}))
    assert names(links) == ["eth0"]

    clock.ns += NS_PER_S
    links.deaf = "eth0"
    links.believe_in_need(OTHER, frozenset({"n1", "n2"}))
    assert names(links) == []


def test_what_has_changed_is_published_by_itself_and_not_too_often(links, clock):
    assert links.tells_ns(clock.ns) == clock.ns + TOGETHER_NS
    links.to_publish()
    links.hurried(clock.ns)
    assert links.tells_ns(clock.ns) is None

    links.deaf = "eth0"
    assert not links.is_urgent(clock.ns)
    assert links.tells_ns(clock.ns) == clock.ns + NS_PER_S
    clock.ns += NS_PER_S
    assert links.is_urgent(clock.ns)
