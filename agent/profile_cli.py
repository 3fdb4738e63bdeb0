"""The command `edgemeter profile`."""

from pathlib import Path

import click


@click.command(short_help="Show the slowest operators of a model, by its runtime's own profiler.")
@click.option("--model", required=True, type=click.Path(path_type=Path), help="A model file (.tflite, .onnx, .pt, .pt2).")
@click.option("--images", type=click.Path(path_type=Path), help="Folder of photographs. Without it the model runs on noise.")
@click.option("--runtime", help="litert, onnx, pytorch. Default: by the file's suffix.")
@click.option("--backend", help="The runtime's own: xnnpack, builtin; cpu, ...")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the runtime. Default: 1.")
@click.option("--queries", type=click.IntRange(5, 10_000), default=50, show_default=True, help="Inferences with and without the profiler.")
@click.option("--by", type=click.Choice(["operator", "type"]), default="operator", show_default=True, help="What a row is.")
@click.option("--top", type=click.IntRange(1), default=15, show_default=True, help="Rows to show.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write a trace that chrome://tracing and ui.perfetto.dev open.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole profile as JSON.")
def profile(model: Path, queries: int, by: str, top: int, trace: Path | None, *, as_json: bool, **settings: object) -> None:
    """Show the slowest operators of a model, by its runtime's own profiler. A profiler slows the model: its times are no latencies.

    Example: edgemeter profile --model model.onnx --threads 4 --trace trace.json
    """
    import msgspec

    from edgemeter.agent import run_command
    from edgemeter.agent.engine import session
    from edgemeter.agent.profile import child, chrome_trace, job, profiler, show, summary

    suite = run_command.suite_of(None, model, dict.fromkeys(run_command.CASE_OPTIONS) | settings)
    session.check(suite)
    (case,) = suite.cases
    profiler.create(case.runtime)
    recorded = child.profile(job.Job(case=case, queries=queries))
    found = summary.summarise(case.runtime, recorded)
    if trace:
        chrome_trace.write(trace, recorded)
        click.echo(f"the trace: {trace.resolve()}", err=True)
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        show.show(found, by_type=by == "type", top=top)
