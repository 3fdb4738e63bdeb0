"""The sides of `edgemeter compare` as one comparison.

Models are measured in turn, results are read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, MeasurementError
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case, Suite, expand
from edgemeter.agent.measuring import elsewhere
from edgemeter.agent.measuring.measure_suite import SessionOutcome, ignore, measure_suite
from edgemeter.agent.measuring.settings import SessionSettings
from edgemeter.agent.measuring.suites import is_model, is_suite_file, single_case
from edgemeter.agent.session import checks
from edgemeter.agent.session.run_plan import RunPlan
from edgemeter.agent.session.session import OnEvent
from edgemeter.collector.compare.between import stored_case
from edgemeter.collector.compare.case_book import book_of
from edgemeter.collector.compare.comparison import Comparison, in_order
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.contents import LeftOut
from edgemeter.collector.runs.store import MemoryStore

MOST_SIDES = 26  # Letters A to Z.


@dataclass(frozen=True, slots=True)
class MeasuredSides:
    """The comparison of measured models, and their session."""

    comparison: Comparison
    session: SessionOutcome


def measure_sides(
    sides: Sequence[str],
    settings: Settings,
    session: SessionSettings,
    matters_ratio: float,
    on_event: OnEvent = ignore,
    report: Callable[[str], None] = ignore,
) -> MeasuredSides:
    """Measure the models among the sides in turn, and return the comparison in order.

    They run here or on the boards of the session. The other sides are runs of one case; its
    settings apply to the models where `settings` has none. `on_event` receives the events of runs
    here, `report` notes before the first run.

    Raises:
        EdgemeterError: a side or a setting is wrong, or no two sides can be compared.
        KeyboardInterrupt: it was pressed before two sides could be compared.
    """
    if session.on:
        return _measured_elsewhere(sides, settings, session, matters_ratio, report)
    stored = {side: stored_case(side) for side in sides if not is_model(side)}
    stored_cases = {side: case for side, (case, _) in stored.items()}
    cases = [
        stored_cases[side] if side in stored else _case_of(side, settings, stored_cases)
        for side in sides
    ]
    left_out = [entry for _, entries in stored.values() for entry in entries]
    return measure_cases(cases, session, matters_ratio, on_event, report, left_out)


def measure_cases(
    sides: Sequence[Case | CaseSummary],
    session: SessionSettings,
    matters_ratio: float,
    on_event: OnEvent = ignore,
    report: Callable[[str], None] = ignore,
    left_out: Sequence[LeftOut] = (),
) -> MeasuredSides:
    """Measure the cases among the sides in turn while no other run does on this device.

    See `measure_sides`.
    """
    if not 2 <= len(sides) <= MOST_SIDES:
        raise ConfigError(
            f"give two sides or more (at most {MOST_SIDES}), not {len(sides)}: "
            "edgemeter compare A B"
        )
    suite = Suite("compare", tuple(side for side in sides if isinstance(side, Case)))
    if not suite.cases:
        raise ConfigError(
            "none of the sides is a model: `edgemeter compare` compares runs that are there already"
        )
    refused = checks.check(suite, opens=True)
    if len(sides) - len(refused) < 2:
        raise checks.by_reason(suite, refused)[0]
    plan = RunPlan(
        [case for number, case in enumerate(suite.cases) if number not in refused], matters_ratio
    )
    suite_here = replace(suite, cases=tuple(of_case.case for of_case in plan.cases))
    # A missing broker does not end a comparison.
    session = msgspec.structs.replace(session, if_no_broker="keep")
    outcome = measure_suite(suite_here, session, on_event, report, plan)
    measured = {id(of_case.case): of_case.outcomes for of_case in plan.cases}
    compared: list[CaseSummary] = []
    left_out = [
        *left_out,
        *(LeftOut(None, str(error)) for error in checks.by_reason(suite, refused)),
    ]
    for side in sides:
        if isinstance(side, CaseSummary):
            compared.append(side)
        elif id(side) in measured:
            of_side, reasons = _measured_case(side, measured[id(side)])
            compared += of_side
            left_out += reasons
    if len(compared) < 2:
        raise _nothing_compared(outcome, left_out)
    return MeasuredSides(in_order(compared, matters_ratio, left_out), outcome)


def _measured_case(
    case: Case, outcomes: Sequence[RunRecord | EdgemeterError]
) -> tuple[list[CaseSummary], list[LeftOut]]:
    """Return the summary of a measured case, none without a usable run, and what is left out."""
    book = book_of(MemoryStore(run for run in outcomes if isinstance(run, RunRecord)))
    summaries = book.summaries("all") if book.cases else []
    left_out = book.left_out()
    if not summaries:
        errors = dict.fromkeys(str(run) for run in outcomes if isinstance(run, EdgemeterError))
        reason = "; ".join(errors) or "it has no usable run"
        left_out = [*left_out, LeftOut(None, f"{case.label}: {reason}")]
    # A case that changed meanwhile, for example to another power mode, is compared as it was first.
    return summaries[:1], left_out


def _case_of(side: str, settings: Settings, stored: Mapping[str, CaseSummary]) -> Case:
    """Return the case of a model; unset settings are those of the runs that it is compared with."""
    path = Path(side)
    if stored and not is_suite_file(path):
        run = next(iter(stored.values())).newest
        threads = None if run.runtime.threads_reason else run.runtime.threads
        load = {"scenario": "offline", "batch": run.batch} if run.scenario == "offline" else {}
        of_run = {"threads": threads, "mode": run.mode, **load}
        settings = msgspec.structs.replace(
            settings,
            **{key: value for key, value in of_run.items() if getattr(settings, key) is None},
        )
    case = single_case(path, settings)
    for other, of_case in stored.items():
        run = of_case.newest
        if run.dataset.images and not (case.data or case.questions):
            scored = " --annotations FILE" if run.accuracy else ""
            missing = "--questions FILE" if run.generation else f"--data PATH{scored}"
            raise ConfigError(
                f"{other!r} was measured on {run.dataset.name!r}, and its record does not "
                f"contain the path: add {missing}"
            )
    return case


def _nothing_compared(outcome: SessionOutcome, left_out: Sequence[LeftOut]) -> BaseException:
    if outcome.interruption is not None:
        return outcome.interruption
    reasons = dict.fromkeys(entry.reason for entry in left_out)
    return MeasurementError(f"no two sides can be compared: {'; '.join(reasons)}")


def _measured_elsewhere(
    sides: Sequence[str],
    settings: Settings,
    session: SessionSettings,
    matters_ratio: float,
    report: Callable[[str], None],
) -> MeasuredSides:
    """Return the comparison of the models on each device that measured them in rounds."""
    written = elsewhere.in_one_suite([*map(Path, sides)], settings, matters_ratio)
    cases = expand(written, Path.cwd()).cases
    if not 2 <= len(sides) == len(cases) <= MOST_SIDES:
        raise ConfigError(
            "--on compares two models or more, none of them twice: edgemeter compare A B --on "
            "ssh://USER@HOST"
        )
    outcome = elsewhere.measure_on_boards(written, Path.cwd(), session, report)
    files = [Path(case.model).name for case in cases]
    rows, left_out = [], []
    by_device = grouped((run.device, run) for run in outcome.records)
    for device, runs in by_device.items():
        book = book_of(MemoryStore(runs))
        measured = book.summaries("all")
        measured.sort(
            key=lambda case: (
                files.index(case.subject.model.file)
                if case.subject.model.file in files
                else len(files)
            )
        )
        left_out += book.left_out()
        if len(measured) < 2:
            left_out.append(
                LeftOut(None, f"{device}: fewer than two of the models have a usable run there")
            )
            continue
        rows += [
            replace(row, name=f"{row.name} on {device}" if len(by_device) > 1 else row.name)
            for row in in_order(measured, matters_ratio).rows
        ]
    if not rows:
        raise _nothing_compared(outcome, left_out)
    return MeasuredSides(Comparison("A", tuple(rows), tuple(left_out)), outcome)
