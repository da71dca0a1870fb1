"""No rule of vouching can be left out: a check fails for each rule that is broken."""

import re
from pathlib import Path

import pytest

from properties.vouched_rules import OTHER_RULES, RULES
from support.protocol.simulation import BrokenRuleError

PAGE = Path(__file__).parents[2] / "docs" / "vouching-model.md"
# Of these rules no two answers come: nobody answers, or who does should not.
AVAILABILITY = (
    "v-keeps-term",
    "v-never-unbinds",
    "v-quiet-decided-unread",
    "v-quiet-chain-unread",
    "v-quiet-unswept",
    "v-quiet-swept-once",
    "revoked by one that has not renewed since",
    "silence in an outage held against others",
    "V19: rests on a voucher that cannot revoke",
    "V19: leaves it for what was silent in an outage",
    "a bound node is silent because its renewals are not shown",
    "V19: leaves a voucher because its renewals are not shown",
    "nobody makes a heartbeat again that was deleted unseen",
    "a renewal that says something new is not shown",
)
ROW = re.compile(r"^\| `(v-[a-z-]+)` \|(.*)\|$", flags=re.MULTILINE)


@pytest.mark.parametrize("rule", [*RULES, *OTHER_RULES], ids=lambda rule: rule.name)
def test_a_broken_rule_is_told(rule, monkeypatch):
    rule.apply(monkeypatch)

    with pytest.raises(AssertionError if rule.name in AVAILABILITY else BrokenRuleError):
        rule.story()


def test_every_rule_that_the_model_breaks_is_broken_here():
    """But the one that is none: it only bounds the time."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    broken = {name for name, rest in rows if re.search(r"\| \d+ steps $", rest)}
    assert broken - {"v-too-soon"} == {rule.name for rule in RULES}
