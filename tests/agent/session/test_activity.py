"""Facts about what is reported of a session while it is measured: which run begins, and nothing more."""

from pathlib import Path

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract.messages import Measuring
from edgemeter.agent.contract.suite import Settings, SuiteFile, expand
from edgemeter.agent.engine import job
from edgemeter.agent.session.session import ActivityReport, RunBegins, RunEnds
from tests.fixtures.record_factory import make_record

PHASES = ("cool-down", "load", "prepare", "warm-up", "idle before", "timed", "idle after", "accuracy")


def events(case, outcomes):
    """Yield the events of a session of one case whose runs end with these outcomes."""
    for place, outcome in enumerate(outcomes, 1):
        yield RunBegins(case, place - 1, place, len(outcomes))
        yield from (job.Phase(name=name) for name in PHASES)
        yield job.RunProgress(done=1, total=2)
        yield RunEnds(outcome)


def test_only_the_beginning_of_a_run_is_reported():
    """Nothing while it is warmed up, timed, idles or is scored; which run of how many, and how many failed before."""
    (case,) = expand(SuiteFile(name="s", case=[Settings(model=["/m/tiny.tflite"], runtime=["litert"])]), Path("/m")).cases
    sent, seen = [], []
    report = ActivityReport("nightly", sent.append, "job-1")
    for event in events(case, [make_record(), MeasurementError("no"), make_record()]):
        before = len(sent)
        report(event)
        seen.append((type(event), len(sent) - before))
    assert {kind for kind, count in seen if count} == {RunBegins}
    assert sent == [
        Measuring(suite="nightly", case=case.label, run=place, runs=3, failed=failed, job="job-1")
        for place, failed in ((1, 0), (2, 0), (3, 1))
    ]


def test_names_of_any_length_make_a_message_that_is_accepted():
    """A suite and a file may be called anything."""
    settings = Settings(model=["/m/tiny.tflite"], runtime=["litert"], name="m" * 5000)
    (case,) = expand(SuiteFile(name="s", case=[settings]), Path("/m")).cases
    sent = []
    ActivityReport("s" * 5000, sent.append)(RunBegins(case, 0, 1, 1))
    assert (len(sent[0].suite), len(sent[0].case)) == (300, 300)
