"""No rule of a voucher can be left out: a check fails for each rule that is broken."""

import pytest

from properties.broken_voucher_rules import VOUCHER_RULES


@pytest.mark.parametrize("rule", VOUCHER_RULES, ids=lambda rule: rule.name)
def test_a_broken_rule_of_a_voucher_is_told(rule, monkeypatch):
    rule.scenario()
    rule.apply(monkeypatch)

    with pytest.raises((AssertionError, ValueError)):
        rule.scenario()
