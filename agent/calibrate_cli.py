"""The command group `edgemeter calibrate`: what measuring itself adds on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from edgemeter.agent.engine.observing.observer import Calibrated


@click.group()
def calibrate() -> None:
    """Measure what measuring itself adds on this machine.

    Example: edgemeter calibrate observer --model model.tflite
    """


@calibrate.command(short_help="What power and condition sampling adds to latency here.")
@click.argument("suite", required=False, type=click.Path(path_type=Path))
@click.option("--model", type=click.Path(path_type=Path), help="A model file instead of a suite of one case.")
@click.option("--images", type=click.Path(path_type=Path), help="Folder of photographs. Without it the model is timed on noise.")
@click.option("--annotations", type=click.Path(path_type=Path), help="Ground truth of the photographs, where the model's task needs it.")
@click.option("--runtime", help="litert, onnx, pytorch, replay. Default: by the file's suffix.")
@click.option("--backend", help="The runtime's own: xnnpack, builtin; cpu, cuda, ...")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the runtime. Default: 1.")
@click.option("--mode", type=click.Choice(["rapid", "quick", "normal", "full"]), help="How long a run is. Default: quick (10 s).")
@click.option("--pairs", type=click.IntRange(5, 1000), default=10, show_default=True, help="Pairs of runs, with sampling and without.")
@click.option("--power", envvar="EDGEMETER_POWER", help="Power sensors NAME[,NAME], or none. Default: the widest that is here.")
@click.option("--device", envvar="EDGEMETER_DEVICE", help="What this device is called. Default: its host name.")
@click.option("--fleet", envvar="EDGEMETER_FLEET", help="The fleet it belongs to. Default: default.")
@click.option("--config", type=click.Path(path_type=Path), envvar="EDGEMETER_CONFIG", help="The agent's TOML configuration.")
@click.option("--json", "as_json", is_flag=True, help="Print the effect and the p50 of every pair as JSON.")
def observer(suite: Path | None, model: Path | None, pairs: int, *, as_json: bool, **options: Any) -> None:
    """Measure a case with and without power and condition sampling, keep the difference, and let later records carry it.

    Example: edgemeter calibrate observer --model model.tflite --threads 4
    """
    if (suite is None) == (model is None):
        message = "give either a SUITE file of one case or --model FILE"
        raise click.UsageError(message)
    from edgemeter.agent import calibrate_command

    found, kept_in = calibrate_command.observer(suite, model, pairs, options)
    if as_json:
        click.echo(calibrate_command.document(found))
    else:
        _show(found)
    click.echo(f"kept in {kept_in}: later records of this setting carry it", err=True)


def _show(found: "Calibrated") -> None:
    from edgemeter.agent.engine.verdict.condition_rules import OBSERVER_RATIO

    effect = found.effect
    click.echo(f"{effect.case}, p50 {effect.p50_ms:.4g} ms without sampling, {effect.pairs} pairs; sampled: ", nl=False)
    click.echo(", ".join(("conditions", *effect.sensors)))
    click.echo(f"sampling changes p50 by {effect.effect_ratio:+.2%} (95 % bounds {effect.low_ratio:+.2%} to {effect.high_ratio:+.2%})")
    if effect.effect_ratio > OBSERVER_RATIO and effect.low_ratio > 0:
        click.echo(f"that is above {OBSERVER_RATIO:.0%}: later runs of this setting will be `suspect` (observer-effect)")
    elif effect.high_ratio > OBSERVER_RATIO:
        click.echo(f"whether it is below {OBSERVER_RATIO:.0%} is not known yet: measure more pairs (--pairs), on a quiet machine")
    else:
        click.echo(f"that is below {OBSERVER_RATIO:.0%}")
    if found.doubts:
        click.echo(f"suspect runs: {'; '.join(found.doubts)}: calibrate again when the machine is quiet", err=True)
