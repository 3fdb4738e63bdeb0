"""Test that a suite is measured at the start of every period."""

from contextlib import nullcontext

from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.measuring import watch
from edgemeter.agent.measuring.measure_suite import SessionOutcome, ignore
from edgemeter.agent.measuring.settings import SessionSettings
from tests.fixtures.replay_case import replay_case


def test_a_suite_is_measured_every_so_often_and_a_failure_is_no_end(tmp_path, monkeypatch):
    """A period whose start was missed is left out and reported.

    The suite is measured, fails, and is measured again.
    """
    replay_case(tmp_path, "a", 1.0)
    suite = tmp_path / "suite.toml"
    suite.write_text('name = "s"\n[[case]]\nmodel = "a.replay.json"\nmode = "rapid"\n')
    now, ran, reports = [0.0], [], []

    def measure(cases, settings, *_):
        ran.append((now[0], len(cases.cases), settings.if_no_broker))
        # The second takes longer than a period.
        now[0] += 70 if len(ran) == 2 else 10
        if len(ran) == 2:
            message = "the board is too hot"
            raise TransientError(message)
        return SessionOutcome([], [])

    def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr(watch, "measure_suite", measure)
    watched = watch.watch_suite(
        suite,
        60.0,
        SessionSettings(),
        3,
        reports.append,
        lambda: nullcontext(ignore),
        clock=lambda: now[0],
        sleep=sleep,
    )
    came = list(watched)
    assert len(came) == 2
    assert ran == [(0.0, 1, "keep"), (60.0, 1, "keep"), (180.0, 1, "keep")]
    assert len(reports) == 2
    assert "too hot" in reports[0]
    assert "skipped 1 " in reports[1]
