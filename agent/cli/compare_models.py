"""The command `edgemeter compare --models`: which of several models to take, measured in turn on this device."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.options import PATH, format_option, matters_option, names_and_config, quiet_option, save_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.cli.case_options import MODEL_OPTIONS, SHORT_MODES, case_options, power_option

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from edgemeter.agent.contract.record import RunRecord
    from edgemeter.agent.session.in_turn import MeasuredInTurn
    from edgemeter.agent.session.pairs import PairJudgement

# They are called A to Z.
MOST_MODELS = 26


@click.command(short_help="Measure models in turn on this device, and compare each with the first.")
@click.argument("models", nargs=-1, required=True, type=PATH, metavar="A B...")
@click.option("--runs", type=click.IntRange(2, 1000), default=10, show_default=True, help="Most runs of each; a clear result ends earlier.")
@matters_option
@case_options(*MODEL_OPTIONS, "cluster_by", "subset", "seed", "mode", mode=SHORT_MODES)
@power_option
@save_option
@names_and_config
@quiet_option
@format_option("Print the comparison and its records as JSON.")
def compare_models(models: tuple[Path, ...], runs: int, matters: float, *, form: Format | None, save: bool, **options: Any) -> None:
    """Measure models in turn on this device, and compare each with the first: speed, accuracy and energy, in a table and a sentence.

    A and B are model files, names of the catalogue, or suites (.toml) of one case each. They run alternately (AB BA BA AB ...), so that all
    see the same machine, until the differences are clear. Accuracy needs --images and --annotations, energy a power sensor.

    Example: edgemeter compare model_fp32.tflite model_int8.tflite --images photos/ --annotations coco.json
    """
    from edgemeter.agent.base import config
    from edgemeter.agent.ledger.own_runs import saving

    with saving(config.read(options["config"]), note, is_wanted=save) as keep:
        comparison = measure_models(models, runs, matters, keep, options, note)
        if not print_data(form, comparison, rows="sides"):
            show(comparison, console_for(form))


def measure_models(
    models: Sequence[Path],
    runs: int,
    matters_ratio: float,
    keep: "Callable[[RunRecord], RunRecord]",
    options: Mapping[str, Any],
    report: Callable[[str], None],
) -> "MeasuredInTurn":
    """Measure models (paths, names, or suites of one case) in turn, and return the comparison; notes on the way go to `report`.

    There are at most `runs` of each, which `keep` stores; a ratio of latency or energy above `matters_ratio` matters.

    Raises:
        EdgemeterError: a model or an option is wrong, or no two runs can be compared.
    """
    from edgemeter.agent.base import config
    from edgemeter.agent.base.file_lock import run_lock
    from edgemeter.agent.cli import run_session
    from edgemeter.agent.cli.run_plan import expectation
    from edgemeter.agent.contract.suite import Suite

    if not 2 <= len(models) <= MOST_MODELS:
        raise ConfigError(f"give two models or more (at most {MOST_MODELS}), not {len(models)}: edgemeter compare A B")
    if results := [path for path in models if _is_result(path)]:
        raise ConfigError(
            f"{str(results[0])!r} is not a model: compare models with models, or results with results (`edgemeter run --output`)"
        )
    settings = config.read(options["config"])
    cases = [run_session.single_case(path, options) for path in models]
    length = expectation(cases, [runs] * len(cases))
    report(f"measuring {len(cases)} models in turn: at most {length}; a clear result ends earlier")
    # What comes now takes long to import on a small board.
    from edgemeter.agent.energy.outlook import outlook
    from edgemeter.agent.power.detect import open_sensors
    from edgemeter.agent.session import in_turn, session
    from edgemeter.agent.verdict.precondition_rules import preflight_notes

    suite = Suite("compare", tuple(cases))
    session.check(suite)
    identity = session.DeviceIdentity(*config.names(options["device"], options["fleet"], settings))
    with (
        run_lock(config.home(), "edgemeter compare", report),
        open_sensors(options["power"], settings.power, settings.sensors) as (sensors, why_no_power),
        run_session.session_progress() as on_event,
    ):
        for remark in (*(f"power: {text}" for text in outlook(suite, sensors)), *preflight_notes()):
            report(f"note: {remark}")
        bench = in_turn.Bench(identity, sensors, why_no_power, on_event, keep)
        return in_turn.measure_in_turn(cases, runs, bench, in_turn.Matters(ratio=matters_ratio))


def _is_result(path: Path) -> bool:
    """Return whether `path` can only be meant as results: a document, a ledger, a bundle or a folder of these."""
    name = path.name.lower()
    return name.endswith((".sqlite", ".edgemeter")) or (name.endswith(".json") and not name.endswith(".replay.json")) or path.is_dir()


def show(comparison: "MeasuredInTurn", console: "Console") -> None:
    """Print a row for each side, a sentence for each but the first, and what does not count, is missing or doubtful."""
    from edgemeter.agent.base.terminal import print_text

    console.print(_table(comparison))
    for line in (*(f"{contrast.sentence}." for contrast in comparison.contrasts), *_notes(comparison)):
        print_text(console, line)


def _table(comparison: "MeasuredInTurn") -> "Table":
    from edgemeter.agent.base import decision
    from edgemeter.agent.base.figures import plain_digits, span
    from edgemeter.agent.base.metrics import metric_name
    from edgemeter.agent.base.terminal import plain_table

    metrics = {side.accuracy_metric for side in comparison.sides if side.accuracy_metric}
    accuracy = metric_name(metrics.pop()) if len(metrics) == 1 else "accuracy"
    changes = {
        contrast.name: {difference.figure: decision.change_text(difference) for difference in contrast.differences}
        for contrast in comparison.contrasts
    }
    table = plain_table()
    for heading in ("", "model", "runs", "p50 ms", "95%", "", accuracy, "", "mJ gross", "", "peak MB"):
        table.add_column(heading, justify="left" if heading == "model" else "right", overflow="fold", no_wrap=heading != "model")
    for side in comparison.sides:
        change = changes.get(side.name, {})
        table.add_row(
            side.name,
            side.label,
            str(len(side.p50_ms)),
            plain_digits(side.median_ms),
            "-" if side.low_ms is None or side.high_ms is None else span(side.low_ms, side.high_ms),
            change.get("latency", ""),
            "-" if side.accuracy_value is None else f"{side.accuracy_value:.4f}",
            change.get("accuracy", ""),
            plain_digits(side.gross_mj),
            change.get("energy", ""),
            plain_digits(side.peak_mb, 3),
        )
    return table


def _notes(comparison: "MeasuredInTurn") -> list[str]:
    missing: dict[str, list[str]] = {}
    for contrast in comparison.contrasts:
        for difference in contrast.differences:
            if difference.change is None:
                missing.setdefault(f"{difference.figure}: {difference.note}", []).append(contrast.name)
    of = {reason: f" of {' and '.join(names)}" if len(names) < len(comparison.contrasts) else "" for reason, names in missing.items()}
    notes = [f"no {reason.replace(':', f'{of[reason]}:', 1)}" for reason in missing]
    notes += [note for contrast in comparison.contrasts if (note := _neighbours_note(contrast.name, contrast.latency))]
    return [*notes, *(f"left out: {text}" for text in comparison.left_out), *(f"suspect: {text}" for text in comparison.doubts)]


def _neighbours_note(name: str, judged: "PairJudgement") -> str:
    """Return what the dependence of neighbouring pairs means for the outcome; nothing where it is the same with and without."""
    from edgemeter.agent.base.run_statistics import TELLING_NEIGHBOURS

    if judged.effective_pairs is not None and judged.effective_pairs < judged.pairs:
        return f"{name}: neighbouring pairs depend on each other: {judged.pairs} are worth {judged.effective_pairs:.1f} independent ones"
    if judged.rests_on_independence:
        fewest = f"--runs {TELLING_NEIGHBOURS}"
        return f"{name}: too few pairs to show whether neighbours depend on each other, which would open the outcome: {fewest}"
    return ""
