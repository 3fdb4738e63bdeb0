"""Facts about `edgemeter.collector.compare.trade_off`."""

from edgemeter.collector.compare.trade_off import pareto_front
from tests.fixtures.rows import table_row


def test_of_equal_points_all_stay_on_the_front_cheapest_first():
    """(4, 0.5) is beaten by (2, 0.6); of equal cost the more accurate stays, and of equal accuracy the cheaper; equal points all stay."""
    for points, front in (
        ([(4.0, 0.5), (2.0, 0.6), (8.0, 0.7), (1.0, 0.3), (9.0, 0.7)], [3, 1, 2]),
        ([(1.0, 0.5), (1.0, 0.6), (2.0, 0.6)], [1]),
        ([(1.0, 0.5), (1.0, 0.5)], [0, 1]),
        ([], []),
    ):
        with table_row(points):
            assert pareto_front(points) == front
