"""What the doctor reads of a machine, where tests/netns/test_doctor.py has no way to make it."""

import os
from pathlib import Path

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.checkup.snapshot import Unread
from arpguard.dataplane import guarding, inspecting, syscall
from arpguard.model import Link

ETH0 = Link(2, "eth0", MacAddress(bytes(6)), up=True)


def test_settings_that_are_odd_or_not_there_are_left_out(tmp_path):
    folder = tmp_path / "ipv4/conf/eth0"
    folder.mkdir(parents=True)
    (folder / "arp_ignore").write_text("2\n")
    (folder / "arp_announce").write_text("two\n")
    (folder / "arp_filter").write_bytes(b"\xff")
    found = inspecting.read_sysctls([ETH0], tmp_path)
    assert found.values == {("ipv4/arp_ignore", "eth0"): 2}


@pytest.mark.parametrize(("code", "expected"), [(22, "False"), (1, "hidden")])
def test_tcx_is_missing_or_hidden_by_what_the_kernel_says(monkeypatch, code, expected):
    def refuse(*_):
        raise OSError(code, "no")

    monkeypatch.setattr(syscall, "program_query", refuse)
    found = inspecting.has_tcx()
    assert ("hidden" if isinstance(found, Unread) else str(found)) == expected


def test_a_kernel_that_loads_nothing_says_why(monkeypatch):
    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(syscall, "program_load", refuse)
    assert "Operation not permitted" in inspecting._compiles_bpf().why


def test_a_file_that_cannot_be_read_is_named():
    assert inspecting._text(Path("/nonexistent/clock")) == Unread(
        "/nonexistent/clock cannot be read (No such file or directory)"
    )


# ---- guards ------------------------------------------------------------------------------------------------------


def test_a_lock_is_seen_in_proc_locks_and_only_of_that_folder(tmp_path):
    own, locks = tmp_path.stat(), tmp_path / "locks"
    device = f"{os.major(own.st_dev):02x}:{os.minor(own.st_dev):02x}"
    row = f"1: FLOCK  ADVISORY  WRITE 77 {device}:{{}} 0 EOF\n"
    locks.write_text(row.format(own.st_ino + 1))
    assert guarding.is_locked(tmp_path, locks) is False
    locks.write_text("2: POSIX  ADVISORY  READ 1 00:01:5 0 EOF\n" + row.format(own.st_ino))
    assert guarding.is_locked(tmp_path, locks) is True


def test_a_lock_that_cannot_be_seen_is_not_known(tmp_path):
    assert guarding.is_locked(tmp_path, tmp_path / "none") is None
    assert guarding.is_locked(tmp_path / "none") is None


def test_folders_of_agents_are_found_some_levels_deep(tmp_path):
    for path in ("a/maps-1", "b/node-1/maps-2", "b/node-1/programs-3", "c/other", "d/e/f/g/maps-4"):
        (tmp_path / path).mkdir(parents=True)
    assert list(guarding._pin_folders(tmp_path)) == [tmp_path / "a", tmp_path / "b/node-1"]
