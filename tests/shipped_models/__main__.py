"""Makes the shipped models again from nothing: `python -m tests.shipped_models --out FOLDER` (`make models`)."""

from pathlib import Path

import click

from edgemeter.agent.base.progress import progress_bar
from edgemeter.models.cli.tables import print_shipped
from tests.shipped_models import build


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("edgemeter-models"), show_default=True, help="Output folder.")
@click.option("--steps", type=click.IntRange(1), help="Training steps. Default: those of the shipped models.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the scenes and of the first network. Default: that of the shipped models.")
@click.option("--threads", type=click.IntRange(1), help="Training threads; the result depends on their number. Default: 1.")
def build_models(out: Path, **changes: int | None) -> None:
    """Draw the scenes, train the detector, and write, quantise and score every model file.

    Example: python -m tests.shipped_models --out /tmp/models
    """
    recipe = build.Recipe(**{name: value for name, value in changes.items() if value is not None})
    with progress_bar() as report:
        made = build.build_shipped(out, recipe, report)
    print_shipped(made)


if __name__ == "__main__":
    build_models()
