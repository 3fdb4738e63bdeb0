"""Facts about `edgemeter.agent.base.toml_mistakes`: every mistake is found at once, with its place and what was expected."""

from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.toml_mistakes import mistakes
from edgemeter.agent.base.types import Name


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A table."""

    limit_w: Annotated[float, msgspec.Meta(gt=0)]
    mode: Literal["quick", "full"] | None = None
    threads: int | list[Annotated[int, msgspec.Meta(ge=1)]] = 1


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """A file."""

    fleet: Name
    part: dict[Name, Part] = {}
    case: Annotated[list[Part], msgspec.Meta(min_length=1)] | None = None
    names: tuple[str, ...] = ()
    first: Part | None = None
    is_on: bool = False

    def __post_init__(self) -> None:
        if self.names and self.is_on:
            raise ValueError("names belong to what is off")


def test_a_mistake_names_section_key_what_was_expected_and_what_exists():
    """Each in one line."""
    for text, expected in [
        ("fleet = 'a'\nflet = 'b'", "flet: no such key: did you mean fleet? There are fleet, part, case, names, first, is_on"),
        ("", "fleet: is missing: write a name: up to 128"),
        ("fleet = 'a/b'", "fleet: expected a name: up to 128"),
        ("fleet = 'a'\nnames = ['x', 2]", "names: item 2: expected a text, found 2"),
        ("fleet = 'a'\nnames = ['x']\nis_on = true", "names belong to what is off"),
        ("fleet = 'a'\n[part.p]\nlimit_w = 0", "[part.p] limit_w: expected a number above 0, found 0"),
        ("fleet = 'a'\n[part.p]", "[part.p] limit_w: is missing: write a number above 0"),
        ("fleet = 'a'\n[part.'a/b']\nlimit_w = 1", "[part] a/b: expected a name"),
        ("fleet = 'a'\n[[case]]\nlimit_w = 1\nmode = 'ful'", "[[case]] number 1 mode: 'ful' is unknown: did you mean full?"),
        ("fleet = 'a'\n[first]\nlimit_w = 1\nthreads = [1, 0]", "[first] threads: item 2: expected a whole number of at least 1, found 0"),
    ]:  # fmt: skip
        (mistake,) = mistakes(msgspec.toml.decode(text), Document)
        assert str(mistake).startswith(expected), f"{text!r}"


def test_all_mistakes_are_found_at_once():
    """One round of corrections is enough."""
    text = "brokr = 1\n[part.a]\nlimit_w = -1\nmode = 3\n[part.b]\nlimit = 2"
    assert [(mistake.section, mistake.key) for mistake in mistakes(msgspec.toml.decode(text), Document)] == [
        ("", "brokr"), ("[part.a]", "limit_w"), ("[part.a]", "mode"), ("[part.b]", "limit"), ("[part.b]", "limit_w"), ("", "fleet"),
    ]  # fmt: skip
