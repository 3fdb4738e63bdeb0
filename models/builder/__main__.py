"""Makes the shipped models again from nothing: `python -m edgemeter.models.builder --output FOLDER` (`make models`)."""

from dataclasses import replace
from pathlib import Path

import click

from edgemeter.agent.base.progress import progress_bar
from edgemeter.agent.base.terminal import wide_console
from edgemeter.models.builder.build import build_shipped
from edgemeter.models.builder.recipe import NEEDED, Recipe, require
from edgemeter.models.cli.tables import print_shipped


@click.command()
@click.option(
    "--output", "out", type=click.Path(path_type=Path), default=Path("edgemeter-models"), show_default=True, help="Output folder."
)
@click.option("--steps", type=click.IntRange(1), help="Training steps of each model. Default: those of the shipped models.")
@click.option("--seed", type=click.IntRange(0), help="Seed of data and first networks. Default: that of the shipped models.")
@click.option("--threads", type=click.IntRange(1), help="Training threads; the result depends on their number. Default: 1.")
@click.option("--only", type=click.Choice(["scenes", "language"]), help="Make the detector with its scenes, or the language model, only.")
def build_models(out: Path, only: str | None, **changes: int | None) -> None:
    """Draw the scenes and write the notes, train detector and language model, and write, quantise and score every model file.

    Example: python -m edgemeter.models.builder --output /tmp/models
    """
    require(NEEDED)
    # PyTorch comes with an extra and takes seconds to import.
    from edgemeter.models.builder.build_language import build_language
    from edgemeter.models.builder.language import LanguageRecipe

    settings = {name: value for name, value in changes.items() if value is not None}
    with progress_bar() as report:
        if only != "scenes":
            build_language(out / "language", replace(LanguageRecipe(), **settings), report)
        models = build_shipped(out, replace(Recipe(), **settings), report) if only != "language" else []
    if models:
        print_shipped(models, wide_console())


if __name__ == "__main__":
    build_models()
