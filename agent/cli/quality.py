"""The command `edgemeter models quality`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.errors import FAILED, ConfigError
from edgemeter.agent.base.options import PATH, rows_json_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import plain_table
from edgemeter.agent.contract.model_formats import runtime_for

if TYPE_CHECKING:
    from rich.table import Table

    from edgemeter.agent.quality.gate import Quality
    from edgemeter.agent.quality.lm_eval_results import ImportedResults


@click.command()
@click.option("-m", "--model", type=PATH, help="Language model (.gguf, .litertlm, genai_config.json, .server), or name of the catalogue.")
@click.option(
    "--unquantised", "source", type=PATH,
    help="The 16-bit file that --model was quantised from: the gate compares the two.",
)  # fmt: skip
@click.option("--text", type=PATH, help="UTF-8 text for the perplexity.")
@click.option("--choices", type=PATH, help='JSON Lines for multiple choice: {"id", "prompt", "choices": [...], "answer": index}.')
@click.option("--questions", type=PATH, help='JSON Lines for exact match and F1: {"id", "prompt", "answers": [...]}.')
@click.option("--context-tokens", type=click.IntRange(4), default=512, show_default=True, help="Tokens of a chunk of --text.")
@click.option("--limit", type=click.IntRange(2), help="Score the first N items of each file, and chunks of the text. Default: all.")
@click.option(
    "--lm-eval", "lm_eval", type=PATH, multiple=True,
    help="results_*.json of lm-evaluation-harness: its scores are shown as imported; repeatable.",
)  # fmt: skip
@click.option("--runtime", help="Generator: llama, litert-lm, genai, server. Default: by the file's name.")
@click.option("--threads", type=click.IntRange(1, 1024), default=1, show_default=True, help="Threads of the generator.")
@rows_json_option('Print {"files": [{"file": ..., "quality": {...}}], "gate": {...} or null, "imported": [...]}.')
def quality(
    model: Path | None,
    source: Path | None,
    runtime: str | None,
    threads: int,
    *,
    form: Format | None,
    limit: int | None,
    lm_eval: tuple[Path, ...],
    **files: Any,
) -> None:
    """Score a language model: perplexity, multiple choice, short answers.

    Perplexity is by the rule of llama-perplexity, multiple choice as lm-evaluation-harness scores it, exact match and F1 with SQuAD's
    normalisation. With --unquantised a perplexity above 1.05 times the source's, or an accuracy below 0.9 times, fails the gate.

    Any server can be scored with --questions, one that echoes prompts also with --choices, vLLM also with --text.

    Exit status: 0 scored, 1 failed or the gate is not passed, 2 wrong option or file.

    Example: edgemeter models quality --model model_q4_0.gguf --unquantised model_f16.gguf --text held_out.txt
    """
    from edgemeter.agent.base.model_names import model_path
    from edgemeter.agent.quality.gate import quality_gate
    from edgemeter.agent.quality.lm_eval_results import read_results
    from edgemeter.agent.quality.scoring import read_material, score_file

    imported = [read_results(path) for path in lm_eval]
    if model is None and (source is not None or not imported):
        raise ConfigError("nothing to score: give --model FILE, or --lm-eval FILE alone to see what that states")
    qualities: dict[Path, Quality] = {}
    material = read_material(**files, limit=limit) if model is not None else None
    model, source = model and model_path(model), source and model_path(source)
    for path in (model, source):
        if path is not None and material is not None:
            note(f"scoring {path.name}")
            qualities[path] = score_file(path, runtime or runtime_for(path), threads, material)
    gate = quality_gate(qualities[model], qualities[source]) if model is not None and source is not None else None
    scores = [{"file": str(path), "quality": scored} for path, scored in qualities.items()]
    if not print_data(form, {"files": scores, "gate": gate, "imported": imported}, rows="files"):
        if qualities:
            console_for(form).print(_table(qualities, limit))
        for results in imported:
            console_for(form).print(_imported_table(results))
        for check in gate.checks if gate else ():
            click.echo(check.sentence())
        if gate:
            click.echo(f"gate: {'passed' if gate.passed else 'not passed'}")
    if gate is not None and not gate.passed:
        sys.exit(FAILED)


def _table(qualities: "dict[Path, Quality]", limit: int | None) -> "Table":
    figures = ("perplexity", "bits/byte", "acc", "acc_norm", "exact match", "F1")
    table = plain_table("file", *figures, right=figures)
    first = "" if limit is None else f"; the first {limit} items or chunks only"
    table.caption, table.caption_justify = f"±: one standard error, tokens and questions taken as independent{first}", "left"
    for path, scores in qualities.items():
        likely, choices, answered = scores.perplexity, scores.choices, scores.answers
        table.add_row(
            path.name,
            f"{likely.value:.4f} ± {likely.standard_error:.4f}" if likely else "-",
            f"{likely.bits_per_byte:.4f}" if likely else "-",
            _accuracy(choices.acc, choices.acc_stderr) if choices else "-",
            _accuracy(choices.acc_norm, choices.acc_norm_stderr) if choices else "-",
            f"{answered.exact_match:.3f}" if answered else "-",
            f"{answered.f1:.3f}" if answered else "-",
        )
    return table


def _imported_table(results: "ImportedResults") -> "Table":
    right = ("value", "shots", "items")
    table = plain_table("task", "metric", *right, right=right)
    table.caption_justify = "left"
    table.caption = f"imported, not measured here: {results.source}, {results.model}, from {results.file}; \u00b1: its standard error"
    for score in results.scores:
        metric = score.metric if score.filter == "none" else f"{score.metric} ({score.filter})"
        counts = (str(count) if count is not None else "-" for count in (score.shots, score.items))
        table.add_row(score.task, metric, _accuracy(score.value, score.standard_error), *counts)
    return table


def _accuracy(value: float, standard_error: float | None) -> str:
    """Return a share with its standard error; one question has none."""
    return f"{value:.3f}" if standard_error is None else f"{value:.3f} ± {standard_error:.3f}"
