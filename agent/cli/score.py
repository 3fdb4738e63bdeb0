"""The command `edgemeter models score`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.options import PATH, format_option
from edgemeter.agent.base.progress import note, warn
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import plain_table
from edgemeter.agent.cli.case_options import MODEL_OPTIONS, case_options
from edgemeter.agent.contract.model_formats import runtime_for

if TYPE_CHECKING:
    from rich.table import Table

    from edgemeter.agent.quality.perplexity import Perplexity


@click.command()
@click.argument("model", type=PATH)
@case_options(*MODEL_OPTIONS, "subset", "seed")
@click.option("--classes", "with_classes", is_flag=True, help="Also print a table of the classes; JSON always holds them.")
@click.option("--text", type=PATH, help="Language models: UTF-8 text for the perplexity, with the rule of llama-perplexity.")
@click.option(
    "--unquantised", type=PATH, help="--text: the 16-bit file that MODEL was quantised from, for the gate (1.05 times its perplexity)."
)
@click.option("--context-tokens", type=click.IntRange(4), default=512, show_default=True, help="--text: tokens of a chunk.")
@format_option('{"metric": ..., "value": ..., "low": ..., "high": ..., "per_class": {...}, ...}, with --text {"files": [...], "gate": ...}')
def score(*, with_classes: bool, text: Path | None, unquantised: Path | None, context_tokens: int, form: Format, **options: Any) -> None:
    """Score a model without timing it: on data, or a language model on a text.

    A detector gets AP, AP50, AP75, small, medium, large and AR; a classifier top-1 and top-5, any other task its own metric.

    Exit status: 0 scored, 1 failed, nothing to find, the verdict is invalid or the gate is not passed, 2 wrong option or file.

    Example: edgemeter models score model.tflite --data photos/ --annotations instances.json
    """
    if (options["data"] is None) == (text is None):
        raise click.UsageError("give what to score on: --data photos/ --annotations instances.json, or of a language model --text FILE")
    if text is None:
        _score_on_data(options, form, with_classes=with_classes)
    else:
        _score_on_text(options, text, unquantised, context_tokens, form)


def _score_on_data(options: Mapping[str, Any], form: Format, *, with_classes: bool) -> None:
    from edgemeter.agent.cli.accuracy_scores import document, of_model, show
    from edgemeter.agent.cli.run_session import session_progress, suite_of
    from edgemeter.agent.session import checks
    from edgemeter.agent.verdict.words import verdict_lines

    suite = suite_of(None, options["model"], options)
    checks.check(suite)
    with session_progress() as on_event:
        scored = of_model(suite.cases[0], on_event)
    if not print_data(form, document(scored), rows=""):
        show(scored, console_for(form), with_classes=with_classes)
        for line in verdict_lines([scored.verdict]):
            click.echo(line, err=True)
        for warning in scored.warnings:
            warn(f"edgemeter: {warning}")
    if scored.accuracy is None or scored.verdict.state == "invalid":
        sys.exit(FAILED)


def _score_on_text(options: Mapping[str, Any], text: Path, unquantised: Path | None, context_tokens: int, form: Format) -> None:
    from edgemeter.agent.base.model_names import model_path
    from edgemeter.agent.quality.gate import quality_gate
    from edgemeter.agent.quality.scoring import read_material, score_file

    material = read_material(text, context_tokens)
    perplexities: dict[Path, Perplexity] = {}
    for path in map(model_path, (options["model"], *([unquantised] if unquantised else []))):
        note(f"scoring {path.name}")
        perplexities[path] = score_file(path, options["runtime"] or runtime_for(path), options["threads"] or 1, material)
    scores = [*perplexities.values()]
    gate = quality_gate(scores[0], scores[-1]) if unquantised else None
    files = [{"file": str(path), "perplexity": scored} for path, scored in perplexities.items()]
    if not print_data(form, {"files": files, "gate": gate}, rows="files"):
        console_for(form).print(_table_of(perplexities))
        if gate:
            click.echo(f"{gate.sentence()}\ngate: {'passed' if gate.passed else 'not passed'}")
    if gate is not None and not gate.passed:
        sys.exit(FAILED)


def _table_of(perplexities: "dict[Path, Perplexity]") -> "Table":
    table = plain_table("file", "perplexity", "bits/byte", right=("perplexity", "bits/byte"))
    table.caption, table.caption_justify = "±: one standard error, as if tokens were independent", "left"
    for path, scored in perplexities.items():
        table.add_row(path.name, f"{scored.value:.4f} ± {scored.standard_error:.4f}", f"{scored.bits_per_byte:.4f}")
    return table
