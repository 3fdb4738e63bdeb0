"""The table of the verdict's rules, as data and as the page docs/rules.md."""

from collections.abc import Sequence

import msgspec

from edgemeter.agent.engine.verdict.rule import Rule

INTRODUCTION = """# The rules of the verdict

Every run gets a verdict on the device that made it: `valid`, `suspect` or `invalid`. It travels with the record, each reason as
`rule: evidence`. A run is as bad as the worst rule that it breaks; a `note` is worth knowing and casts no doubt on the figures.
`edgemeter compare` leaves invalid runs out, names them, and marks suspect ones. What a machine does not tell breaks no rule.

This page is made by `edgemeter rules --markdown` from the table that the verdict itself uses.

| rule | broken, a run is | it asks that | why, and why this limit |
|---|---|---|---|
"""


class Row(msgspec.Struct, frozen=True):
    """One rule as it is shown."""

    name: str
    broken_is: str
    asks: str
    why: str


def rows(rules: Sequence[Rule]) -> list[Row]:
    """Return the rules, the gravest first, in the order of the table within each."""
    order = ("invalid", "suspect", "note")
    return [Row(rule.name, rule.state, rule.asks, rule.why) for state in order for rule in rules if rule.state == state]


def markdown(rules: Sequence[Rule]) -> str:
    """Return the page that lists the rules."""
    return INTRODUCTION + "".join(f"| `{row.name}` | {row.broken_is} | {row.asks} | {row.why} |\n" for row in rows(rules))


def as_json(rules: Sequence[Rule]) -> bytes:
    """Return `{"rules": [...]}`."""
    return msgspec.json.format(msgspec.json.encode({"rules": rows(rules)}), indent=2)
