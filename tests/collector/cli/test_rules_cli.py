import json

from click.testing import CliRunner

from edgemeter.collector.cli.rules import rules
from edgemeter.collector.runs.relation import EQUAL, MARKED


def test_the_table_of_comparing_names_everything_that_pairing_asks_for():
    """The table is made from the same list as pairing."""
    document = json.loads(
        CliRunner().invoke(rules, ["--format", "json"], catch_exceptions=False).stdout
    )
    names = {name for row in document["comparing"] for name in row["what"].split(", ")}
    assert {field.title for field in (*EQUAL, *MARKED)} <= names
    assert {"accuracy gate", "class of precision", "verdict"} <= names
