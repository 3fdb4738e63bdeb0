"""Facts about `edgemeter.agent.base.toml_mistakes`.

Every mistake is found at once, with its place and what was expected.
"""

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
    """Each mistake is described in one line."""
    for text, expected in [
        ("fleet = 'a'\nflet = 'b'", "`flet` is not a key: did you mean fleet?"),
        ("", "`fleet` is required: write a name (letters, digits"),
        ("fleet = 'a/b'", "`fleet` has to be a name (letters"),
        (
            "fleet = 'a'\nnames = ['x', 2]",
            ("`names` is wrong in item 2, which has to be a text, not 2"),
        ),
        ("fleet = 'a'\nnames = ['x']\nis_on = true", "names belong to what is off"),
        (
            "fleet = 'a'\n[part.p]\nlimit_w = 0",
            "`limit_w` in [part.p] has to be a number above 0, not 0",
        ),
        ("fleet = 'a'\n[part.p]", "`limit_w` in [part.p] is required: write a number above 0"),
        ("fleet = 'a'\n[part.'a/b']\nlimit_w = 1", "`a/b` in [part] has to be a name"),
        (
            "fleet = 'a'\n[[case]]\nlimit_w = 1\nmode = 'ful'",
            ("`mode` in [[case]] number 1 is 'ful', which is unknown: did you mean full?"),
        ),
        (
            "fleet = 'a'\n[first]\nlimit_w = 1\nthreads = [1, 0]",
            (
                "`threads` in [first] is wrong in item 2, which has to be a whole number of at "
                "least 1, not 0"
            ),
        ),
    ]:
        (mistake,) = mistakes(msgspec.toml.decode(text), Document)
        assert str(mistake).startswith(expected), f"{text!r}"


def test_all_mistakes_are_found_at_once():
    """One round of corrections is enough."""
    text = "brokr = 1\n[part.a]\nlimit_w = -1\nmode = 3\n[part.b]\nlimit = 2"
    assert [
        (mistake.section, mistake.key) for mistake in mistakes(msgspec.toml.decode(text), Document)
    ] == [
        ("", "brokr"),
        ("[part.a]", "limit_w"),
        ("[part.a]", "mode"),
        ("[part.b]", "limit"),
        ("[part.b]", "limit_w"),
        ("", "fleet"),
    ]
