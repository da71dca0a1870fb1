"""Names as long as they may be, and no longer; nothing that only looks like one."""

import pytest

from arpguard.names import is_ifname, is_label, is_subdomain


@pytest.mark.parametrize(("fits", "longest"), [(is_subdomain, 253), (is_label, 63), (is_ifname, 15)])
def test_name_may_be_so_long(fits, longest):
    assert fits("a")
    assert fits("a" * longest)
    assert not fits("a" * (longest + 1))
    assert not fits("")


@pytest.mark.parametrize("text", ["UPPER", "-a", "a-", "a_b", "a\n", "\u0663", "a/b"])
def test_what_is_no_name_of_an_object(text):
    assert not is_subdomain(text)
    assert not is_label(text)


def test_dots_are_for_subdomains():
    assert is_subdomain("a.b")
    assert not is_label("a.b")


@pytest.mark.parametrize("text", ["a b", "a/b", "eth0:1", "\x1b[2J", "a\n"])
def test_what_is_no_name_of_an_interface(text):
    assert not is_ifname(text)
