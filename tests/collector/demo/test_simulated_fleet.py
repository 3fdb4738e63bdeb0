from statistics import median

import msgspec
import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.contract.figures import LATENCY
from edgemeter.collector.compare.between import between
from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.runs.contents import StoreContents
from tests.fixtures.record_factory import STARTED_AT_NS, make_record


@pytest.fixture(scope="module")
def runs():
    return list(simulated_fleet.records_of(make_record(), end_ns=STARTED_AT_NS, days=30))


def test_everything_of_it_is_labelled_as_simulated(runs):
    """Fleet, device, board and every provenance are labelled, so nothing ranks with measurements.

    Every group of figures has a provenance. One device falls silent.
    """
    assert {run.fleet for run in runs} == {"simulated"}
    assert all(
        run.device.startswith("simulated-") and run.environment.board.startswith("simulated ")
        for run in runs
    )
    assert {source for run in runs for source in run.provenance.values()} == {"replayed"}
    assert len({run.device for run in runs}) == 40
    assert (
        len({(run.device, run.session, run.seq) for run in runs})
        == len({run.id for run in runs})
        == len(runs)
    )
    assert all(record.decode(record.encode(run)) == run for run in runs[::97])
    counts = {
        device: sum(run.device == device for run in runs)
        for device in (simulated_fleet.LOST, "simulated-orin-01")
    }
    assert counts == {simulated_fleet.LOST: 50, "simulated-orin-01": 60}


def test_the_update_slows_one_type_of_board_down(runs):
    """The boards are six per cent slower from its day on, with another firmware."""
    for prefix, ratio in (("simulated-pi5", simulated_fleet.UPDATE_RATIO), ("simulated-orin", 1.0)):
        runs_of_type = [
            run for run in runs if run.device.startswith(prefix) and run.precision == "fp32"
        ]
        before, after = (
            [run.latency.p50_ms for run in runs_of_type if (run.seq > 40) is late]
            for late in (False, True)
        )
        assert abs(median(after) / median(before) - ratio) < 0.015


def test_runs_of_the_fleet_are_of_no_common_session():
    """The template's session would make pairs of runs that are months apart.

    Most intervals of the update would then miss its truth.
    """
    template = msgspec.structs.replace(make_record(), session_started_at_ns=STARTED_AT_NS)
    runs = [
        run
        for run in simulated_fleet.records_of(template, end_ns=STARTED_AT_NS)
        if run.precision == "fp32"
    ]
    boards = sorted(
        {run.device for run in runs if run.environment.firmware == simulated_fleet.FIRMWARES[1]}
    )
    holding = 0
    for board in boards:
        sides = [
            StoreContents(
                [
                    run
                    for run in runs
                    if run.device == board and run.environment.firmware == firmware
                ]
            )
            for firmware in simulated_fleet.FIRMWARES
        ]
        (row,) = between(("old", sides[0]), ("new", sides[1]), days="all").comparison.rows
        change = row.decisions[LATENCY]
        holding += change.low <= simulated_fleet.UPDATE_RATIO <= change.high
    assert len(boards) == 24
    assert holding >= 21
