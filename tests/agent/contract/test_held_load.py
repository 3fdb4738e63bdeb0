"""Facts about `edgemeter.agent.contract.held_load`: whether a run held its load."""

from edgemeter.agent.contract.held_load import are_in_time, is_held
from edgemeter.agent.contract.record_figures import Load
from tests.fixtures.record_factory import make_record, make_steady
from tests.fixtures.rows import table_row


def test_a_load_is_held_where_queries_are_answered_and_none_wait_in_line():
    """Above a hundredth of failed queries no load is held; a schedule that is too short does not tell."""
    for failed, load, expected in [
        (0, {"target_per_s": 5.0, "is_sustained": True}, True),
        (0, {"concurrency": 4}, True),
        (4, {"target_per_s": 5.0, "is_sustained": True, "unserved": 6}, False),
        (0, {"target_per_s": 5.0, "is_sustained": False, "unserved": 9}, False),
        (0, {"target_per_s": 5.0, "is_sustained": None, "unserved": 9, "in_flight_max": 256}, False),
        (0, {"target_per_s": 5.0, "is_sustained": None}, None),
    ]:
        with table_row(failed, load):
            run = make_record(load=Load(samples=64, failures={"http 503": failed}, **load))
            assert is_held(run) is expected


def test_a_rate_is_held_where_every_run_missed_less_than_1_percent():
    """It is open where the runs disagree, and below 300 frames in all."""
    for missed, frames, expected in (
        ((8, 8), 900, True),
        ((9, 9), 900, False),
        ((0, 9), 900, None),
        ((0, 0), 149, None),
        ((0, 0), 150, True),
    ):
        with table_row(missed, frames):
            runs = [make_steady(frames=frames, late=late, missed_ratio=late / frames) for late in missed]
            assert are_in_time(runs) is expected
