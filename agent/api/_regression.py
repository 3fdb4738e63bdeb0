"""The runs of a test: measured, compared with a baseline as `edgemeter compare BASELINE NEW --fail-on` does, and kept."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

import msgspec

from edgemeter._measuring import function_runs, keeping
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import count
from edgemeter.agent.contract.case_identity import key_of, like_with_like
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.engine.call_trial import FunctionCall
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.collector.review import gate
from edgemeter.collector.review.review import review
from edgemeter.collector.runs.selection import parse_selection, selections_of
from edgemeter.collector.runs.store import StoreContents, oldest_first

# The suite of runs that later ones are compared with, and that of runs beyond a limit, which are no baseline.
PASSED, FAILED = "pytest", "pytest, beyond a limit"
MOST_LETTERS = 128
parsed_limits = gate.parse


@dataclass(frozen=True, slots=True)
class MeasuredTest:
    """The runs of a test, what became of them in one line, and why the test fails; empty where it does not."""

    runs: list[RunRecord]
    line: str
    failure: str = ""


def measure_test(
    call: FunctionCall, runs: int, settings: dict[str, Any], limits: str | None, baseline: str | None, report: Callable[[str], None]
) -> MeasuredTest:
    """Measure a function `runs` times, compare it with its baseline where there are limits, and keep the runs.

    `baseline` names the runs of the baseline; None: the last ones of this case in this device's ledger that kept the limits.

    Raises:
        EdgemeterError: the function cannot be measured, or the baseline cannot be read.
    """
    if runs < 1:
        raise ConfigError(f"runs = {runs}: give 1 or more")
    power, save = settings.pop("power", None), settings.pop("save", True)
    settings = {"mode": "rapid", **settings, "name": case_name(settings["name"])}
    records = function_runs(call, settings, power, runs, report)
    medians = [record.latency.p50_ms for record in records if record.latency.p50_ms is not None]
    line = (
        f"{settings['name']}: {f'{median(medians):.4g} ms' if medians else 'no median'} ({count(len(records), 'run')}, {_worst(records)})"
    )
    failure = ""
    if limits:
        words, is_open = _compared(records, limits, baseline)
        line = f"{line}; {words}"
        failure = "" if is_open else line
    with keeping(save=save) as keep:
        kept_runs = [keep(msgspec.structs.replace(record, suite=FAILED if failure else PASSED)) for record in records]
    return MeasuredTest(kept_runs, line, failure)


def case_name(text: str) -> str:
    """Return a test's node id as the name of a case, in which neither slashes nor brackets can be; the end of a long one.

    Parameters that look alike then, and names that were cut, are told apart by a hash.
    """
    name = re.sub(r"[^A-Za-z0-9 ._:@-]+", "-", text).strip("-. :@_")
    parameters = text.partition("[")[2]
    if len(name) > MOST_LETTERS or not name.endswith(parameters.removesuffix("]")) or parameters.startswith(tuple("-. :@_")):
        name = f"{name} {hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return name[-MOST_LETTERS:].lstrip("-. :@_")


def _worst(records: Sequence[RunRecord]) -> str:
    return next((state for state in ("invalid", "suspect") if any(record.verdict.state == state for record in records)), "valid")


def _compared(records: Sequence[RunRecord], limits: str, baseline: str | None) -> tuple[str, bool]:
    """Return the result of each limit in words, and whether all were kept."""
    before = _named(baseline, records[0]) if baseline else _last_passed(records[0])
    if not before:
        return "no baseline yet", True
    reviewed = review(("the baseline", StoreContents(before)), ("this test", StoreContents(records)))
    findings = gate.judge(reviewed, gate.parse(limits))
    # A limit that no run can be judged by closes a gate; here that is no reason to fail a test that is not beyond it.
    of_case = [finding for finding in findings if finding.case is not None]
    words = "; ".join(map(_words, of_case or findings))
    return words, not any(finding.is_closing for finding in of_case)


def _words(finding: gate.GateFinding) -> str:
    judged = finding.words.replace(gate.IN_DOUBT, "the test fails, because the median is beyond the limit, chance or not")
    return f"{finding.limit.text}: {judged}" if judged.startswith("not ") else f"{finding.limit.text} {finding.outcome}: {judged}"


def _named(baseline: str, record: RunRecord) -> list[RunRecord]:
    """Return the runs of this case in a named baseline; raises ConfigError if it cannot be read, or holds none at all."""
    runs = oldest_first(parse_selection(baseline).runs())
    if not runs:
        raise ConfigError(f"the baseline {baseline!r} has no run: name another, or leave --edgemeter-baseline out")
    return [run for run in runs if _is_same_case(run, record)]


def _last_passed(record: RunRecord) -> list[RunRecord]:
    if not default_path().exists():
        return []
    runs = [run for run in selections_of("", {"suite": PASSED, "model": record.model.name}).runs() if _is_same_case(run, record)]
    # Those of one test are kept together, and have one session.
    sessions = [list(of_session) for _, of_session in groupby(oldest_first(runs), lambda run: run.session)]
    return sessions[-1] if sessions else []


def _is_same_case(run: RunRecord, record: RunRecord) -> bool:
    return run.device == record.device and like_with_like(key_of(run)) == like_with_like(key_of(record))
