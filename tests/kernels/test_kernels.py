"""Which package of a series is taken, and what a run is written as; a name states the fact."""

import pytest

from kernels.incident import Row, equal
from kernels.packages import newest
from kernels.run import Run, table

LISTED = [
    "linux-image-6.1.0-9-amd64",
    "linux-image-6.1.0-56-amd64",
    "linux-image-6.1.0-57-rt-amd64",
    "linux-image-6.1.0-57-cloud-amd64",
    "linux-image-6.1.0-57-amd64-dbg",
    "linux-image-6.1.0-57-amd64-unsigned",
    "linux-image-6.12.100+deb12-amd64",
    "linux-image-6.12.99+deb12-amd64",
    "linux-image-6.12.117+deb12-cloud-amd64",
]


@pytest.mark.parametrize(
    ("series", "package"),
    [("6.1", "linux-image-6.1.0-56-amd64"), ("6.12", "linux-image-6.12.100+deb12-amd64"), ("6.17", None)],
)
def test_the_newest_plain_kernel_of_a_series_is_taken(series, package):
    assert newest(series, LISTED) == package


def test_what_is_not_as_it_has_to_be_is_bold():
    rows = [equal("a", "x", "x"), equal("b", "x", "y"), Row("c", "one of them", "node-2", holds=True)]
    lines = table([Run("6.12.1", 120.0, rows)]).splitlines()
    cells = [line.split("|")[3].strip() for line in lines if line.startswith("| ")]
    assert cells == ["Linux 6.12.1", "so it is", "**y**", "node-2", "2 min"]
