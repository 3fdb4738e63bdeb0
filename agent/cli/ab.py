"""The command `edgemeter ab`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.options import PATH, json_option, model_options, names_and_config, save_option

if TYPE_CHECKING:
    from edgemeter.agent.session.ab import AbComparison, AbJudgement


@click.command()
@click.argument("a", type=PATH)
@click.argument("b", type=PATH)
@click.option("--runs", type=click.IntRange(2, 1000), default=10, show_default=True, help="Most runs of each; a clear result ends earlier.")
@click.option(
    "--matters",
    type=click.FloatRange(0, 100, min_open=True),
    default=3.0,
    show_default=True,
    help="Smallest relevant difference in percent.",
)
@model_options()
@click.option("--mode", type=click.Choice(["rapid", "quick", "normal", "full"]), help="Length of a run. Default: quick (10 s).")
@names_and_config
@save_option
@json_option("Print the comparison and its records as JSON.")
def ab(a: Path, b: Path, runs: int, matters: float, *, as_json: bool, **options: Any) -> None:
    """Compare two cases on this device: is B faster than A?

    A and B are model files, or suites (.toml) of one case each. They run alternately (ABBA ...), so that both see the same machine.

    Example: edgemeter ab model_fp32.tflite model_int8.tflite --threads 4
    """
    from edgemeter.agent.base import config
    from edgemeter.agent.base.file_lock import run_lock
    from edgemeter.agent.cli.run_session import session_progress, single_case
    from edgemeter.agent.ledger.own_runs import saving
    from edgemeter.agent.session.ab import compare_cases
    from edgemeter.agent.session.session import DeviceIdentity

    settings = config.read(options["config"])
    identity = DeviceIdentity(*config.names(options["device"], options["fleet"], settings))
    cases = [single_case(path, options) for path in (a, b)]

    def report(note: str) -> None:
        click.echo(note, err=True)

    with saving(settings, report, is_wanted=options["save"]) as keep:
        with run_lock(config.home(), "edgemeter ab", report), session_progress() as on_event:
            found = compare_cases(cases[0], cases[1], runs, identity, on_event, matters / 100, keep)
        if as_json:
            import msgspec

            click.echo(msgspec.json.encode(found))
        else:
            show(found)


def show(found: "AbComparison") -> None:
    """Print the two sides, the ratio and the verdict, and what does not count or is doubtful."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from edgemeter.agent.base.figures import plain_digits

    table = Table(box=SIMPLE_HEAD)
    for heading in ("", "case", "runs", "p50 ms", "95 % over runs"):
        table.add_column(heading, justify="left" if heading in ("", "case") else "right", overflow="fold")
    for name, side in (("A", found.a), ("B", found.b)):
        bounds = f"{plain_digits(side.low_ms)} .. {plain_digits(side.high_ms)}" if side.low_ms is not None else "-"
        table.add_row(name, side.label, str(len(side.p50_ms)), plain_digits(side.median_ms), bounds)
    console = Console()
    console.print(table)
    for line in (sentence(found.judgement), *_notes(found)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def sentence(judgement: "AbJudgement") -> str:
    """Return the judgement in words."""
    if judgement.ratio is None or judgement.low is None or judgement.high is None:
        return f"{judgement.state}: {judgement.pairs} pair of runs shows no spread; use --runs 10"
    figures = (
        f"B takes {judgement.ratio:.4f} times as long as A (95 % {judgement.low:.4f} .. {judgement.high:.4f}, {judgement.pairs} pairs)"
    )
    if judgement.state == "no difference that matters":
        return f"{judgement.state}: {figures}, less than {judgement.matters_ratio * 100:.3g} % either way"
    if judgement.state != "not enough runs":
        return f"B is {judgement.state}: {figures}"
    more = f"about {judgement.more_pairs} more pairs" if judgement.more_pairs else "not even a thousand pairs"
    return f"{judgement.state}: {figures}; with this spread {more} would settle it"


def _notes(found: "AbComparison") -> list[str]:
    return [*(f"left out: {one}" for one in found.left_out), *(f"suspect: {one}" for one in found.doubts)]
