"""What is said of a valid configuration that may not do what its writer meant."""

import pytest

from arpguard.config.files import parse_config
from arpguard.core.cautions import misnamed, needs_cluster, without_effect


def test_hold_of_a_vip_that_is_not_elected_has_no_effect():
    vips = "vips: [{address: 192.0.2.1, owner: {node: a}, hold: true}, {address: 192.0.2.2, owner: elect, hold: true}]"
    expected = "vips: hold has no effect on 192.0.2.1: it applies only to a VIP with owner elect"
    (caution,) = without_effect(parse_config(vips))
    assert (str(caution), caution.steps) == (expected, ("vips", 0, "hold"))


def test_elected_vip_needs_a_cluster():
    vips = "vips: [{address: 192.0.2.1, owner: {node: a}}, {address: 192.0.2.2, owner: elect}]"
    (caution,) = needs_cluster(parse_config(vips))
    assert "192.0.2.2" in str(caution)
    assert "192.0.2.1" not in str(caution)
    assert caution.steps == ("vips", 1, "owner")
    assert needs_cluster(parse_config("vips: [{address: 192.0.2.1, owner: {node: a}}]")) == []


@pytest.mark.parametrize(
    ("node", "by_host", "told"),
    [
        ("node-1", True, ""),
        ("node-7", True, ""),
        ("vm", False, ""),
        ("vm", True, "set --node-name to the name that `vips:` has for this node"),
        ("Node-1", False, "start the agent with --node-name node-1"),
        ("node-1.example.com", False, "start the agent with --node-name node-1"),
        ("nodee-1", False, "start the agent with --node-name node-1"),
        ("database", False, ""),
    ],
)
def test_node_that_no_vip_names_is_told_where_that_seems_to_be_a_mistake(node, by_host, told):
    vips = "vips: [{address: 192.0.2.1, owner: {node: node-1}}, {address: 192.0.2.2, owner: {node: node-2}}]"
    found = misnamed(parse_config(vips), node, by_host=by_host)

    assert [problem.rpartition(": ")[2] for problem in found] == ([told] if told else [])
    assert all(f"no VIP names this node ({node}) as its owner; the VIPs name node-1, node-2" in each for each in found)


def test_node_is_not_misnamed_where_it_follows_its_keepalived():
    named = "{address: 192.0.2.1, owner: {node: node-1}}"
    followed = "{address: 192.0.2.2, owner: {keepalived: VI_1}}"
    assert misnamed(parse_config(f"vips: [{named}]"), "vm", by_host=True) != []
    assert misnamed(parse_config(f"vips: [{named}, {followed}]"), "vm", by_host=True) == []


def test_node_is_not_misnamed_where_no_owner_has_a_name():
    assert misnamed(parse_config("vips: [{address: 192.0.2.1, owner: external}]"), "vm", by_host=True) == []
