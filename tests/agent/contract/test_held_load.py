"""Facts about `edgemeter.agent.contract.held_load`: whether a run held its load."""

from edgemeter.agent.contract.held_load import is_held
from edgemeter.agent.contract.record_figures import Load
from tests.fixtures.record_factory import make_record
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
