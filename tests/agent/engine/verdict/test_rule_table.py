"""Facts about `edgemeter.agent.engine.verdict.rule_table`, the page docs/rules.md and the command `edgemeter rules`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgemeter.agent.engine.verdict import judge as verdict
from edgemeter.agent.engine.verdict import rule_table
from edgemeter.agent.rules_cli import rules

PAGE = Path(__file__).resolve().parents[4] / "docs" / "rules.md"


def test_the_page_is_made_from_the_table_that_judges():
    """A rule that was changed and not written down is found here: `edgemeter rules --markdown > docs/rules.md` writes it."""
    assert PAGE.read_text() == rule_table.markdown(verdict.RULES)


@pytest.mark.parametrize("rule", verdict.RULES, ids=lambda rule: rule.name)
def test_every_rule_says_what_it_asks_and_why(rule):
    """A limit without a reason is arbitrary; a bar would break the page's table."""
    assert rule.asks
    assert rule.why
    assert "|" not in rule.asks + rule.why


def test_the_command_prints_every_rule():
    """The gravest come first; names are whole in the table, and everything is in the JSON."""
    shown = CliRunner().invoke(rules, [], env={"COLUMNS": "160"}, catch_exceptions=False).stdout
    assert all(rule.name in shown for rule in verdict.RULES)
    document = json.loads(CliRunner().invoke(rules, ["--json"], catch_exceptions=False).stdout)
    assert {row["name"]: row["broken_is"] for row in document["rules"]} == {rule.name: rule.state for rule in verdict.RULES}
    assert document["rules"][0]["broken_is"] == "invalid"
    assert CliRunner().invoke(rules, ["--markdown"]).stdout == PAGE.read_text()


def test_json_and_markdown_at_once_are_wrong_usage():
    """There is one result."""
    assert CliRunner().invoke(rules, ["--json", "--markdown"]).exit_code == 2
