"""A FIFO of the kernel, read without taking anything out."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from arpguard.dataplane.fifo import Fifo, UnfitFifoError, provide, recall, remember

LINE = b'INSTANCE "VI_1" MASTER 100\n'


@pytest.fixture
def path(tmp_path) -> Path:
    made = tmp_path / "keepalived" / "states"
    provide(made)
    return made


@pytest.fixture
def fifo(path):
    opened = Fifo(path)
    yield opened
    opened.close()


@pytest.fixture
def writer(path, fifo):
    """As keepalived opens it."""
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield fd
    os.close(fd)


def is_ready(fifo: Fifo) -> bool:
    """As an event loop sees it."""
    poll = select.poll()
    poll.register(fifo.ready.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def test_it_is_made_for_root_alone_and_stays_as_it_is(path):
    made = path.stat()
    assert (path.is_fifo(), made.st_mode & 0o777) == (True, 0o600)
    provide(path)
    assert path.stat().st_ino == made.st_ino


def test_what_is_written_stays_in_it(fifo, writer):
    os.write(writer, LINE)
    assert fifo.look().content == LINE
    os.write(writer, LINE)
    assert fifo.look().content == 2 * LINE
    fifo.take_out(len(LINE))
    assert fifo.look().content == LINE


def test_it_stays_for_the_next_reader_as_long_as_the_writer_lives(path, writer, fifo):
    os.write(writer, LINE)
    fifo.look()
    other = Fifo(path)
    try:
        assert other.look()[:3] == (LINE, True, 65536)
    finally:
        other.close()


def test_all_of_a_full_one_is_seen(fifo, writer):
    try:
        while True:
            os.write(writer, LINE)
    except BlockingIOError:
        content = fifo.look().content
    assert len(content) > 7 * 65536 // 8
    assert content.splitlines() == [LINE.strip()] * content.count(b"\n")


def test_it_shows_whether_anybody_has_it_open_to_write(path, fifo):
    assert not fifo.look().has_writer, "nobody since it was opened"
    writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    assert fifo.look().has_writer
    os.close(writer)
    assert not fifo.look().has_writer


def test_each_line_and_the_end_of_the_writer_are_news_once(path, fifo):
    fifo.look()
    writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    for _ in range(3):
        os.write(writer, LINE)
        assert is_ready(fifo)
        fifo.look()
        assert not is_ready(fifo), "the lines are still in it"
    os.close(writer)
    assert is_ready(fifo)


def myself() -> str:
    return f"{os.getpid()}:{Path('/proc/self/stat').read_text().rpartition(')')[2].split()[19]}"


def test_the_process_that_writes_is_named_and_no_reader(path, fifo):
    assert fifo.look().writers == ()
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    assert fifo.look().writers == (myself(),)
    os.close(fd)
    assert fifo.look().writers == ()


def test_a_child_that_inherits_the_descriptor_does_not_count_and_another_process_does(path, fifo, writer):
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, pass_fds=[writer]) as child, open(os.devnull) as null:
        assert fifo.look().writers == (myself(),)
        os.dup2(null.fileno(), writer)
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))  # so that they are looked for
        (other,) = fifo.look().writers
        assert other.startswith(f"{child.pid}:")
        child.communicate()


def test_a_writer_that_closes_it_for_a_moment_is_noticed(path, fifo, writer):
    assert not fifo.look().was_closed
    other = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    assert is_ready(fifo)
    assert not fifo.look().was_closed
    os.close(other)
    assert fifo.look().was_closed
    assert not fifo.look().was_closed


def test_a_write_moves_the_time(fifo, writer):
    before = fifo.look().mtime_ns
    until_moved = before
    while until_moved == before:  # the clock of files has ticks
        os.write(writer, LINE)
        until_moved = fifo.look().mtime_ns
    fifo.take_out(len(fifo.look().content))
    assert fifo.look().mtime_ns == until_moved


def test_another_one_at_the_path_is_noticed(path, fifo):
    assert fifo.is_current
    path.unlink()
    assert not fifo.is_current
    provide(path)
    assert not fifo.is_current


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_one_that_others_may_write_to_is_refused(path, mode):
    path.chmod(mode)
    with pytest.raises(
        UnfitFifoError,
        match=f"users other than root may write to {path}: change its owner to root, and its mode to 0600",
    ):
        Fifo(path)


def test_one_that_others_may_replace_is_refused(path):
    path.parent.chmod(0o777)
    with pytest.raises(
        UnfitFifoError, match=f"users other than root may replace {path}: any user may write to {path.parent}"
    ):
        Fifo(path)


def test_the_folder_above_its_own_may_be_an_emptydir_of_kubernetes(path):
    path.parent.parent.chmod(0o777)
    provide(path)
    Fifo(path).close()


def test_what_is_no_fifo_is_refused(path):
    path.unlink()
    path.touch()
    with pytest.raises(UnfitFifoError, match=r"is not a FIFO: remove it, or set keepalived\.fifo to another path"):
        Fifo(path)


def test_a_symbolic_link_is_not_followed(path):
    path.rename(path.with_name("other"))
    path.symlink_to("other")
    with pytest.raises(UnfitFifoError, match="is not a FIFO"):
        Fifo(path)


def test_what_was_written_down_is_recalled(path):
    assert recall(path) == ""
    for text in ("first\n", "second\n", ""):
        remember(path, text)
        assert recall(path) == text
    assert sorted(each.name for each in path.parent.iterdir()) == ["states", "states.known"]


def test_what_others_may_have_written_down_is_not_recalled(path):
    remember(path, "mine\n")
    path.with_name("states.known").chmod(0o622)
    assert recall(path) == ""


def test_what_cannot_be_read_is_not_recalled(path):
    remember(path, "mine\n")
    path.with_name("states.known").write_bytes(b"\xff")
    assert recall(path) == ""
