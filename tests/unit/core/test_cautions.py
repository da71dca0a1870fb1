"""What is said of a valid configuration that may not do what its writer meant."""

from arpguard.config.files import parse_config
from arpguard.core.cautions import needs_cluster, without_effect


def test_hold_of_a_vip_that_is_not_elected_has_no_effect():
    vips = "vips: [{address: 192.0.2.1, owner: {node: a}, hold: true}, {address: 192.0.2.2, owner: elect, hold: true}]"
    expected = "vips: hold has no effect on 192.0.2.1: only a VIP with owner elect has it"
    assert without_effect(parse_config(vips)) == [expected]


def test_elected_vip_needs_a_cluster():
    vips = "vips: [{address: 192.0.2.1, owner: {node: a}}, {address: 192.0.2.2, owner: elect}]"
    (caution,) = needs_cluster(parse_config(vips))
    assert "192.0.2.2" in caution
    assert "192.0.2.1" not in caution
    assert needs_cluster(parse_config("vips: [{address: 192.0.2.1, owner: {node: a}}]")) == []
