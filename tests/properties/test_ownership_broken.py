"""No rule of the claim protocol can be left out: a check fails for each rule that is broken."""

import pytest

from properties.broken_rules import RULES


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_broken_rule_is_told(rule, monkeypatch):
    rule.apply(monkeypatch)

    with pytest.raises(AssertionError):
        rule.scenario()
