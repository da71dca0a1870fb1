"""The programs as they are shipped, loaded once for all tests of this folder."""

from collections.abc import Iterator

import pytest

from arpguard.dataplane.build import read_build
from support.programs.prog_run import Plane, a_plane


@pytest.fixture(scope="session")
def plane() -> Iterator[Plane]:
    with a_plane("shared", read_build()) as shared:
        yield shared
