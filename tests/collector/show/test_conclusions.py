"""Facts about the sentences that a comparison is concluded in."""

from edgemeter.collector.compare.comparison import compare
from edgemeter.collector.compare.judgement import SmallestDifferences
from edgemeter.collector.runs.store import StoreContents
from edgemeter.collector.show import conclusions
from tests.fixtures.comparison_factory import day_by_day, make_reference, make_run
from tests.fixtures.rows import table_row


def test_a_latency_is_worded_as_it_was_judged():
    """No more certain than its interval, and by the difference that the reader set as one that matters."""
    for p50_ms, matters_ratio, words in (
        (9.76, 0.03, "4.9 times as long as the reference"),
        (1.0, 0.03, "2.0 times as fast as the reference"),
        (2.04, 0.03, "as fast as the reference within 3%"),
        (2.06, 0.03, "1.03 times as long as the reference, perhaps by less than the 3% that matter"),
        (2.12, 0.1, "as fast as the reference within 10%"),
        (None, 0.03, "with no ratio to the reference"),
    ):
        with table_row(p50_ms, matters_ratio):
            factors = (0.999, 1.0, 1.001)
            runs = day_by_day(
                [make_run(p50_ms=p50_ms and p50_ms * factor) for factor in factors],
                [make_reference(p50_ms=2.0 * factor) for factor in factors],
            )
            row = compare(StoreContents(runs), "reference", SmallestDifferences(ratio=matters_ratio)).rows[-1]
            assert conclusions.speed(row) == words
