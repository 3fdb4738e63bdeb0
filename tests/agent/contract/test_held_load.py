"""Facts about `edgemeter.agent.contract.held_load`: whether runs held their load."""

from edgemeter.agent.contract.held_load import are_in_time
from tests.fixtures.record_factory import make_steady
from tests.fixtures.rows import table_row


def test_a_rate_is_held_where_every_run_missed_less_than_1_percent():
    """The answer is open where the runs disagree, and below 300 frames in all."""
    for missed, frames, expected in (
        ((8, 8), 900, True),
        ((9, 9), 900, False),
        ((0, 9), 900, None),
        ((0, 0), 149, None),
        ((0, 0), 150, True),
    ):
        with table_row(missed, frames):
            runs = [
                make_steady(frames=frames, late=late, missed_ratio=late / frames) for late in missed
            ]
            assert are_in_time(runs) is expected
