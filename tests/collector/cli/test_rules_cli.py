import json

from click.testing import CliRunner

from edgemeter.agent.contract.case_relation import LIKENESSES, PAIR_MARKS
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
