"""The sides of `edgemeter compare` as one comparison: models are measured in turn, results are read."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, MeasurementError
from edgemeter.agent.base.figures import count, duration, short_id
from edgemeter.agent.base.progress import note, passing_note
from edgemeter.agent.base.suggestions import did_you_mean
from edgemeter.agent.cli.case_options import data_options
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case, Suite, expand
from edgemeter.collector.compare.between import ComparedSides, between, read_side, read_sides
from edgemeter.collector.compare.case_book import book_of
from edgemeter.collector.compare.comparison import Comparison, in_order
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.contents import LeftOut
from edgemeter.collector.runs.selection import parse_selection
from edgemeter.collector.runs.store import MemoryStore
from edgemeter.collector.show.words import listed

if TYPE_CHECKING:
    from edgemeter.agent.cli.run_session import SessionOutcome

# How similar a name must be to one of the catalogue to be a likely typo.
NEARLY = 0.8
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MOST_SIDES = 26  # Letters A to Z.


@dataclass(frozen=True, slots=True)
class MeasuredSides:
    """The comparison of measured models, their session, and notes for the user."""

    comparison: Comparison
    session: "SessionOutcome"
    notes: tuple[str, ...]


def is_model(text: str) -> bool:
    """Return whether `text` names something to measure: a model's file, a factory, a suite, or a catalogue name; not a file of results."""
    from edgemeter.agent.base import python_target
    from edgemeter.agent.base.model_names import model_names
    from edgemeter.agent.contract.model_formats import is_model_file

    path = Path(text)
    if target := python_target.parse(text):
        with suppress(ConfigError):
            return target.file is not None or target.source.is_file()
    if path.suffix.lower() == ".toml" or is_model_file(path):
        return True
    if path.suffix.lower() == ".json":
        return False
    if path.exists() or not NAME.fullmatch(text):
        return False
    # A nearly correct name gets the message about models.
    return did_you_mean(text, model_names(), alike=NEARLY) is not None


def compare_results(
    sides: Sequence[str],
    matters_ratio: float,
    days: DaysCounted,
    *,
    may_lack_baseline: bool = False,
) -> ComparedSides:
    """Return the comparison of results: of two sides case by case, of more sides in order, if each has one case.

    If the first of two has no run, as in a project's first comment, it is empty if it
    `may_lack_baseline`.

    Raises:
        ConfigError: a side cannot be read or has no run; a run is on two sides; or one of more than
            two sides has several cases.
    """
    if may_lack_baseline and len(sides) == 2:
        parse_selection(sides[0])
        try:
            read_side(sides[0])
        except ConfigError as error:
            return ComparedSides(Comparison(sides[0], (), (LeftOut(None, str(error)),)))
    if len(sides) == 2:
        contents = read_sides(*sides)
        return between((sides[0], contents[0]), (sides[1], contents[1]), matters_ratio, days)
    cases, left_out = zip(*(_stored_case(side, days) for side in sides), strict=True)
    runs = grouped(
        (run, side) for side, case in zip(sides, cases, strict=True) for run in case.run_ids
    )
    if both := next((places for places in runs.values() if len(places) > 1), None):
        raise ConfigError(
            f"{both[0]!r} and {both[1]!r} have the same run: give each side its own runs"
        )
    return ComparedSides(
        in_order(cases, matters_ratio, [entry for entries in left_out for entry in entries])
    )


def _stored_case(side: str, days: DaysCounted = "all") -> tuple[CaseSummary, list[LeftOut]]:
    book = book_of(MemoryStore(read_side(side).runs))
    cases, left_out = book.summaries(days), book.left_out()
    if len(cases) != 1:
        reason = (
            f"it has {len(cases)} cases: select one, as in {side + '?model=NAME'!r}"
            if cases
            else left_out[0].reason
        )
        raise ConfigError(
            f"{side!r} cannot be compared with models, or as one of more than two sides: {reason}"
        )
    return cases[0], left_out


def measure_sides(
    sides: Sequence[str],
    options: Mapping[str, Any],
    matters_ratio: float,
    report: Callable[[str], None] = note,
) -> MeasuredSides:
    """Measure the models among the sides in turn, here or on the boards of the option `on`, and return the comparison in order.

    The other sides are runs of one case; its settings apply to the models unless an option is
    given. Notes before the first run are passed to `report`.

    Raises:
        EdgemeterError: a side or an option is wrong, or no two sides can be compared.
        KeyboardInterrupt: it was pressed before two sides could be compared.
    """
    if options.get("on"):
        return _measured_elsewhere(sides, options, matters_ratio)
    stored = {side: _stored_case(side) for side in sides if not is_model(side)}
    stored_cases = {side: case for side, (case, _) in stored.items()}
    cases = [
        stored_cases[side] if side in stored else _case_of(side, options, stored_cases)
        for side in sides
    ]
    left_out = [entry for _, entries in stored.values() for entry in entries]
    return measure_cases(cases, options, matters_ratio, report, left_out)


def measure_cases(
    sides: Sequence[Case | CaseSummary],
    options: Mapping[str, Any],
    matters_ratio: float,
    report: Callable[[str], None] = note,
    left_out: Sequence[LeftOut] = (),
) -> MeasuredSides:
    """Measure the cases among the sides in turn while no other run does on this device; see `measure_sides`."""
    if not 2 <= len(sides) <= MOST_SIDES:
        raise ConfigError(
            f"give two sides or more (at most {MOST_SIDES}), not {len(sides)}: "
            "edgemeter compare A B"
        )
    if not any(isinstance(side, Case) for side in sides):
        raise ConfigError(
            "none of the sides is a model: `edgemeter compare` compares runs that are there already"
        )
    with passing_note("checking models and data ..."):
        from edgemeter.agent.cli import run_session
        from edgemeter.agent.session import checks
        from edgemeter.agent.session.run_plan import RunPlan

        suite = Suite("compare", tuple(side for side in sides if isinstance(side, Case)))
        refused = checks.check(suite, opens=True)
    if len(sides) - len(refused) < 2:
        raise checks.by_reason(suite, refused)[0]
    plan = RunPlan(
        [case for number, case in enumerate(suite.cases) if number not in refused], matters_ratio
    )
    settings = {
        "device": None,
        "fleet": None,
        "broker": None,
        "if_no_broker": "keep",
        "delivery_timeout": 60.0,
        **options,
    }
    outcome = run_session.run_session(
        replace(suite, cases=tuple(of_case.case for of_case in plan.cases)), settings, report, plan
    )
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
            book = book_of(
                MemoryStore(run for run in measured[id(side)] if isinstance(run, RunRecord))
            )
            of_side = book.summaries("all") if book.cases else []
            left_out += book.left_out()
            # A case that changed meanwhile, for example to another power mode, is compared as it
            # was first.
            compared += of_side[:1]
            if not of_side:
                errors = [
                    str(error) for error in measured[id(side)] if isinstance(error, EdgemeterError)
                ]
                left_out.append(
                    LeftOut(
                        None,
                        f"{side.label}: "
                        f"{'; '.join(dict.fromkeys(errors)) or 'it has no usable run'}",
                    )
                )
    if len(compared) < 2:
        raise _nothing_compared(outcome, left_out)
    comparison = in_order(compared, matters_ratio, left_out)
    return MeasuredSides(comparison, outcome, _notes(outcome, comparison, options))


def _case_of(side: str, options: Mapping[str, Any], stored: Mapping[str, CaseSummary]) -> Case:
    """Return the case of a model; settings without an option are those of the runs that it is compared with."""
    from edgemeter.agent.cli import run_session

    path = Path(side)
    if stored and not run_session.is_suite_file(path):
        run = next(iter(stored.values())).newest
        threads = None if run.runtime.threads_reason else run.runtime.threads
        load = {"scenario": "offline", "batch": run.batch} if run.scenario == "offline" else {}
        settings = {"threads": threads, "mode": run.mode, **load}
        options = {
            **options,
            **{key: value for key, value in settings.items() if options.get(key) is None},
        }
    case = run_session.single_case(path, options)
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


def _nothing_compared(outcome: "SessionOutcome", left_out: Sequence[LeftOut]) -> BaseException:
    if outcome.interruption is not None:
        return outcome.interruption
    reasons = dict.fromkeys(entry.reason for entry in left_out)
    return MeasurementError(f"no two sides can be compared: {'; '.join(reasons)}")


def _notes(
    outcome: "SessionOutcome", comparison: Comparison, options: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the number of runs, and the command that compares their cases again."""
    seconds = "" if outcome.seconds is None else f", {duration(outcome.seconds)}"
    runs_text = f"{count(len(outcome.records), 'run')}{seconds}."
    if outcome.saved is None:
        return (runs_text,)
    oldest = [row.case.runs.part(slice(1)).each()[0] for row in comparison.rows]
    # If a model is compared with itself, the runs of both sides are one case.
    ids = [
        short_id(runs[0].id)
        for runs in grouped(
            ((run.subject.key, run.session_started_at_ns), run) for run in oldest
        ).values()
    ]
    sides_text = " ".join(ids) if len(ids) > 1 else f"{ids[0]} OTHER{data_options(options)}"
    return runs_text, f"saved as {listed(ids, MOST_SIDES)}: edgemeter compare {sides_text}"


def _measured_elsewhere(
    sides: Sequence[str], options: Mapping[str, Any], matters_ratio: float
) -> MeasuredSides:
    """Return the comparison of the models on each device that measured them in rounds."""
    from edgemeter.agent.cli import elsewhere

    if results := [side for side in sides if not is_model(side)]:
        raise click.UsageError(
            f"--on measures models, and {results[0]!r} is not a model: leave it out"
        )
    written = elsewhere.in_one_suite([*map(Path, sides)], options, matters_ratio)
    cases = expand(written, Path.cwd()).cases
    if not 2 <= len(sides) == len(cases) <= MOST_SIDES:
        raise ConfigError(
            "--on compares two models or more, none of them twice: edgemeter compare A B --on "
            "ssh://USER@HOST"
        )
    outcome = elsewhere.measure(written, Path.cwd(), options, note)
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
        of_device = in_order(measured, matters_ratio)
        rows += [
            replace(row, name=f"{row.name} on {device}" if len(by_device) > 1 else row.name)
            for row in of_device.rows
        ]
    if not rows:
        raise _nothing_compared(outcome, left_out)
    comparison = Comparison("A", tuple(rows), tuple(left_out))
    return MeasuredSides(comparison, outcome, _notes(outcome, comparison, options))
