"""How long a voucher grants on in a term that the node's heartbeat does not name any more."""

from dataclasses import replace

from arpguard.core.ownership.records import Heartbeat
from arpguard.core.vouching.lingering import LINGER_NS, Lingering
from arpguard.core.vouching.profiles import PROFILES
from arpguard.units import NS_PER_S
from arpguard.wire.vouching import VouchTerm

NUMBER, OTHER, NOW = 5, 6, 1000 * NS_PER_S
TERM = VouchTerm("n1", "epoch", "n2", "instance", "voucher-epoch", "uuid", 600, 200)
NODE = Heartbeat("n1", "epoch", "n1/1", 3 * NS_PER_S, "")


def test_a_term_goes_on_for_a_while_after_the_heartbeat_has_ceased_to_name_it():
    lingering = Lingering()

    assert not lingering.is_over(NUMBER, TERM, NODE, NOW)
    assert lingering.next_ns == NOW + LINGER_NS
    assert not lingering.is_over(NUMBER, TERM, NODE, NOW + LINGER_NS - 1)
    assert lingering.is_over(NUMBER, TERM, NODE, NOW + LINGER_NS)


def test_it_lasts_longer_than_a_voucher_whose_own_link_is_down_takes_to_decide():
    assert all(2 * profile.d_ns < LINGER_NS for profile in PROFILES)


def test_it_is_over_at_once_when_the_node_is_gone_or_has_begun_anew():
    lingering = Lingering()

    assert lingering.is_over(NUMBER, TERM, None, NOW)
    assert lingering.is_over(NUMBER, TERM, replace(NODE, epoch="next"), NOW)
    assert lingering.next_ns is None


def test_one_that_is_named_again_has_the_whole_time_the_next_time():
    lingering = Lingering()
    lingering.is_over(NUMBER, TERM, NODE, NOW)
    lingering.is_over(OTHER, TERM, NODE, NOW + 2)

    lingering.named(NUMBER)
    assert lingering.next_ns == NOW + 2 + LINGER_NS
    assert not lingering.is_over(NUMBER, TERM, NODE, NOW + LINGER_NS)
