"""Reading what is pinned while the agent goes on."""

import sys
from pathlib import Path

import pytest

from arpguard.dataplane import attach, syscall
from arpguard.verdict import Hook

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


def test_looking_for_a_pin_interns_no_name(tmp_path, monkeypatch):
    attacher = attach.Attacher(tmp_path, {})
    interned = []
    monkeypatch.setattr(sys, "intern", lambda text: interned.append(text) or text)

    assert attacher._pin(7, Hook.TC_INGRESS) == f"{tmp_path}/links/7-tc_ingress"
    assert attach._alive(attacher._pin(7, Hook.TC_INGRESS), 7, Hook.TC_INGRESS) is None
    assert interned == []
