"""The lab's API server is by default no kinder than a kube-apiserver; a name states the fact."""

from arpguard_lab.apiserver import watching
from arpguard_lab.apiserver.server import Options

BOOKMARKS_S = 60  # of a kube-apiserver: about once a minute (its cacher's bookmarkFrequency)
SHORTEST_WATCH_S = 1800  # --min-request-timeout: a watch ends after one to two of these
WATCHES = 200


def test_bookmarks_are_rare():
    assert Options().bookmark_interval_s >= BOOKMARKS_S


def test_watch_without_a_limit_ends_as_early_as_there():
    asked = [watching.Options.parse({}).timeout_s for _ in range(WATCHES)]
    assert min(asked) >= SHORTEST_WATCH_S
    assert max(asked) <= 2 * SHORTEST_WATCH_S
    assert max(asked) - min(asked) > SHORTEST_WATCH_S / 2


def test_watch_that_does_not_ask_for_bookmarks_gets_none():
    assert not watching.Options.parse({}).bookmarks


def test_controllers_clean_up_as_there():
    """Without kube-controller-manager a namespace would stay, which tests ask for by name."""
    assert not Options().bare


def test_server_speaks_tls():
    assert Options().tls
