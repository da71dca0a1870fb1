"""Where no profile is configured, a node that may be migrated has the slow one."""

import pytest

from arpguard.config.model import VouchingProfile
from arpguard.core.vouching.profiles import DEFAULT, PROFILES, SLOW, is_virtual, profile_of

HARDWARE = "processor\t: 0\nmodel name\t: x hypervisor\nflags\t\t: fpu vme hypervisors lm\nbogomips\t: 1\n\n"
GUEST = HARDWARE.replace("hypervisors", "hypervisor")
ARM = "processor\t: 0\nFeatures\t: fp asimd hypervisor\n"


@pytest.mark.parametrize(
    ("cpuinfo", "virtual", "profile"),
    [
        (HARDWARE, False, DEFAULT),
        (GUEST, True, SLOW),
        (HARDWARE + GUEST, False, DEFAULT),
        (ARM, None, SLOW),
        ("", None, SLOW),
    ],
    ids=["hardware", "guest", "the first processor decides", "arm", "unreadable"],
)
def test_profile_goes_by_the_hypervisors_bit_unless_one_is_configured(cpuinfo, virtual, profile):
    assert is_virtual(cpuinfo) is virtual
    assert profile_of(None, cpuinfo) is profile
    assert [profile_of(each, cpuinfo) for each in VouchingProfile] == list(PROFILES)
