"""What the agent logs of its announcements."""

import logging
from ipaddress import ip_address
from unittest.mock import Mock

import pytest

from arpguard.addresses import MacAddress
from arpguard.model import EntryKey, Link
from arpguard.runtime.kernel import announcing
from arpguard.runtime.kernel.announcing import BURST, LINE_INTERVAL_NS, Announcing

START = 10**12
MAC = MacAddress.parse("02:00:00:00:00:01")
KEY, LINK = EntryKey(2, ip_address("192.0.2.10")), Link(2, "eth0", MAC, up=True)


def test_lines_that_are_left_out_are_counted_in_the_next_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    part = Announcing(Mock(), Mock(), Mock(), Mock())

    monkeypatch.setattr(announcing, "boot_ns", lambda: START)
    for _ in range(BURST + 7):
        part._log(KEY, LINK, MAC)
    monkeypatch.setattr(announcing, "boot_ns", lambda: START + 2 * LINE_INTERVAL_NS)
    for _ in range(2):
        part._log(KEY, LINK, MAC)

    line = f"announced: vip={KEY.vip} interface=eth0 mac={MAC}"
    assert caplog.messages == [line] * BURST + [f"{line} (7 more since the last line)", line]
