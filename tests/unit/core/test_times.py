"""Times as the Kubernetes API takes them."""

import pytest

from arpguard.core.times import micro_time


@pytest.mark.parametrize(
    ("wall_ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (999, "1970-01-01T00:00:00.000000Z"),
        (1_000, "1970-01-01T00:00:00.000001Z"),
        (1_709_210_096_500_000_000, "2024-02-29T12:34:56.500000Z"),
    ],
)
def test_micro_time_has_six_digits_of_a_second_whatever_they_are(wall_ns, text):
    assert micro_time(wall_ns) == text
