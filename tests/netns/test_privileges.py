"""What the agent makes is nobody else's: its pins, its socket, and the folders they are in."""

import os
import signal
import stat
from pathlib import Path

import pytest

from arpguard.cli import exits
from arpguard.dataplane import bpffs
from arpguard.errors import DataPlaneError
from support.netns.cable import a_pair, a_place, address

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

CONFIG = f"metrics: {{listen: off}}\nvips: [{{address: {address(50)}, owner: {{node: node-1}}}}]\n"
SOMEBODY = 1234


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_agent_makes_nothing_that_others_may_write_to_whatever_its_umask():
    with a_pair("umask") as pair:
        agent = pair.agent()
        agent.api = f"unix://{pair.folder}/new/run/agent.sock"
        agent.configure(CONFIG)
        before = os.umask(0)
        try:
            agent.start()
        finally:
            os.umask(before)
        agent.wait_for()
        assert mode(pair.folder / "new/run/agent.sock") == 0o660
        assert [oct(mode(pair.folder / name)) for name in ("new", "new/run")] == ["0o755", "0o755"]
        assert mode(agent.pin_dir) == 0o700
        made = [path for path in agent.pin_dir.rglob("*") if not path.is_symlink()]
        assert len(made) > 10
        assert not [str(path) for path in made if mode(path) & 0o022]
        agent.kill(signal.SIGTERM)


def test_pin_folder_that_is_too_wide_is_closed():
    with a_place("wide") as (_, pin_root):
        pin_root.chmod(0o777)
        bpffs.prepare(pin_root)
        assert mode(pin_root) == 0o700


def test_pin_folder_of_another_user_is_refused():
    """Everybody may make folders in a bpffs that was mounted without a mode."""
    with a_place("foreign") as (_, pin_root):
        theirs = pin_root / "theirs"
        theirs.mkdir()
        os.chown(theirs, SOMEBODY, -1)
        for pin_dir in (theirs, theirs / "below"):
            with pytest.raises(DataPlaneError, match=rf"another user \(uid {SOMEBODY}\)"):
                bpffs.prepare(pin_dir)


def test_link_in_the_place_of_the_pin_folder_is_refused():
    with a_place("link") as (_, pin_root):
        (pin_root / "real").mkdir(mode=0o755)
        (pin_root / "link").symlink_to(pin_root / "real")
        with pytest.raises(DataPlaneError, match="Not a directory"):
            bpffs.prepare(pin_root / "link")
        assert mode(pin_root / "real") == 0o755


def test_agent_says_why_it_does_not_use_the_folder_of_another_user():
    with a_pair("squat") as pair:
        agent = pair.agent()
        agent.pin_dir.mkdir(mode=0o777)
        os.chown(agent.pin_dir, SOMEBODY, -1)
        agent.configure(CONFIG)
        agent.start()
        assert agent._process.wait(60) == exits.UNREACHABLE
        assert "choose another bpf.pin_dir" in agent.said()
