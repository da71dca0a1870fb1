"""What readers may ask about the cluster."""

from arpguard.core.clusterstate import ClusterState
from support.kube.cluster_states import a_cluster


def test_what_tests_show_to_readers_has_all_that_they_may_ask_for():
    asked = [name for name in vars(ClusterState) if not name.startswith("_")]

    assert len(asked) > 15
    assert [name for name in asked if not hasattr(a_cluster(), name)] == []
