"""The command `edgemeter models quantise`."""

import sys
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.base.options import PATH, format_option, quiet_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, print_data


@click.command()
@click.argument("source", type=PATH)
@click.option("--to", "kinds", multiple=True, required=True, help="q8_0, q5_1, q5_0, q4_1 or q4_0; repeatable.")
@click.option("--out", type=PATH, default=Path("quantised"), show_default=True, help="Output folder.")
@click.option("--text", type=PATH, help="UTF-8 text to compare the perplexity of each file with the source's on; needs the extra llama.")
@click.option("--context-tokens", type=click.IntRange(4), default=512, show_default=True, help="Tokens of a chunk of --text.")
@quiet_option
@format_option('Print {"files": [{"file": ..., "size_bytes": ..., "gate": {...} or null}]}.')
def quantise(source: Path, kinds: tuple[str, ...], out: Path, text: Path | None, context_tokens: int, *, form: Format | None) -> None:
    """Quantise a GGUF file, and report what each type costs in perplexity.

    Exit status: 0 written, 1 failed or a perplexity is above 1.05 times the source's, 2 wrong option or file.

    Example: edgemeter models quantise model_f16.gguf --to q8_0 --to q4_0 --text held_out.txt
    """
    from edgemeter.agent.quality.gate import quality_gate
    from edgemeter.agent.quality.scoring import read_material, score_file
    from edgemeter.models.convert import gguf_quantise

    unknown = [kind for kind in kinds if kind not in gguf_quantise.TYPES]
    if unknown:
        raise click.UsageError(f"--to {unknown[0]}: choose of {', '.join(gguf_quantise.TYPES)}")
    material = read_material(text, None, None, context_tokens) if text is not None else None
    before = score_file(source, "llama", 1, material) if material else None
    found: list[dict[str, Any]] = []
    for kind in kinds:
        note(f"writing {kind}")
        path = gguf_quantise.quantise(source, kind, out)
        gate = quality_gate(score_file(path, "llama", 1, material), before) if material and before else None
        found.append({"file": str(path), "size_bytes": path.stat().st_size, "gate": gate})
        if form is None:
            click.echo(f"{path}: {path.stat().st_size / 1e6:.3g} MB{f'; {gate.checks[0].sentence()}' if gate else ''}")
    print_data(form, {"files": found})
    if any(one["gate"] is not None and not one["gate"].passed for one in found):
        sys.exit(1)
