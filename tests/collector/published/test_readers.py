import random
from contextlib import suppress

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import READERS, create
from edgemeter.collector.published.readers.mapped_table import column
from tests.fixtures.published_pages import GIVEN, PAGES

MUTATIONS = 60


def mutated(text, generator):
    """Return a text that is cut off, lacks a line, or has a character too many."""
    lines = text.splitlines(keepends=True)
    position = generator.randrange(len(text))
    match generator.randrange(4):
        case 0:
            return text[:position]
        case 1:
            return text[:position] + generator.choice("|`*-=\"'[{}],:\n\t\0~9") + text[position:]
        case 2:
            generator.shuffle(lines)
            return "".join(lines)
        case _:
            del lines[generator.randrange(len(lines))]
            return "".join(lines)


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_page_ends_in_an_error_that_users_can_read(name):
    """Or in rows and what is left out; never in another exception."""
    generator = random.Random(7)  # noqa: S311 - damages fixtures
    reader = create(name)
    columns = {"columns": (column("Model=model"), column("tok/s=tokens"))} if name == "table" else {}
    for path in sorted(PAGES.glob(f"{name}.*")):
        text = path.read_text(encoding="utf-8")
        for _ in range(MUTATIONS):
            damaged = mutated(text, generator)
            assert reader.recognises("page", damaged) in (True, False)
            with suppress(ConfigError):
                reader.read(damaged, GIVEN | columns | {"device": "a board"})
