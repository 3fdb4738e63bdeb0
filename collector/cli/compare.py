"""The command `edgemeter compare`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click
import msgspec
from click.core import ParameterSource

from edgemeter.agent.base.cli.command_group import LongCommand
from edgemeter.agent.base.cli.notes import note, passing_note
from edgemeter.agent.base.cli.options import (
    format_option,
    matters_option,
    names_and_config,
    quiet_option,
    save_option,
)
from edgemeter.agent.base.cli.tables import Format
from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.cli.case_options import (
    CASE_OPTIONS,
    SHORT_MODES,
    case_options,
    case_settings,
)
from edgemeter.agent.cli.session_options import on_options, power_option, session_settings
from edgemeter.collector.cli.stores import FigureParam, all_days_option, opened_book, store_option
from edgemeter.collector.runs.figure_names import EXAMPLE, JUDGED

if TYPE_CHECKING:
    from edgemeter.agent.contract.case_settings import Settings
    from edgemeter.agent.contract.suite import Case
    from edgemeter.agent.measuring.settings import SessionSettings
    from edgemeter.collector.compare.choice import Choice
    from edgemeter.collector.compare.comparison import Comparison
    from edgemeter.collector.compare.measured_sides import MeasuredSides
    from edgemeter.collector.compare.summary import CaseSummary, DaysCounted

# Options of one model, not of all compared models.
OPTIONS = tuple(key for key in CASE_OPTIONS if key not in {"name", "sha256", "predictions"})
# Options for models that are measured now; they do not apply to stored runs.
MEASURING = (*OPTIONS, "power", "on", "device", "fleet")
# The options that `edgemeter compare --help` shows; `--help-all` shows all.
COMMON = {
    "data", "annotations", "runtime", "backend", "threads", "subset", "mode", "repeats",
    "precision_ratio", "time_s", "power", "on", "reference", "required", "cheapest", "fail_on",
    "inconclusive", "matters_ratio", "stores", "quiet", "form",
}  # fmt: skip


@click.command(cls=LongCommand, common=COMMON, short_help="Compare models, runs or devices.")
@click.argument("sides", nargs=-1, metavar="[A B...]")
@case_options(*OPTIONS, mode=SHORT_MODES)
@power_option
@on_options
@click.option(
    "--reference", metavar="NAME", help="Compare the ledger's cases with this device or role."
)
@click.option(
    "--require",
    "required",
    metavar="LIMITS",
    help=f"Recommend a case within these limits, such as '{EXAMPLE}'. Exit 1 if there is none.",
)
@click.option(
    "--cheapest",
    type=FigureParam(JUDGED.values()),
    help="Figure to choose by. Default: energy or latency.",
)
@click.option(
    "--fail-on",
    metavar="LIMITS",
    help="Exit 1 if B is worse by more, such as slower:3%,energy:5%,memory:10%,ap:0.5 (AP points).",
)
@click.option(
    "--inconclusive",
    type=click.Choice(["fail", "pass"]),
    default="fail",
    show_default=True,
    help="--fail-on: result if the runs cannot tell.",
)
@matters_option
@all_days_option
@store_option
@names_and_config
@save_option
@quiet_option
@format_option()
def compare(
    *,
    sides: tuple[str, ...],
    reference: str | None,
    required: str | None,
    cheapest: str | None,
    fail_on: str | None,
    inconclusive: Literal["fail", "pass"],
    matters_ratio: float,
    days: "DaysCounted",
    stores: tuple[str, ...],
    form: Format,
    **options: Any,
) -> None:
    """Compare models or runs with the first, or a ledger's cases with a reference.

    Models (a file, a catalogue name, a suite of one case) are measured in turn.
    Stored runs are read from an id, ledger, JSON file, bundle, folder or device.

    Example: edgemeter compare a.tflite b.tflite --data photos/
    """
    choosing = _Choosing(required, cheapest, matters_ratio)
    _check_usage(sides, reference, fail_on, choosing)
    if not sides:
        comparison = _of_stores(stores, reference, days, choosing)
        show(comparison, form)
        if comparison.choice and comparison.choice.recommended is None:
            sys.exit(FAILED)
        return
    with passing_note("reading the sides ..."):
        # Imports take long on a small board.
        from edgemeter.agent.cli.session import end_session
        from edgemeter.collector.compare.gate import with_gate
        from edgemeter.collector.compare.limits import parse_gate, parse_requirements

    # A wrong option fails before anything is measured.
    limits = () if fail_on is None else parse_gate(fail_on)
    parse_requirements(required or "")
    session, settings = session_settings(options), case_settings(options)
    comparison, lost, measured = _of_sides(sides, settings, session, matters_ratio, days, form)
    if limits:
        comparison = with_gate(comparison, limits, lost, inconclusive)
    if choosing.is_wanted and comparison.rows:
        comparison = choosing.added_to(comparison)
    try:
        show(comparison, form, sides, _notes(measured, settings) if measured else ())
    finally:
        if measured is not None:
            end_session(measured.session)
    if (
        (comparison.gate and not comparison.gate.is_passed)
        or not comparison.rows
        or (comparison.choice and comparison.choice.recommended is None)
    ):
        sys.exit(FAILED)


@dataclass(frozen=True, slots=True)
class _Choosing:
    """How a case is recommended: within limits, and by which figure."""

    required: str | None
    cheapest: str | None
    matters_ratio: float

    @property
    def is_wanted(self) -> bool:
        return self.required is not None or self.cheapest is not None

    def among(self, cases: "Sequence[CaseSummary]") -> "Choice":
        from edgemeter.collector.compare.choice import choose
        from edgemeter.collector.compare.limits import parse_requirements

        return choose(
            cases, parse_requirements(self.required or ""), self.cheapest, self.matters_ratio
        )

    def added_to(self, comparison: "Comparison") -> "Comparison":
        from edgemeter.collector.compare.comparison import with_choice

        return with_choice(comparison, self.among([row.case for row in comparison.rows]))


def _check_usage(
    sides: Sequence[str], reference: str | None, fail_on: str | None, choosing: _Choosing
) -> None:
    """Raise UsageError if options do not go together."""
    if len(sides) == 1:
        raise click.UsageError(
            f"give two sides or more, such as edgemeter compare {sides[0]} OTHER"
        )
    if fail_on is not None and len(sides) != 2:
        raise click.UsageError(
            "--fail-on takes two sides: edgemeter compare BASELINE NEW --fail-on slower:3%"
        )
    if fail_on is None:
        _refuse(("inconclusive",), "is for a gate: give its limits with --fail-on")
    if not sides:
        _refuse(MEASURING, "is for models that are measured: edgemeter compare A B")
    if not sides and reference is None and not choosing.is_wanted:
        raise click.UsageError(
            "name two models, as in edgemeter compare A B, or a device or role by --reference; "
            "`edgemeter runs` lists runs"
        )
    if sides:
        _refuse(("reference",), "is for the cases of a ledger: leave it out, or the sides")
        _refuse(
            ("stores",),
            "is for all cases of a ledger: leave it out, since a ledger may be a side itself",
        )


class _ComparedSides(NamedTuple):
    """A comparison, what the sides lost, and what was measured for it."""

    comparison: "Comparison"
    lost: Sequence[tuple[str, str]]
    measured: "MeasuredSides | None"


def _of_sides(
    sides: Sequence[str],
    settings: "Settings",
    session: "SessionSettings",
    matters_ratio: float,
    days: "DaysCounted",
    form: Format,
) -> _ComparedSides:
    """Return the comparison of models that are measured now, or of stored results."""
    from edgemeter.agent.measuring.suites import is_model

    if any(map(is_model, sides)):
        from edgemeter.agent.cli.session import session_progress

        if session.on and (results := [side for side in sides if not is_model(side)]):
            raise click.UsageError(
                f"--on measures models, and {results[0]!r} is not a model: leave it out"
            )
        with session_progress() as on_event:
            from edgemeter.collector.compare.measured_sides import measure_sides

            measured = measure_sides(sides, settings, session, matters_ratio, on_event, note)
        return _ComparedSides(measured.comparison, (), measured)
    from edgemeter.collector.compare.between import compare_results

    _refuse(MEASURING, "is for models that are measured, and none of these is a model")
    compared = compare_results(sides, matters_ratio, days, may_lack_baseline=form == "markdown")
    return _ComparedSides(compared.comparison, compared.lost, None)


def recommend_format(
    cases: "Mapping[str, Case]",
    settings: "Settings",
    session: "SessionSettings",
    matters_ratio: float,
    form: Format,
    notes: Sequence[str],
    document: Mapping[str, Any],
) -> None:
    """Measure one model's formats in turn, and show them with a recommendation and notes.

    The cases are by name. JSON contains the `document` too.
    """
    from edgemeter.agent.base.cli.tables import console_for
    from edgemeter.agent.base.terminal import print_text
    from edgemeter.agent.cli.session import end_session, session_progress
    from edgemeter.agent.contract import model_file
    from edgemeter.collector.compare.columns import to_json
    from edgemeter.collector.compare.measured_sides import MOST_SIDES, measure_cases
    from edgemeter.collector.show.formats_table import show_formats

    names = {
        (model_file.sha256(Path(case.model)), case.runtime): name for name, case in cases.items()
    }
    sizes_mb = {name: model_file.size_bytes(Path(case.model)) / 1e6 for name, case in cases.items()}
    sides = [*cases.values()][:MOST_SIDES]
    with session_progress() as on_event:
        measured = measure_cases(sides, session, matters_ratio, on_event, note)
    rows = [
        replace(row, name=names[row.case.key.model_sha256, row.case.key.runtime])
        for row in measured.comparison.rows
    ]
    comparison = replace(measured.comparison, rows=tuple(rows))
    comparison = _Choosing(None, None, matters_ratio).added_to(comparison)
    try:
        if form == "json":
            click.echo(json_document({**document, **msgspec.json.decode(to_json(comparison))}))
        else:
            show_formats(comparison, sizes_mb, console_for(form))
            for line in (*_notes(measured, settings), *notes):
                print_text(console_for(form), line)
    finally:
        end_session(measured.session)


def _of_stores(
    stores: Sequence[str], reference: str | None, days: "DaysCounted", choosing: _Choosing
) -> "Comparison":
    """Return the comparison of all cases of the stores.

    It is with the reference, or else with the recommended one.
    """
    with passing_note("reading the runs ..."):
        # As above.
        from edgemeter.collector.compare import comparison as comparing
        from edgemeter.collector.compare.boards import over_boards

    book = opened_book(stores)
    if reference is None:
        summaries = book.summaries(days)
        # Boards of a type are one case, unless a board is named.
        is_of_board = "device=" in (choosing.required or "").replace(" ", "")
        cases = summaries if is_of_board else over_boards(summaries)
        return comparing.of_choice(choosing.among(cases), choosing.matters_ratio)
    comparison = comparing.compare(book, reference, choosing.matters_ratio, days)
    return choosing.added_to(comparison) if choosing.is_wanted else comparison


def _notes(measured: "MeasuredSides", settings: "Settings") -> tuple[str, ...]:
    """Return the number of runs, and the command that compares their cases again."""
    from edgemeter.agent.base.number_text import count, duration, short_id
    from edgemeter.agent.measuring.suites import data_options
    from edgemeter.collector.compare.measured_sides import MOST_SIDES
    from edgemeter.collector.runs.cases import grouped
    from edgemeter.collector.show.words import listed

    outcome = measured.session
    seconds = "" if outcome.seconds is None else f", {duration(outcome.seconds)}"
    runs_text = f"{count(len(outcome.records), 'run')}{seconds}."
    if outcome.saved is None:
        return (runs_text,)
    oldest = [row.case.runs.part(slice(1)).each()[0] for row in measured.comparison.rows]
    # If a model is compared with itself, the runs of both sides are one case.
    ids = [
        short_id(runs[0].id)
        for runs in grouped(
            ((run.subject.key, run.session_started_at_ns), run) for run in oldest
        ).values()
    ]
    sides_text = " ".join(ids) if len(ids) > 1 else f"{ids[0]} OTHER{data_options(settings)}"
    return runs_text, f"saved as {listed(ids, MOST_SIDES)}: edgemeter compare {sides_text}"


def show(
    comparison: "Comparison", form: Format, sides: Sequence[str] = (), notes: Sequence[str] = ()
) -> None:
    """Print the comparison.

    The notes on a measurement follow a table, and go to standard error with any other form.
    """
    from edgemeter.agent.base.cli.tables import console_for
    from edgemeter.agent.base.terminal import print_text

    if form in ("json", "csv"):
        from edgemeter.collector.compare.columns import to_csv, to_json

        click.echo(to_json(comparison) if form == "json" else to_csv(comparison), nl=form == "json")
    elif form == "markdown" and len(sides) == 2:
        from edgemeter.collector.show.comment import to_markdown

        click.echo(to_markdown(comparison, sides), nl=False)
    else:
        from edgemeter.collector.show.compare_table import show_comparison

        show_comparison(comparison, console_for(form))
    for line in notes:
        if form == "table":
            print_text(console_for(form), line)
        else:
            note(line)


def _refuse(names: Sequence[str], why: str) -> None:
    context = click.get_current_context()
    for param in context.command.params:
        if (
            param.name in names
            and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
        ):
            raise click.UsageError(f"{max(param.opts, key=len)} {why}")
