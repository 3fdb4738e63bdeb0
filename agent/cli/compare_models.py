"""The command `edgemeter compare --models`: which of several models to take, measured in turn on this device."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgemeter.agent.base import config, decision
from edgemeter.agent.base.command_group import typed
from edgemeter.agent.base.errors import FAILED, ConfigError, EdgemeterError
from edgemeter.agent.base.figures import plain_digits, share, span
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.model_names import shipped_text
from edgemeter.agent.base.options import (
    PATH,
    FiniteRange,
    config_option,
    format_option,
    matters_option,
    quiet_option,
    save_option,
)
from edgemeter.agent.base.progress import note, passing_note, wait_note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.cli import run_session
from edgemeter.agent.cli.case_options import IN_TURN_OPTIONS, SHORT_MODES, CommaSeparated, case_options, check_on, on_option, power_option
from edgemeter.agent.contract.model_formats import is_model_file
from edgemeter.agent.contract.suite import Case, Suite

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from edgemeter.agent.cli.elsewhere import ComparedDevices
    from edgemeter.agent.contract.record import RunRecord
    from edgemeter.agent.session.pairs import PairJudgement
    from edgemeter.agent.session.turn_comparison import MeasuredInTurn
    from edgemeter.agent.session.turn_figures import Side

# One value for a side: a sweep would be several cases.
_TOKENS = {"type": click.IntRange(1, 1 << 20)}
_SINGLE: dict[str, Mapping[str, Any]] = {
    "prompt_tokens": _TOKENS, "output_tokens": _TOKENS,
    "concurrency": {"type": click.IntRange(1, 256)}, "rate_per_s": {"type": FiniteRange(0.001, 1_000_000)},
}  # fmt: skip
MOST_MODELS = 26  # They are called A to Z.


@click.command(short_help="Measure models in turn on this device, and compare each with the first.")
@click.argument("models", nargs=-1, required=True, type=PATH, metavar="A B...")
@click.option(
    "--repeats", "runs", type=click.IntRange(2, 1000), default=10, show_default=True,
    help="Most runs of each; a clear result ends earlier.",
)  # fmt: skip
@matters_option
@case_options(*IN_TURN_OPTIONS, mode=SHORT_MODES, **_SINGLE)
@click.option(
    "--kv-type", "kv_types", type=CommaSeparated(click.STRING), help="Measure each .gguf model with each of these caches: f16,q8_0,q4_0."
)
@click.option("--text", metavar="FILE", help="Language models: UTF-8 text for the perplexity, or none. Default: the text that ships.")
@on_option
@power_option
@save_option
@config_option
@quiet_option
@format_option()
def compare_models(models: tuple[Path, ...], runs: int, matters: float, *, form: Format, save: bool, **options: Any) -> None:
    """Measure models in turn on this device, and compare each with the first: speed, quality and energy, in a table and a sentence.

    A and B are model files, names of the catalogue, or suites (.toml) of one case each. They run alternately (AB BA BA AB ...), so that all
    see the same machine, until the differences are clear. Accuracy needs --data and --annotations, energy a power sensor. Of language
    models (.gguf, .server) prefill and decoding are compared, and the perplexity on a text.

    Example: edgemeter compare model_fp32.tflite model_int8.tflite --data photos/ --annotations coco.json
    """
    from edgemeter.agent.ledger.own_runs import saving

    check_on(options["on"])
    with saving(config.read(options["config"]), note, is_wanted=save) as keep:
        if options["on"]:
            from edgemeter.agent.cli import elsewhere as remote

            _show_compared(remote.compare(models, cases_of(models, options), runs, matters, keep, options, note), form)
            return
        comparison = measure_cases(cases_of(models, options), runs, matters, keep, options, note)
        if not print_data(form, msgspec.to_builtins(comparison) | {"pick": comparison.pick}, rows="sides"):
            show(comparison, console_for(form))
        stop_if_interrupted(comparison)


def _show_compared(compared: "ComparedDevices", form: Format) -> None:
    """Print what the devices measured, and what went wrong there; raise what interrupted them."""
    if compared.comparisons:
        show_devices(compared.comparisons, form)
    for text in dict.fromkeys(map(str, compared.errors)):
        click.echo(f"edgemeter: {text}", err=True)
    if compared.interruption is not None:
        raise compared.interruption
    if compared.errors:
        sys.exit(FAILED if compared.comparisons else compared.errors[0].exit_status)


def show_devices(comparisons: "Sequence[tuple[str, MeasuredInTurn]]", form: Format) -> None:
    """Print what each device measured: the table of each, or all in one document."""
    documents = [{"device": device, **msgspec.to_builtins(comparison), "pick": comparison.pick} for device, comparison in comparisons]
    rows = [{"device": device, **msgspec.to_builtins(side)} for device, comparison in comparisons for side in comparison.sides]
    if print_data(form, {"sides": rows} if form == "csv" else {"devices": documents}, rows="sides"):
        return
    for device, comparison in comparisons:
        if len(comparisons) > 1:
            print_text(console_for(form), f"{device}:", "bold")
        show(comparison, console_for(form))


def cases_of(models: Sequence[Path], options: Mapping[str, Any]) -> list[Case]:
    """Return the cases of models (paths, names, or suites of one case); raises ConfigError if a model or an option is wrong."""
    if results := [path for path in models if _is_result(path)]:
        raise ConfigError(
            f"{str(results[0])!r} is not a model: compare models with models, or results with results (`edgemeter run --output`)"
        )
    variants = _variants(options)
    if not 2 <= len(models) * len(variants) <= MOST_MODELS:
        raise ConfigError(f"give two models or more (at most {MOST_MODELS}), not {len(models)}: edgemeter compare A B")
    return [run_session.single_case(path, {**options, "options": variant}) for path in models for variant in variants]


def _variants(options: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the options of the runtime that each model is measured with: those of every cache."""
    plain: dict[str, str] = options.get("options") or {}
    return [plain | {"kv_type": kind} for kind in options.get("kv_types") or ()] or [plain]


def check_cases(cases: Sequence[Case], options: Mapping[str, Any]) -> Mapping[int, EdgemeterError]:
    """Return by its place why this machine cannot measure a case; raises EdgemeterError if it can measure none, or a sensor is absent."""
    from edgemeter.agent.power.detect import check_sensors
    from edgemeter.agent.session import in_turn, session

    settings = config.read(options["config"])
    check_sensors(options["power"], settings.power, settings.sensors)
    suite = Suite("compare", tuple(cases))
    refused = session.check(suite, opens=True)
    in_turn.check_sides(suite, refused)
    return refused


def measure_cases(
    cases: Sequence[Case],
    runs: int,
    matters_ratio: float,
    keep: "Callable[[RunRecord], RunRecord]",
    options: Mapping[str, Any],
    report: Callable[[str], None],
) -> "MeasuredInTurn":
    """Measure cases in turn while no other run does on this board, and return the comparison; notes on the way go to `report`.

    There are at most `runs` of each, which `keep` stores; a ratio of latency or energy above `matters_ratio` matters. The option `text` is
    the file on which language models are scored, or none.

    Raises:
        EdgemeterError: they cannot be measured, or no two runs can be compared.
    """
    settings = config.read(options["config"])
    text = _text_of(options.get("text")) if any(case.output_tokens is not None for case in cases) else None
    with passing_note("checking models, data and sensors ..."):
        from edgemeter.agent.energy.outlook import outlook
        from edgemeter.agent.operating.changes import quiet_board
        from edgemeter.agent.power.detect import open_sensors
        from edgemeter.agent.session import in_turn, session, turn_comparison, turn_figures
        from edgemeter.agent.verdict.environment_rules import environment_notes
        from edgemeter.agent.verdict.words import text_of

        suite = Suite("compare", tuple(cases))
        turn_figures.turn_figures(cases)
        refused = check_cases(cases, options)
    identity = session.DeviceIdentity(*config.names(None, None, settings), settings.role)
    with (
        quiet_board(config.home(), "edgemeter compare", wait_note),
        open_sensors(options["power"], settings.power, settings.sensors) as (sensors, why_no_power),
        run_session.session_progress() as on_event,
    ):
        for remark in (*(f"power: {text}" for text in outlook(suite, sensors)), *map(text_of, environment_notes())):
            report(f"note: {remark}")
        bench = in_turn.Bench(identity, sensors, why_no_power, on_event, keep)
        return in_turn.measure_in_turn(cases, runs, bench, turn_comparison.Matters(ratio=matters_ratio), text, refused)


def _text_of(named: str | None) -> str | None:
    """Return the text on which language models are scored: that in a file, or the one that ships; None for `none`."""
    from edgemeter.agent.datasets.items import read_text

    if named == "none":
        return None
    path = shipped_text() if named is None else Path(named).expanduser()
    return None if path is None else read_text(path, "the text")


def _is_result(path: Path) -> bool:
    """Return whether `path` can only be meant as results: a document, a ledger, a bundle or a folder of these."""
    if is_model_file(path):
        return False
    return path.suffix.lower() == ".json" or path.name.lower().endswith((".sqlite", ".edgemeter")) or path.is_dir()


def show(comparison: "MeasuredInTurn", console: "Console") -> None:
    """Print a sentence, a row for each side, what is out, does not count, is missing or doubtful, and where it holds.

    The sentence is how the second of two is beside the first; of more it states which to take, and the others' follow the table.
    """
    sentences = [f"{contrast.sentence}." for contrast in comparison.contrasts]
    is_pair = len(comparison.sides) == 2
    first, *further = sentences if is_pair else [pick_text(comparison), *sentences]
    print_text(console, first, "bold")
    console.print(sides_table(comparison, console.width))
    out = [] if is_pair else [f"{name} is out: {reason}" for name, reason in comparison.pick.refused.items()]
    for line in (*further, *out, *notes_of(comparison), elsewhere(comparison.runs[0])):
        print_text(console, line)


def pick_text(comparison: "MeasuredInTurn") -> str:
    """Return which side to take in one sentence, with what speaks for it, and what is as fast."""
    from edgemeter.agent.contract.record_accuracy import GATE_RATIO
    from edgemeter.agent.quality.gate import HIGHEST_PERPLEXITY_RATIO

    choice = comparison.pick
    if choice.name is None:
        return "take none: every one is out"
    labels = {side.name: side.label for side in comparison.sides}
    sentences = {contrast.name: contrast.sentence for contrast in comparison.contrasts}
    reason = sentences.get(choice.name, f"no other {'that is allowed ' if choice.refused else ''}is clearly faster")
    rivals = f"; not clearly slower: {', '.join(choice.rivals)}" if choice.rivals else ""
    first = comparison.sides[0].name
    gates = {
        decision.ACCURACY: f"keeps {decision.percent(GATE_RATIO)} of {first}'s accuracy",
        "perplexity": f"has at most {HIGHEST_PERPLEXITY_RATIO:g} times {first}'s perplexity",
    }
    differences = [difference for contrast in comparison.contrasts for difference in contrast.differences]
    # Bits per byte are held to the same limit.
    scored = {difference.figure.replace("bits per byte", "perplexity") for difference in differences if difference.change is not None}
    allowed = " and ".join(text for figure, text in gates.items() if figure in scored)
    return f"take {choice.name}, {labels[choice.name]}: {reason}{rivals}{f'; what {allowed} is allowed' if allowed else ''}."


def stop_if_interrupted(comparison: "MeasuredInTurn") -> None:
    """Raise KeyboardInterrupt if Ctrl-C ended the measurement, now that its result is printed."""
    if comparison.is_interrupted:
        raise KeyboardInterrupt(f"interrupted: {len(comparison.runs)} runs ended before and are compared")


def elsewhere(run: "RunRecord") -> str:
    """Return that a ratio is this board's, and the command that measures it on another."""
    board = run.environment.board or run.environment.cpu
    where = f"{run.device}{f' ({board})' if board else ''}"
    context = click.get_current_context(silent=True)
    command = f"{typed()}{' --on DEVICE' if context is not None and context.params.get('on') else ''}"
    return (
        f"ratios are of neighbouring runs on {where}, not of the medians, and need not hold on another board: measure it there: {command}"
    )


def sides_table(comparison: "MeasuredInTurn", width: int, *further: TableColumn) -> "Table":
    """Return the table of the sides, with further columns at its end."""
    changes = {
        contrast.name: {difference.figure: decision.change_text(difference) for difference in contrast.differences}
        for contrast in comparison.contrasts
    }
    sides = comparison.sides
    columns = _text_columns if any(side.text_figures for side in sides) else _query_columns
    first = [
        TableColumn("", [side.name for side in sides], "left"),
        TableColumn("model", [side.label for side in sides], "left", folds=True),
        TableColumn("runs", [str(len(side.p50_ms)) for side in sides], rank=3),
    ]
    return fitted_table(
        [*first, *columns(comparison, lambda figure: [changes.get(side.name, {}).get(figure, "") for side in sides]), *further], width
    )


def _query_columns(comparison: "MeasuredInTurn", changed: Callable[[str], list[str]]) -> list[TableColumn]:
    """Return the columns of models of one call; `changed` gives the changes of a figure against the first, side by side."""
    sides = comparison.sides
    intervals = ["-" if side.low_ms is None or side.high_ms is None else span(side.low_ms, side.high_ms) for side in sides]
    return [
        TableColumn("p50 ms", [plain_digits(side.median_ms) for side in sides]),
        TableColumn("95%", intervals, rank=1),
        TableColumn("", changed(decision.LATENCY)),
        *_missed_columns(sides, changed),
        *_accuracy_columns(sides, changed),
        TableColumn("energy mJ", [plain_digits(side.gross_mj) for side in sides]),
        TableColumn("", changed(decision.ENERGY)),
        TableColumn("memory MB", [plain_digits(side.peak_mb, 3) for side in sides], rank=2),
    ]


def _missed_columns(sides: Sequence["Side"], changed: Callable[[str], list[str]]) -> list[TableColumn]:
    if all(side.missed_ratio is None for side in sides):
        return []
    return [TableColumn("missed", [share(side.missed_ratio) for side in sides]), TableColumn("", changed(decision.MISSED))]


def _accuracy_columns(sides: Sequence["Side"], changed: Callable[[str], list[str]]) -> list[TableColumn]:
    metrics = {side.accuracy_metric for side in sides if side.accuracy_metric}
    accuracy = metric_name(metrics.pop()) if len(metrics) == 1 else "accuracy"
    return [
        TableColumn(accuracy, ["-" if side.accuracy_value is None else f"{side.accuracy_value:.4f}" for side in sides]),
        TableColumn("", changed(decision.ACCURACY)),
    ]


def _text_columns(comparison: "MeasuredInTurn", changed: Callable[[str], list[str]]) -> list[TableColumn]:
    """Return the columns of language models: their figures, each followed by its change where it is compared; quality; memory."""
    from edgemeter.agent.contract.figures import FigureView
    from edgemeter.agent.session.turn_figures import TEXT_FIGURES

    sides = comparison.sides
    columns: list[TableColumn] = []
    for entry in TEXT_FIGURES:
        is_scored = entry.name != decision.CORRECT_ENERGY or any(entry.name in side.text_figures for side in sides)
        if (FigureView.TABLE in entry.views or entry.name == decision.TOKEN_ENERGY) and is_scored:
            columns += [
                TableColumn(entry.heading, [plain_digits(side.text_figures.get(entry.name)) for side in sides]),
                TableColumn("", changed(entry.name)),
            ]
    perplexities = [plain_digits(side.perplexity.value if side.perplexity else None) for side in sides]
    peaks = [plain_digits(side.peak_mb, 3) for side in sides]
    answered = _accuracy_columns(sides, changed) if any(side.accuracy_metric for side in sides) else []
    return [*columns, TableColumn("perplexity", perplexities), *answered, TableColumn("memory MB", peaks, rank=2)]


def notes_of(comparison: "MeasuredInTurn") -> list[str]:
    """Return what is missing and why, what was left out, and what is doubtful."""
    missing: dict[str, list[str]] = {}
    for contrast in comparison.contrasts:
        for difference in contrast.differences:
            if difference.change is None:
                missing.setdefault(f"{decision.figure_name(difference.figure)}: {difference.note}", []).append(contrast.name)
    of = {reason: f" of {' and '.join(names)}" if len(names) < len(comparison.contrasts) else "" for reason, names in missing.items()}
    notes = [f"no {reason.replace(':', f'{of[reason]}:', 1)}" for reason in missing]
    notes += [note for contrast in comparison.contrasts if (note := _neighbours_note(contrast.name, contrast.decode or contrast.latency))]
    if len(comparison.runs) < comparison.most_runs and not comparison.is_interrupted:
        notes.append(f"{len(comparison.runs)} of at most {comparison.most_runs} runs")
    disturbed = [f"disturbed: {', '.join(comparison.doubts)}"] if comparison.doubts else []
    # A line for each reason, with the runs: `pair 1, B; pair 2, B`.
    titles: dict[str, list[str]] = {}
    for text in comparison.left_out:
        title, _, reason = text.partition(": ")
        titles.setdefault(reason, []).append(title)
    return [*notes, *(f"left out: {'; '.join(runs)}: {reason}" for reason, runs in titles.items()), *disturbed]


def _neighbours_note(name: str, judged: "PairJudgement") -> str:
    """Return what the dependence of neighbouring pairs means for the outcome; nothing where it is the same with and without."""
    from edgemeter.agent.base.run_statistics import TELLING_NEIGHBOURS

    if judged.effective_pairs is not None and judged.effective_pairs < judged.pairs:
        return f"{name}: neighbouring pairs depend on each other: {judged.pairs} are worth {judged.effective_pairs:.1f} independent ones"
    if judged.rests_on_independence:
        fewest = f"--repeats {TELLING_NEIGHBOURS}"
        return f"{name}: too few pairs to show whether neighbours depend on each other, which would open the outcome: {fewest}"
    return ""
