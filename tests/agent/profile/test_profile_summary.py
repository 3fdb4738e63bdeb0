"""Facts about adding up a profiler's events."""

import io

import pytest

from edgemeter.agent.base.console import Console
from edgemeter.agent.profile.profiler import ProfileEvent, inference
from edgemeter.agent.profile.report import Profile, ranked, show_profile


def op(name, start_us, duration_us, thread=0):
    """Return an operator's event; its type is its name's first letter."""
    return ProfileEvent(
        name=name, type=name[:1], start_us=start_us, duration_us=duration_us, thread=thread
    )


def test_an_operator_does_not_count_what_it_called():
    """A loop's time goes to what ran inside it, at any depth and in any order.

    Neighbours, other threads and estimated starts keep their times.
    """
    events = [
        op("loop", 0, 100), op("conv", 10, 50), op("kernel", 20, 30), op("add", 60, 20),
        op("after", 100, 10), op("elsewhere", 10, 40, 2),
        op("made up", 10, 60, None),
    ]  # fmt: skip
    for order in (events, events[::-1]):
        operators, covered_ms = ranked(order, 1.0, by_type=False)
        own_us = {operator.name: pytest.approx(operator.p50_ms * 1000) for operator in operators}
        assert own_us == {
            "loop": 30,
            "conv": 20,
            "kernel": 30,
            "add": 20,
            "after": 10,
            "elsewhere": 40,
            "made up": 60,
        }
        assert covered_ms == pytest.approx(0.21)


def test_medians_shares_and_coverage():
    """The figures equal those computed by hand.

    conv1 takes 0.3, 0.5 and 0.4 ms, add 0.2, 0 and 0.2 ms in two calls each, of inferences of 1 ms:
    50, 50 and 60% are covered.
    """
    adds = [op("add", start, 100) for start in (600, 700, 2600, 2700)]
    inferences = [inference(1000 * number, 990) for number in range(3)]
    events = [
        *inferences,
        op("conv1", 0, 300),
        op("conv1", 1000, 500),
        op("conv1", 2000, 400),
        *adds,
    ]
    operators, covered_ms = ranked(events, 1.0, by_type=False)
    assert [(row.name, row.calls, row.p50_ms, row.share_ratio) for row in operators] == [
        ("conv1", 3, pytest.approx(0.4), pytest.approx(1 / 3)),
        ("add", 4, pytest.approx(0.2), pytest.approx(1 / 6)),
    ]
    assert covered_ms == pytest.approx(0.5)
    assert [(row.name, row.calls) for row in ranked(events, 1.0, by_type=True)[0]] == [
        ("c", 3),
        ("a", 4),
    ]


def test_one_disturbed_inference_does_not_rank():
    """A sum would give the Mean operator 67% of the time; in 10 of 11 inferences it takes 4%."""
    events, at_us = [], 0
    for number in range(11):
        mean_us = 20_000 if number == 4 else 40
        events += [
            inference(at_us, 960 + mean_us),
            op("Conv", at_us + 10, 900),
            op("Mean", at_us + 920, mean_us),
        ]
        at_us += 1010 + mean_us
    operators, _ = ranked(events, 1.0, by_type=False)
    assert [(row.name, row.share_ratio) for row in operators] == [
        ("Conv", pytest.approx(0.90)),
        ("Mean", pytest.approx(0.04)),
    ]


def test_what_is_not_in_the_table_is_summed_up_below_it():
    """The remaining rows, the time in no operator and the profiler's cost are stated."""
    operators, covered_ms = ranked(
        [op(f"x{number}", number * 100, 90 - number) for number in range(20)], 3.2, by_type=False
    )
    profile = Profile(
        model="m", package="p", version="1", backend="cpu", threads=1, data="noise", queries=1,
        plain_p50_ms=2.0, profiled_p50_ms=3.2,
        slowdown_ratio=0.6, coverage_ratio=covered_ms / 3.2, operators=operators,
    )  # fmt: skip
    console = Console(file=io.StringIO(), width=100)
    show_profile(profile, 5, console)
    text = console.file.getvalue()
    assert "(15 more)" in text
    assert "x4" in text
    assert "x5" not in text
    assert "coverage: 50.3% of the inference time" in text
    assert "took 3.2 ms, without 2 ms; `edgemeter run` measures latency" in text
