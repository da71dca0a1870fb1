"""Stories of a cluster go well: at most one answers, and in the end exactly one."""

import pytest

from support.protocol.stories import SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_goes_well(scenario):
    scenario()
