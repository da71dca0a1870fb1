"""What is known of the cluster before anything is."""

from arpguard.core.clusterstate import ClusterState


def a_state() -> ClusterState:
    return ClusterState("https://192.0.2.9", "arpguard", lambda _: (), lambda _: None, lambda _: None, lambda: None)


def test_nothing_is_known_at_first():
    state = a_state()

    assert not state.complete
    assert (state.renewed_ns, state.members, state.nobody, dict(state.vips)) == (None, (), frozenset(), {})
    assert state.times.duration_ns == 0
