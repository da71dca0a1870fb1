"""A file that changes is noticed, however it is changed."""

import asyncio

import pytest

from arpguard.runtime.filewatch import FileWatch


def _change(path, watch, act, limit_s=10.0) -> bool:
    async def seen() -> bool:
        changes = watch.changes()
        act(path)
        try:
            async with asyncio.timeout(limit_s):
                await anext(changes)
        except TimeoutError:
            return False
        return True

    return asyncio.run(seen())


def _write_in_place(path):
    path.write_text("mode: enforce")


def _replace(path):
    other = path.with_suffix(".new")
    other.write_text("mode: enforce")
    other.replace(path)


def _switch_link(path):
    """As the kubelet switches a mounted ConfigMap: ..data points to another folder at once."""
    (path.parent / "second").mkdir()
    (path.parent / "second/config.yaml").write_text("mode: enforce")
    (path.parent / "..data_tmp").symlink_to("second")
    (path.parent / "..data_tmp").rename(path.parent / "..data")


@pytest.mark.parametrize("act", [_write_in_place, _replace])
def test_change_is_noticed(act, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("mode: observe")

    assert _change(path, FileWatch(path), act)


def test_switched_symbolic_link_is_noticed(tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first/config.yaml").write_text("mode: observe")
    (tmp_path / "..data").symlink_to("first")
    path = tmp_path / "config.yaml"
    path.symlink_to("..data/config.yaml")

    assert _change(path, FileWatch(path), _switch_link)


def test_change_before_the_first_look_is_noticed(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("mode: observe")
    watch = FileWatch(path)
    _write_in_place(path)

    assert _change(path, watch, lambda _path: None)


@pytest.mark.parametrize("act", [lambda _path: None, lambda path: path.unlink()], ids=["untouched", "gone"])
def test_nothing_to_read_is_no_change(act, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("mode: observe")

    assert not _change(path, FileWatch(path), act, limit_s=0.7)
