"""Facts about the judgement of published rows."""

from edgemeter.collector.published.judge import judge
from tests.fixtures.published_factory import make_published


def test_every_row_is_judged_in_its_order():
    """Also a row that no bound is known for has a judgement."""
    rows = [make_published(figure="throughput", value=value, unit="fps", batch=batch) for batch, value in ((1, 9.0), (2, 8.0))]
    assert [judgement.row for judgement in judge(rows)] == rows


def test_rows_are_held_against_those_of_the_store_and_of_each_other():
    """By model, device and figure, whatever they are called."""
    rows = [make_published(value=81.2), make_published(model="Tiny-Detector", value=81.0, source="a blog")]
    stored = [make_published(device="RPi 5", value=530.0, version="8.2.0"), make_published(device="RPi 4", value=530.0, version="8.2.0")]
    first, second = judge(rows, (), stored)
    assert [comparison.outcome for comparison in first.comparisons] == ["contradicts", "agrees"]
    assert [comparison.outcome for comparison in second.comparisons] == ["contradicts", "agrees"]
