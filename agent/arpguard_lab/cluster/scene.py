"""A lab with its API server and agents, for one scenario after the other: namespaces and programs are kept."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arpguard_lab.apiserver.manifests import read
from arpguard_lab.cluster.bench import OFF, KubeBench
from arpguard_lab.cluster.double import Double
from arpguard_lab.cluster.real import VARIABLE, Real
from arpguard_lab.cluster.servers import ApiUnderTest
from arpguard_lab.cluster.topology import KubeLab
from arpguard_lab.progress import waits_for

_MANIFESTS = Path(__file__).parents[3] / "deploy" / "base"  # in a checkout


def kubeconfig_given() -> Path | None:
    """The file that names a real API server, if one is to be used."""
    path = os.environ.get(VARIABLE)
    return Path(path) if path else None


@contextmanager
def a_bench(
    lab: KubeLab, scenario: str, settings: str = "", lease: str = OFF, server: ApiUnderTest | None = None
) -> Iterator[KubeBench]:
    """An API server with nothing in it but the scene, and agents that have just begun; the rest as in KubeBench.

    `server` None: the one of the kubeconfig that is given, or else the lab's own.
    """
    server = server or _server(lab)
    waits_for("starting an API server")
    try:
        server.start()
        bench = KubeBench(lab, server, scenario, settings, lease)
        try:
            bench.set_up()
            yield bench
        finally:
            bench.tear_down()
    finally:
        server.stop()


def _server(lab: KubeLab) -> ApiUnderTest:
    given = kubeconfig_given()
    return Real(lab, given, shipped_manifests()) if given else Double(lab, shipped_manifests())


def shipped_manifests() -> list[dict[str, Any]]:
    """The objects that `deploy/base` installs, where this runs in a checkout; what says who may do what is used."""
    if not _MANIFESTS.is_dir():
        return []
    return [document for path in sorted(_MANIFESTS.glob("*.yaml")) for document in read(path)]
