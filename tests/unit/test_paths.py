"""Whose a path is, by the folders above it."""

import os

import pytest

from arpguard.paths import close_to_others, exposed


@pytest.fixture
def folder(tmp_path):
    """Two levels below one that is this user's alone."""
    inner = tmp_path / "outer/inner"
    inner.mkdir(parents=True)
    return inner


def test_folders_of_this_user_are_nobody_elses(folder):
    assert exposed(folder / "file") == ""


@pytest.mark.parametrize("which", ["inner", "outer"])
def test_folder_that_everybody_may_write_to_is_named(folder, which):
    opened = folder if which == "inner" else folder.parent
    opened.chmod(0o777)
    assert exposed(folder / "file") == f"any user may write to {opened}"


def test_sticky_folder_lets_others_replace_nothing(folder):
    folder.chmod(0o1777)
    assert exposed(folder / "file") == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_folder_of_another_user_is_named(folder):
    os.chown(folder.parent, 1234, -1)
    assert exposed(folder / "file") == f"{folder.parent} belongs to another user (uid 1234)"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_link_of_another_user_is_named_wherever_it_leads(folder):
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert exposed(link / "file") == ""
    os.lchown(link, 1234, -1)
    assert exposed(link / "file") == f"{link} belongs to another user (uid 1234)"


def test_folder_behind_a_link_counts_too(folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder)
    folder.parent.chmod(0o777)
    assert exposed(link / "file") == f"any user may write to {folder.parent}"


@pytest.mark.parametrize(("before", "after"), [(0o777, 0o775), (0o1777, 0o1777), (0o770, 0o770)])
def test_folder_that_everybody_may_write_to_is_closed_to_them(folder, before, after):
    folder.chmod(before)
    close_to_others(folder)
    assert folder.stat().st_mode & 0o7777 == after


def test_link_is_not_followed_to_close_a_folder(folder, tmp_path):
    folder.chmod(0o777)
    (tmp_path / "link").symlink_to(folder)
    close_to_others(tmp_path / "link")
    assert folder.stat().st_mode & 0o7777 == 0o777
