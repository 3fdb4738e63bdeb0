"""Facts about adding up a profiler's events."""

import io

import msgspec
import numpy as np
import pytest
from rich.console import Console

from edgemeter.agent.profile.profiler import ProfileEvent, RecordedProfile
from edgemeter.agent.profile.report import profile_notes, self_times, show_profile, summarise


def op(name, start_us, duration_us, **fields):
    """Return an operator's event."""
    return ProfileEvent(name=name, type=name[:1], start_us=start_us, duration_us=duration_us, **fields)


def recorded(events, profiled_ms=(1.0, 1.0), plain_ms=(0.8, 0.8)):
    """Return what a process that profiled answers."""
    times = {name: [round(ms * 1e6) for ms in each] for name, each in (("plain_ns", plain_ms), ("profiled_ns", profiled_ms))}
    return RecordedProfile(
        model="m", runtime="onnx", package="p", version="1", backend="cpu", threads=1, data="noise", events=list(events), **times
    )


def test_an_operator_does_not_count_what_it_called():
    """A loop's time goes to what ran inside it, at any depth; neighbours and other threads keep theirs."""
    events = [
        op("loop", 0, 100),
        op("conv", 10, 50),
        op("kernel", 20, 30),
        op("add", 60, 20),
        op("after", 100, 10),
        op("elsewhere", 10, 50, thread=2),
    ]
    assert {event.name: us for event, us in self_times(events)} == {
        "loop": 30,
        "conv": 20,
        "kernel": 30,
        "add": 20,
        "after": 10,
        "elsewhere": 50,
    }


def test_the_order_of_events_does_not_matter():
    """Profilers report children before parents, or after."""
    events = [op("b", 10, 10), op("a", 0, 100), op("c", 30, 5)]
    assert sorted(us for _, us in self_times(events)) == sorted(us for _, us in self_times(events[::-1])) == [5, 10, 85]


def test_made_up_starts_nest_in_nothing():
    """A duration that was laid out by us inside another operator's time does not concern that row."""
    assert [us for _, us in self_times([op("a", 0, 100), op("b", 10, 50, laid_out=True)])] == [100, 50]


def inferences(count, length_us=1000):
    """Return the events of inferences, one after the other."""
    return [
        ProfileEvent(name="inference", type="inference", start_us=n * length_us, duration_us=length_us - 10, category="inference")
        for n in range(count)
    ]


def test_medians_shares_and_coverage():
    """By hand: conv1 takes 0.3, 0.5 and 0.4 ms, add 0.2, 0 and 0.2 in two calls each, of inferences of 1 ms: 50, 50 and 60% are covered."""
    adds = [op("add", start, 100) for start in (600, 700, 2600, 2700)]
    summary = summarise(
        recorded([*inferences(3), op("conv1", 0, 300), op("conv1", 1000, 500), op("conv1", 2000, 400), *adds], (1.0, 1.0, 1.0), (0.8,) * 3)
    )
    rows = [(row.name, row.calls, row.total_ms, row.p50_ms, row.mean_ms, row.share_ratio) for row in summary.operators]
    assert rows == [
        ("conv1", 3, pytest.approx(1.2), 0.4, pytest.approx(0.4), pytest.approx(1 / 3)),
        ("add", 4, pytest.approx(0.4), 0.2, pytest.approx(0.4 / 3), pytest.approx(1 / 6)),
    ]
    assert [(row.name, row.calls) for row in summary.types] == [("c", 3), ("a", 4)]
    assert summary.coverage_ratio == pytest.approx(0.5)
    assert summary.slowdown_ratio == pytest.approx(0.25)
    assert summary.queries == 3


def disturbed():
    """Return 11 inferences of a convolution of 900 us and a mean of 40 us, in one of which the mean was held up for 20 ms."""
    events, at_us = [], 0
    for n in range(11):
        mean_us = 20_000 if n == 4 else 40
        length_us = 960 + mean_us
        events.append(ProfileEvent(name="inference", type="inference", start_us=at_us, duration_us=length_us, category="inference"))
        events += [op("Conv", at_us + 10, 900), op("ReduceMean", at_us + 920, mean_us)]
        at_us += length_us + 50
    return recorded(events, [20.96 if n == 4 else 1.0 for n in range(11)], [0.99] * 11)


def test_one_disturbed_inference_does_not_rank():
    """By its sum the mean would take 67% of the time; in 10 of 11 inferences it takes 4%."""
    summary = summarise(disturbed())
    (conv, mean) = summary.operators
    assert (conv.name, conv.share_ratio) == ("Conv", pytest.approx(0.90))
    assert (mean.name, mean.p50_ms, mean.share_ratio) == ("ReduceMean", 0.04, pytest.approx(0.04))
    assert mean.mean_ms == pytest.approx(np.mean([0.04] * 10 + [20.0]))
    (note,) = [line for line in profile_notes(summary, summary.operators) if "ReduceMean" in line]
    assert "Conv" not in note
    assert "4.0% by its median, 67.3% by its mean" in note


def test_inferences_that_agree_have_no_note():
    """A median and a mean that are near each other."""
    quiet = recorded([*inferences(5), *(op("Conv", n * 1000, 800 + n) for n in range(5))], [1.0] * 5, [1.0] * 5)
    summary = summarise(quiet)
    assert len(profile_notes(summary, summary.types)) == 2


def printed(profile, **options):
    """Return what `show` prints."""
    console = Console(file=io.StringIO(), width=100)
    show_profile(profile, **({"by_type": False, "top": 15} | options), console=console)
    return console.file.getvalue()


def test_nobody_believes_a_profile_that_covers_half():
    """Coverage, the time in no operator and the profiler's own cost are printed."""
    text = printed(summarise(recorded([op("conv1", 0, 450), op("add", 0, 50, thread=1)])))
    assert "(in no operator)" in text
    assert "50.0%" in text
    assert "coverage: 50.0% of the inference time is spent in operators; the rest is overhead of the runtime" in text
    assert "(25% slower)" in text
    assert "`edgemeter run` measures latency" in text


def test_a_profiler_that_costs_nothing_is_not_believed():
    """Profiled faster than plain: noise, and reported as such."""
    summary = summarise(recorded([op("conv1", 0, 1900)], plain_ms=(1.2, 1.2)))
    assert "the overhead of the profiler is less than the noise" in profile_notes(summary, summary.operators)[1]
    assert "the rest is" not in profile_notes(summary, summary.operators)[0]


def test_what_is_not_shown_is_summed_up():
    """The rows below the top are one row."""
    summary = summarise(recorded([op(f"x{n}", n * 100, 90 - n) for n in range(20)]))
    text = printed(summary, top=5)
    assert "(15 more)" in text
    assert "x4" in text
    assert "x5" not in text


def test_a_profile_is_json():
    """Every field of it."""
    summary = summarise(recorded([op("conv1", 0, 300)]))
    assert msgspec.json.decode(msgspec.json.encode(summary), type=type(summary)) == summary
