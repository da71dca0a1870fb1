"""The annotation arpguard.io/owned-by: what a node writes into it, and what it leaves alone."""

from ipaddress import ip_address

import pytest

from arpguard.core.cluster import Service
from arpguard.core.ownedby import MAX_TEXT, Correction, correction

A, B, C, D = (ip_address(text) for text in ("192.0.2.40", "192.0.2.41", "192.0.2.99", "2001:db8::40"))
ME = "node-1"


def corrected(text: str, mine=(A,), addresses=(A, B)) -> Correction | None:
    return correction(Service("shop", "web", owned_by=text, external_ips=addresses), frozenset(mine), ME)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", "192.0.2.40=node-1", id="the first"),
        pytest.param("192.0.2.40=node-2", "192.0.2.40=node-1", id="taken over"),
        pytest.param("192.0.2.41=node-2", "192.0.2.40=node-1, 192.0.2.41=node-2", id="beside another's"),
        pytest.param("192.0.2.41=node-10", "192.0.2.40=node-1, 192.0.2.41=node-10", id="a name that begins alike"),
        pytest.param("192.0.2.99=node-2", "192.0.2.40=node-1", id="an address that the Service does not have"),
        pytest.param("192.0.2.40=node-1x, y=z, =, 192.0.2.41=", "192.0.2.40=node-1", id="written by hand"),
        pytest.param("192.0.2.41=node-1", "192.0.2.40=node-1", id="one taken, one lost"),
    ],
)
def test_owner_writes_its_name_at_once(before, after):
    assert corrected(before) == Correction(after, urgent=True)


@pytest.mark.parametrize(
    ("before", "after", "mine"),
    [
        pytest.param("192.0.2.40=node-1, 192.0.2.41=node-1", "192.0.2.40=node-1", (A,), id="one of two lost"),
        pytest.param("192.0.2.40=node-1", "", (), id="all lost"),
        pytest.param("192.0.2.40=node-1, 192.0.2.41=node-2", "192.0.2.41=node-2", (), id="another's stays"),
        pytest.param("192.0.2.40=node-1, 192.0.2.99=node-2", "192.0.2.40=node-1", (A,), id="an address less"),
        pytest.param("192.0.2.99=node-1", "", (C,), id="the Service has it no longer"),
    ],
)
def test_name_that_is_wrong_goes_but_may_wait(before, after, mine):
    assert corrected(before, mine) == Correction(after)


@pytest.mark.parametrize(
    ("text", "mine"),
    [
        pytest.param("192.0.2.40=node-1", (A,), id="right"),
        pytest.param("192.0.2.40=node-1, 192.0.2.41=node-2", (A,), id="right beside another's"),
        pytest.param("", (), id="not this node's"),
        pytest.param("192.0.2.40=node-2, 192.0.2.99=node-3", (), id="others' names"),
        pytest.param("192.0.2.40=node-10", (), id="a name that begins alike"),
        pytest.param("", (C,), id="an address of another Service"),
    ],
)
def test_node_leaves_alone_what_does_not_concern_it(text, mine):
    assert corrected(text, mine) is None


def test_addresses_of_both_families_and_of_load_balancers_are_in_order():
    service = Service("shop", "web", external_ips=(D, B), ingress_ips=(A, D))
    found = correction(service, {A, B, D}, ME)
    assert found == Correction("192.0.2.40=node-1, 192.0.2.41=node-1, 2001:db8::40=node-1", urgent=True)


def test_text_that_gets_too_long_has_the_first_addresses_and_is_written_once():
    many = tuple(A + number for number in range(300))
    text = corrected("", many, many).text

    assert text.startswith("192.0.2.40=node-1, ")
    assert text.endswith("=node-1, ...")
    assert MAX_TEXT - 30 < len(text) < 4096
    assert corrected(text, many, many) is None
