"""Facts about `edgemeter.agent.verdict.steady_rules`."""

import msgspec
import numpy as np

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.energy.window import Window
from edgemeter.agent.verdict.judge import judge
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_steady

MS = 1_000_000
RATE = 15.0


def frames_run(delays_ms=None, *, is_sustained=True, frames=900, **figures):
    """Return a run of frames of 40 ms by 60, whose calls begin so late after the arrival."""
    arrivals_ns = np.rint(np.arange(frames) * 1e9 / RATE).astype(np.int64)
    delays_ns = np.zeros(frames, np.int64) if delays_ms is None else (np.asarray(delays_ms) * MS).astype(np.int64)
    series = {"arrival": arrivals_ns, "query_start": arrivals_ns + delays_ns, "latency": delays_ns + 40 * MS}
    load = Load(
        samples_per_query=1, samples=frames, target_per_s=RATE, achieved_per_s=9.5, utilisation_ratio=0.6, is_sustained=is_sustained
    )
    return measured(
        samples=tuple(samples.pack(name, "ns", values) for name, values in series.items()),
        timed=Window(0, round(frames / RATE * 1e9)),
        load=load,
        steady=make_steady(**({"frames": frames, "late": 0, "missed_ratio": 0.0} | figures)),
    )


def texts(run, *conditions):
    """Return reasons and notes by the name of the rule."""
    judged = judge(run, conditions)
    return {text.partition(": ")[0]: text for text in (*judged.reasons, *judged.notes)}


def test_frames_that_were_all_answered_in_time_violate_no_rule():
    """Nor does another load."""
    assert not {"rate-not-held", "frames-missed", "schedule-not-kept", "throttled-at-rate"} & texts(frames_run()).keys()
    assert judge(measured(), ()).state == "valid"


def test_a_rate_that_is_not_held_is_suspect_and_no_reason_to_leave_it_out():
    """One line states what arrived and what was answered; the rule for queues without end is not for it."""
    judged = judge(frames_run(is_sustained=False, dropped=400, late=500, missed_ratio=1.0, first_missed_s=0.0), ())
    assert judged.state == "suspect"
    (reason,) = judged.reasons
    assert reason == "rate-not-held: 15 frames/s arrived, 9.5/s were answered; 400 of 900 were dropped, 500 late: lower the rate"


def test_single_missed_frames_are_a_note():
    """They are what was asked for: how many, of which kind, in what rows, from when on."""
    run = frames_run(dropped=2, late=3, missed_ratio=5 / 900, longest_row=4, first_missed_s=12.5)
    assert judge(run, ()).state == "valid"
    assert texts(run)["frames-missed"] == (
        "frames-missed: 5 of 900 frames were missed by 60 ms (2 dropped, 3 late), 4 in a row at most, the first after 12.5 s"
    )


def test_wake_ups_that_make_frames_late_are_suspect():
    """Two frames at which the model was free were begun 30 ms late and took 70 of 60 ms: not the model's doing."""
    delays_ms = np.zeros(900)
    delays_ms[[100, 500]] = 30
    run = frames_run(delays_ms, late=2, missed_ratio=2 / 900, first_missed_s=6.7)
    assert "woke up to 30 ms late for frames, 0.2% of the latency, and made 2 of 2 missed ones late" in texts(run)["schedule-not-kept"]
    # Of fifty that the model missed, two are no reason for doubt.
    assert "schedule-not-kept" not in texts(frames_run(delays_ms, late=50, first_missed_s=6.7))


def test_wake_ups_that_lengthen_every_latency_are_suspect():
    """2 ms of 42 are more than 3%; 1 ms is not, and what a frame waited for the model is not counted."""
    assert "2 ms late for frames, 4.8% of the latency" in texts(frames_run(np.full(900, 2.0)))["schedule-not-kept"]
    assert "schedule-not-kept" not in texts(frames_run(np.full(900, 1.0)))
    waited_ms = np.zeros(900)
    waited_ms[1::2] = 20
    run = frames_run(waited_ms)
    # Frames before them took until just then.
    latency_ns = np.where(waited_ms > 0, 60 * MS, 86 * MS)
    series = tuple(samples.pack("latency", "ns", latency_ns) if each.name == "latency" else each for each in run.samples)
    assert "schedule-not-kept" not in texts(msgspec.structs.replace(run, samples=series))


def test_a_frame_that_waited_for_a_failed_one_was_not_late_by_a_wake_up():
    """The request of frame 100 failed after 100 ms: 101 was begun 33 ms after its arrival, though the answer before it was long there."""
    delays_ms = np.zeros(900)
    delays_ms[101] = 33
    run = frames_run(delays_ms, dropped=1, late=1, missed_ratio=2 / 900, first_missed_s=6.7)
    answered = tuple(samples.pack(each.name, "ns", np.delete(samples.unpack(each), 100)) for each in run.samples)
    assert "schedule-not-kept" in texts(run)
    assert "schedule-not-kept" not in texts(msgspec.structs.replace(run, samples=answered))


def test_throttling_is_suspect_in_a_minute_of_frames_and_invalid_in_less():
    """What a board misses once it throttles is the answer of a long run."""
    hot = Condition(when="during", throttled_now=True)
    long_run, short_run = frames_run(), frames_run(frames=300)
    assert judge(long_run, (hot,)).state == "suspect"
    assert "the board throttled (during the run)" in texts(long_run, hot)["throttled-at-rate"]
    assert judge(short_run, (hot,)).state == "invalid"
    assert "throttled" in texts(short_run, hot)
