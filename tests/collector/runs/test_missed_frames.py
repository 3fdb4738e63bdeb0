import json

import numpy as np

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_figures import CurvePoint, Sustained
from edgemeter.collector.runs.missed_frames import MissedRow, missed_frames
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import make_record, make_steady

MS = 1_000_000
# Ten frames at 10 a second, deadline 60 ms. Frame 2 takes 130 ms alone; 3 waits for it, and is late
# by that; 6 and 7 are never begun.
NUMBERS = np.array([0, 1, 2, 3, 4, 5, 8, 9])
LATENCY_MS = np.array([30, 30, 130, 70, 30, 30, 30, 30])
WAITED_MS = np.array([0, 0, 0, 30, 0, 0, 0, 0])
SERIES = tuple(
    samples.pack(name, "ns", values_ms * MS)
    for name, values_ms in (
        ("arrival", NUMBERS * 100),
        ("query_start", NUMBERS * 100 + WAITED_MS),
        ("latency", LATENCY_MS),
    )
)
STEADY = make_steady(rate_per_s=10.0, frames=10, dropped=2, late=2, missed_ratio=0.4)
CURVE = Sustained(interval_s=0.5, points=(CurvePoint(clock_hz=2e9), CurvePoint(clock_hz=1e9)))


def test_missed_frames_have_a_reason_each_and_stand_in_rows():
    """Two frames were dropped, one waited, and for one the model was too slow.

    The clock is that of the time.
    """
    missed = missed_frames(make_record(steady=STEADY, samples=SERIES, sustained=CURVE))
    assert (missed.frames, missed.dropped, missed.waited, missed.too_slow) == (10, 2, 1, 1)
    assert missed_frames(make_record(steady=STEADY, samples=())) is None
    assert missed.rows == (MissedRow(0.2, 2, 0, 2e9, None), MissedRow(0.6, 2, 2, 1e9, None))


def test_a_frame_for_which_edgemeter_woke_up_late_waited_for_no_other():
    """Frame 5 arrives 70 ms after the answer before it.

    Its call begins 40 ms later and takes 30 of 60 ms.
    """
    late_ms = np.where(NUMBERS == 5, 40, 0)
    changed = {"query_start": NUMBERS * 100 + WAITED_MS + late_ms, "latency": LATENCY_MS + late_ms}
    series = tuple(
        samples.pack(part.name, "ns", changed[part.name] * MS) if part.name in changed else part
        for part in SERIES
    )
    steady = make_steady(rate_per_s=10.0, frames=10, dropped=2, late=3, missed_ratio=0.5)
    missed = missed_frames(make_record(steady=steady, samples=series))
    assert (missed.dropped, missed.waited, missed.woke_late, missed.too_slow) == (2, 1, 1, 1)


def test_frames_that_still_waited_after_the_schedule_were_given_up():
    """Frames 8 and 9 of ten were never begun, and no newer one took their place.

    They came after the last answer.
    """
    series = tuple(samples.pack(part.name, "ns", samples.unpack(part)[:6]) for part in SERIES)
    steady = make_steady(rate_per_s=10.0, frames=10, dropped=4, late=2, missed_ratio=0.6)
    missed = missed_frames(make_record(steady=steady, samples=series))
    assert (missed.dropped, missed.given_up, missed.waited, missed.too_slow) == (0, 4, 1, 1)


def test_the_command_explains_a_steady_run(tmp_path, monkeypatch):
    """The explanation is in words and in JSON."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    fill(
        tmp_path / "ledger.sqlite",
        [make_run(id="e" * 32, steady=STEADY, samples=SERIES, sustained=CURVE)],
    )
    document = json.loads(edgemeter("runs", "show", "eeee", "--format", "json").stdout)[
        "missed_frames"
    ]
    assert (
        document["dropped"],
        document["waited"],
        document["too_slow"],
        len(document["rows"]),
    ) == (2, 1, 1, 2)
    assert edgemeter("runs", "show", "eeee").stdout.splitlines()[-1].split() == [
        "0.6",
        "s",
        "2",
        "2",
        "1000",
    ]
