"""Reading what is pinned while the agent goes on."""

from pathlib import Path

import pytest

from arpguard.dataplane import attach, syscall

pytestmark = pytest.mark.bpf


def test_pin_that_goes_while_it_is_read_is_left_out(tmp_path, monkeypatch):
    pin = tmp_path / "links" / "7-tc_ingress"
    pin.parent.mkdir()
    pin.touch()
    opened = syscall.obj_get

    def late(path: str) -> syscall.Fd:
        Path(path).unlink()
        return opened(path)

    monkeypatch.setattr(syscall, "obj_get", late)

    assert attach.read_pins(tmp_path) == []
    assert not pin.exists()
