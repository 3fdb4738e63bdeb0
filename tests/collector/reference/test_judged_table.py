"""Facts about judged figures as people and programs read them."""

import io

from rich.console import Console

from edgemeter.collector.published.judge import judge
from edgemeter.collector.reference import judged_table
from tests.fixtures.published_factory import make_published


def test_further_comparisons_are_counted_in_every_output():
    """Who reads the nearest and the farthest learns that there are others."""
    rows = [make_published(version=str(number), value=10.0 + number) for number in range(12)]
    judged = judge(rows[:1], (), rows[1:])
    assert judged_table.document(judged)["rows"][0]["further_comparisons"] == 3
    for show in (judged_table.show, judged_table.show_claim):
        console = Console(width=200, record=True, file=io.StringIO())
        show(judged, console)
        assert "and 3 further comparisons, between the nearest and the farthest" in console.export_text()
