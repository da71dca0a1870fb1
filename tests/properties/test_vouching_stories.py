"""Stories of vouching go well: a node that dies is replaced after d, and two never answer."""

import pytest

from support.protocol.vouched_stories import STORIES


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_goes_well(story):
    story()
