import json

from click.testing import CliRunner

from edgemeter.agent.contract.case_relation import LIKENESSES, PAIR_MARKS
from edgemeter.agent.verdict import judge
from edgemeter.collector.cli.rules import rules


def run(*arguments):
    """Run the command; an error of ours comes through."""
    return CliRunner().invoke(rules, list(arguments), catch_exceptions=False)


def test_the_table_of_comparing_names_everything_that_pairing_asks_for():
    """It is made from the same list."""
    document = json.loads(run("--comparing", "--json").stdout)
    names = {row["what"] for row in document["comparing"]}
    assert {like.title for _, like in LIKENESSES} <= names
    for _, mark in PAIR_MARKS:
        assert any(f"marked `{mark.name}`" in row["otherwise"] for row in document["comparing"]), mark.name
    assert {"accuracy gate", "class of precision", "verdict"} <= names
    assert {row["kind"]: row["ranks"] for row in document["kinds"]}["published"] == "no"


def test_without_an_option_both_tables_are_shown():
    """The rules of the verdict come first, those of a comparison after them."""
    output = run().stdout
    assert output.index("violated, a run is") < output.index("what must match")


def test_every_name_is_on_a_line_of_its_own_that_is_not_cut():
    """On a narrow terminal and in a pipe."""
    for columns in ("60", "300"):
        lines = CliRunner().invoke(rules, [], env={"COLUMNS": columns}, catch_exceptions=False).stdout.splitlines()
        assert max(map(len, lines)) <= 100
        assert {rule.name for rule in judge.RULES} <= set(lines)


def test_the_documents_of_the_verdict_stay_as_they_were():
    """`config rules --json` and `--format markdown` are those of the agent."""
    assert set(json.loads(run("--json").stdout)) == {"rules"}
    assert run("--format", "markdown").stdout.startswith("# My run is suspect")
    assert run("--comparing", "--format", "markdown").stdout.startswith("| what | asked |")
