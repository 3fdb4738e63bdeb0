"""The command `edgemeter models quality`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.options import PATH, rows_json_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import plain_table
from edgemeter.agent.contract.model_formats import runtime_for

if TYPE_CHECKING:
    from rich.table import Table

    from edgemeter.agent.quality.perplexity import Perplexity


@click.command()
@click.option("-m", "--model", type=PATH, required=True, help="Language model (.gguf, .server), or name of the catalogue.")
@click.option(
    "--unquantised", "source", type=PATH,
    help="The 16-bit file that --model was quantised from: the gate compares the two.",
)  # fmt: skip
@click.option("--text", type=PATH, required=True, help="UTF-8 text for the perplexity.")
@click.option("--context-tokens", type=click.IntRange(4), default=512, show_default=True, help="Tokens of a chunk of --text.")
@click.option("--limit", type=click.IntRange(2), help="Score the first N chunks of the text. Default: all.")
@click.option("--runtime", help="Generator: llama, server. Default: by the file's name.")
@click.option("--threads", type=click.IntRange(1, 1024), default=1, show_default=True, help="Threads of the generator.")
@rows_json_option('Print {"files": [{"file": ..., "perplexity": {...}}], "gate": {...} or null}.')
def quality(
    model: Path,
    source: Path | None,
    text: Path,
    context_tokens: int,
    limit: int | None,
    runtime: str | None,
    threads: int,
    *,
    form: Format | None,
) -> None:
    """Score a language model by its perplexity on a text, with the rule of llama-perplexity.

    With --unquantised a perplexity above 1.05 times the source's fails the gate. Of servers vLLM can be scored.

    Exit status: 0 scored, 1 failed or the gate is not passed, 2 wrong option or file.

    Example: edgemeter models quality --model model_q4_0.gguf --unquantised model_f16.gguf --text held_out.txt
    """
    from edgemeter.agent.base.model_names import model_path
    from edgemeter.agent.quality.gate import quality_gate
    from edgemeter.agent.quality.scoring import read_material, score_file

    material = read_material(text, context_tokens, limit)
    perplexities: dict[Path, Perplexity] = {}
    for path in map(model_path, (model, *([source] if source else []))):
        note(f"scoring {path.name}")
        perplexities[path] = score_file(path, runtime or runtime_for(path), threads, material)
    scores = [*perplexities.values()]
    gate = quality_gate(scores[0], scores[-1]) if source else None
    files = [{"file": str(path), "perplexity": scored} for path, scored in perplexities.items()]
    if not print_data(form, {"files": files, "gate": gate}, rows="files"):
        console_for(form).print(_table(perplexities, limit))
        if gate:
            click.echo(f"{gate.sentence()}\ngate: {'passed' if gate.passed else 'not passed'}")
    if gate is not None and not gate.passed:
        sys.exit(FAILED)


def _table(perplexities: "dict[Path, Perplexity]", limit: int | None) -> "Table":
    table = plain_table("file", "perplexity", "bits/byte", right=("perplexity", "bits/byte"))
    first = "" if limit is None else f"; the first {limit} chunks only"
    table.caption, table.caption_justify = f"±: one standard error, tokens taken as independent{first}", "left"
    for path, scored in perplexities.items():
        table.add_row(path.name, f"{scored.value:.4f} ± {scored.standard_error:.4f}", f"{scored.bits_per_byte:.4f}")
    return table
