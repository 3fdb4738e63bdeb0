"""Makes the shipped scenes and detector again from nothing: `python -m edgemeter.models.builder --output FOLDER` (`make models`)."""

from dataclasses import replace
from pathlib import Path

import click

from edgemeter.agent.base.progress import progress_bar
from edgemeter.agent.base.terminal import wide_console
from edgemeter.models.builder.build import build_shipped
from edgemeter.models.builder.recipe import Recipe
from edgemeter.models.cli.tables import print_shipped


@click.command()
@click.option(
    "--output", "out", type=click.Path(path_type=Path), default=Path("edgemeter-models"), show_default=True, help="Output folder."
)
@click.option("--steps", type=click.IntRange(1), help="Training steps of each model. Default: those of the shipped models.")
@click.option("--seed", type=click.IntRange(0), help="Seed of data and first networks. Default: that of the shipped models.")
@click.option("--threads", type=click.IntRange(1), help="Training threads; the result depends on their number. Default: 1.")
def build_models(out: Path, **changes: int | None) -> None:
    """Draw the scenes, train the detector, and write, quantise and score every model file.

    Example: python -m edgemeter.models.builder --output /tmp/models
    """
    recipe = replace(Recipe(), **{name: value for name, value in changes.items() if value is not None})
    with progress_bar() as report:
        models = build_shipped(out, recipe, report)
    print_shipped(models, wide_console())


if __name__ == "__main__":
    build_models()
