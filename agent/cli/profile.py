"""The command `edgemeter models profile`."""

from pathlib import Path

import click

from edgemeter.agent.base.options import PATH, format_option, model_options, quiet_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data


@click.command()
@click.option("-m", "--model", required=True, type=PATH, help="Model file (.tflite, .onnx, .pt, .pt2).")
@model_options()
@click.option("--queries", type=click.IntRange(5, 10_000), default=50, show_default=True, help="Inferences with and without the profiler.")
@click.option("--by", type=click.Choice(["operator", "type"]), default="operator", show_default=True, help="What a row shows.")
@click.option("--top", type=click.IntRange(1), default=15, show_default=True, help="Number of rows.")
@click.option("--trace", type=PATH, help="Write a trace for chrome://tracing or ui.perfetto.dev.")
@quiet_option
@format_option("Print the whole profile as JSON.")
def profile(model: Path, queries: int, by: str, top: int, trace: Path | None, *, form: Format | None, **settings: object) -> None:
    """Show the slowest operators of a model, as its runtime's own profiler reports them.

    The profiler slows the model down: do not take its times for latencies.

    Example: edgemeter models profile --model model.onnx --threads 4 --trace trace.json
    """
    from edgemeter.agent.cli.run_session import suite_of
    from edgemeter.agent.profile import profiler
    from edgemeter.agent.profile.profiler import ProfileJob, profile_in_child
    from edgemeter.agent.profile.report import show_profile, summarise, write_trace
    from edgemeter.agent.session import session

    suite = suite_of(None, model, settings)
    session.check(suite)
    (case,) = suite.cases
    profiler.create(case.runtime)
    recorded = profile_in_child(ProfileJob(case=case, queries=queries))
    found = summarise(case.runtime, recorded)
    if trace:
        write_trace(trace, recorded)
        note(f"the trace: {trace.resolve()}")
    if not print_data(form, found, rows="types" if by == "type" else "operators"):
        show_profile(found, by_type=by == "type", top=top, console=console_for(form))
