"""The programs as they are in bpf/, compiled once for all tests of this folder."""

from collections.abc import Iterator

import pytest

from arpguard.dataplane.source import find_source
from support.programs.prog_run import Plane, a_plane


@pytest.fixture(scope="session")
def plane() -> Iterator[Plane]:
    with a_plane("shared", find_source()) as shared:
        yield shared
