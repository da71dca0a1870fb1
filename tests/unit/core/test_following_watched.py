"""What real announcers wrote, in the order in which a watch showed it, and which node is followed after each change.

`tests/kube/recorded/README.md` says how it was recorded; the announcer of the first node was killed and started again.
"""

import json
from ipaddress import ip_address

import pytest

from arpguard.core.following import Following, Source
from arpguard.kube.projections import key_of, service
from support.kube.recordings import OF, RECORDED

WATCHED = RECORDED / "watched"
IP = ip_address("192.0.2.40")
SOURCES = {
    "MetalLB": {"servicel2status": Source.METALLB, "event": Source.METALLB_EVENT},
    "kube-vip-1.2.2-one-lock": {"lease": Source.KUBE_VIP},
    "kube-vip-1.2.2-svc_election": {"lease": Source.KUBE_VIP_SERVICES},
}
NODES = {
    # The CustomResourceDefinition keeps `status.node` as it was first: the next node has only the label. When the first
    # one is back, the other deletes the object, and the first writes none: its Event alone names it.
    # 0.14.9 made two objects, and left one of them with that label.
    "MetalLB-0.14.9": ["worker-1"] * 5 + ["worker-2"] * 4 + ["worker-1"] * 2,
    "MetalLB-0.15.3": ["worker-1"] * 3 + ["worker-2"] * 2 + ["worker-1"] * 4,
    # Between two objects an Event names the node already.
    "MetalLB-0.16.1": ["worker-1"] * 4 + ["worker-2"] * 4 + ["worker-1"] * 5,
    "kube-vip-1.2.2-one-lock": ["worker-1", "worker-3"],
    "kube-vip-1.2.2-svc_election": ["worker-3", "worker-1"],
}
OF_A_WATCH = "nodeAssigned"  # the Events that agents watch

COPIES = sorted(
    path
    for folder in ("metallb", "kube-vip")
    for path in (RECORDED / folder).iterdir()
    if path.stem not in ("lease-of-that-name", "service-of-its-class", "service-with-lease-name")
)


def steps(name: str) -> list[tuple[str, str, dict]]:
    """(type, kind, object) of each change."""
    found = []
    for path in sorted((WATCHED / name).iterdir()):
        _, change, kind = path.stem.split("-")
        found.append((change, kind, json.loads(path.read_text(encoding="utf-8"))))
    return found


def the_service(name: str) -> dict:
    """As the announcer left it."""
    return [body for _, kind, body in steps(name) if kind == "service"][-1]


@pytest.mark.parametrize("name", NODES)
def test_the_node_that_announces_is_followed_through_a_takeover_and_back(name):
    following, asked = Following(), service(the_service(name))
    sources = next(found for start, found in SOURCES.items() if name.startswith(start))
    nodes = []
    for change, kind, raw in steps(name):
        if kind in sources and raw.get("reason", OF_A_WATCH) == OF_A_WATCH:
            source = sources[kind]
            following.put(source, key_of(raw), None if change == "deleted" else OF[source].project(raw))
            nodes.append(following.node_of(asked, IP).node or None)
    assert nodes == NODES[name]


@pytest.mark.parametrize("copy", COPIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_objects_of_the_tests_are_recorded_ones(copy):
    assert any(path.read_bytes() == copy.read_bytes() for path in WATCHED.rglob("*.json"))


@pytest.mark.parametrize("name", [name for name in NODES if name.startswith("kube-vip")])
def test_kube_vip_names_the_same_node_on_the_service(name):
    raw = the_service(name)
    assert raw["metadata"]["annotations"]["kube-vip.io/vipHost"] == NODES[name][-1]
    assert Following().node_of(service(raw), IP).node == NODES[name][-1]


@pytest.mark.parametrize("name", NODES)
def test_the_address_is_in_the_status_of_the_service(name):
    assert [str(vip) for vip in service(the_service(name)).ingress_ips] == [str(IP)]
