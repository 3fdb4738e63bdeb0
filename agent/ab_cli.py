"""The command `edgemeter ab`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from edgemeter.agent.engine.ab import Comparison
    from edgemeter.agent.engine.ab_verdict import Judgement
    from edgemeter.agent.engine.suites import Case


@click.command(short_help="Measure two cases in turn here: is B faster than A?")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--runs", type=click.IntRange(2, 1000), default=10, show_default=True, help="Runs of each, at most: a clear answer ends it.")
@click.option("--matters", type=click.FloatRange(0, 100, min_open=True), default=3.0, show_default=True, help="Percent that matter.")
@click.option("--images", type=click.Path(path_type=Path), help="Folder of photographs, for both. Without it they are timed on noise.")
@click.option("--annotations", type=click.Path(path_type=Path), help="Ground truth of the photographs, where a model's task needs it.")
@click.option("--runtime", help="litert, onnx, pytorch, replay; for both. Default: by the file's suffix.")
@click.option("--backend", help="The runtime's own, for both: xnnpack, builtin; cpu, cuda, ...")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the runtime, for both. Default: 1.")
@click.option("--mode", type=click.Choice(["rapid", "quick", "normal", "full"]), help="How long a run is. Default: quick (10 s).")
@click.option("--device", envvar="EDGEMETER_DEVICE", help="What this device is called. Default: its host name.")
@click.option("--fleet", envvar="EDGEMETER_FLEET", help="The fleet it belongs to. Default: default.")
@click.option("--config", type=click.Path(path_type=Path), envvar="EDGEMETER_CONFIG", help="The agent's TOML configuration.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison and its records as JSON.")
def ab(a: Path, b: Path, runs: int, matters: float, *, as_json: bool, **options: Any) -> None:
    """Measure two cases in turn here (ABBA ...) and say whether B is faster than A: model files, or suites (.toml) of one case each.

    Example: edgemeter ab model_fp32.tflite model_int8.tflite --threads 4
    """
    from contextlib import ExitStack

    from edgemeter.agent import config, progress
    from edgemeter.agent.engine import ab as comparing
    from edgemeter.agent.engine.session import Identity
    from edgemeter.agent.jobs import run_lock

    settings = config.read(options["config"])
    who = Identity(*config.names(options["device"], options["fleet"], settings))
    cases = _case(a, options), _case(b, options)
    with ExitStack() as stack:
        stack.enter_context(run_lock.held(config.home(), "edgemeter ab", lambda note: click.echo(note, err=True)))
        tell = stack.enter_context(progress.Bars()) if progress.on_terminal() else _silence
        found = comparing.compare(*cases, runs, who, tell, matters / 100)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found))
    else:
        show(found)


def _silence(_: object) -> None:
    pass


def _case(path: Path, options: dict[str, Any]) -> "Case":
    from edgemeter.agent import run_command
    from edgemeter.agent.errors import ConfigError

    said = {**dict.fromkeys(run_command.CASE_OPTIONS), **options}
    is_suite = path.suffix.lower() == ".toml"
    suite = run_command.suite_of(path if is_suite else None, None if is_suite else path, said)
    if len(suite.cases) != 1:
        message = f"suite {str(path)!r} holds {len(suite.cases)} cases ({', '.join(one.label for one in suite.cases)}): leave one"
        raise ConfigError(message)
    return suite.cases[0]


def show(found: "Comparison") -> None:
    """Print the two sides, the ratio and the verdict, and what does not count or is doubtful."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from edgemeter.agent.table import significant

    table = Table(box=SIMPLE_HEAD)
    for heading in ("", "case", "runs", "p50 ms", "95 % over runs"):
        table.add_column(heading, justify="left" if heading in ("", "case") else "right", overflow="fold")
    for name, side in (("A", found.a), ("B", found.b)):
        bounds = f"{significant(side.low_ms)} .. {significant(side.high_ms)}" if side.low_ms is not None else "-"
        table.add_row(name, side.label, str(len(side.p50_ms)), significant(side.median_ms), bounds)
    console = Console()
    console.print(table)
    for line in (sentence(found.judgement), *_notes(found)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def sentence(judgement: "Judgement") -> str:
    """Return the judgement in words."""
    if judgement.ratio is None or judgement.low is None or judgement.high is None:
        return f"{judgement.state}: {judgement.pairs} pair of runs shows no spread; give --runs 10"
    figures = (
        f"B takes {judgement.ratio:.4f} times as long as A (95 % {judgement.low:.4f} .. {judgement.high:.4f}, {judgement.pairs} pairs)"
    )
    if judgement.state == "no difference that matters":
        return f"{judgement.state}: {figures}, less than {judgement.matters_ratio * 100:.3g} % either way"
    if judgement.state != "not enough runs":
        return f"B is {judgement.state}: {figures}"
    more = f"about {judgement.more_pairs} more pairs" if judgement.more_pairs else "not even a thousand pairs"
    return f"{judgement.state}: {figures}; with this spread {more} would settle it"


def _notes(found: "Comparison") -> list[str]:
    return [*(f"left out: {one}" for one in found.left_out), *(f"suspect: {one}" for one in found.doubts)]
