"""The command `edgemeter models profile`."""

from pathlib import Path

import click

from edgemeter.agent.base.options import PATH, format_option, quiet_option, save_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.cli.case_options import MODEL_OPTIONS, case_options, power_option


@click.command()
@click.option("-m", "--model", type=PATH, help="Model file (.tflite, .onnx, .pt, .pt2, .pte).")
@case_options(*MODEL_OPTIONS)
@click.option("--queries", type=click.IntRange(5, 10_000), default=50, show_default=True, help="Inferences with and without the profiler.")
@click.option("--by", type=click.Choice(["operator", "type"]), default="operator", show_default=True, help="What a row shows.")
@click.option("--top", type=click.IntRange(1), default=15, show_default=True, help="Number of rows.")
@click.option(
    "--operators", is_flag=False, flag_value="slowest", type=click.Choice(["slowest", "standard", "deepbench"]),
    help="Time operators one by one, each as a model: the slowest --top of a .onnx, .tflite or .pt2 file, or a list.",
)  # fmt: skip
@click.option(
    "-o", "--output", "out", type=PATH,
    help="--operators: folder for these models and their suite, operators.toml. Default: they are not kept.",
)  # fmt: skip
@click.option("--trace", type=PATH, help="Write a trace for chrome://tracing or ui.perfetto.dev.")
@power_option
@save_option
@quiet_option
@format_option("Print the whole profile as JSON.")
def profile(
    model: Path | None,
    queries: int,
    by: str,
    top: int,
    operators: str | None,
    out: Path | None,
    trace: Path | None,
    power: str | None,
    *,
    save: bool,
    form: Format | None,
    **settings: object,
) -> None:
    """Show the slowest operators of a model, as its runtime's own profiler reports them; with --operators, time them one by one.

    The profiler slows the model down: do not take its times for latencies. What --operators times are runs like those of `edgemeter run`.

    Example: edgemeter models profile --model model.onnx --threads 4 --trace trace.json
    """
    if operators is not None:
        from edgemeter.agent.cli.operators import measure_operators

        measure_operators(
            model if operators == "slowest" else None, operators, settings, queries, top, out, {"power": power, "save": save}, form
        )
        return
    if model is None:
        raise click.UsageError("give the --model, or --operators with standard or deepbench")
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
    summary = summarise(recorded)
    if trace:
        write_trace(trace, recorded)
        note(f"the trace: {trace.resolve()}")
    if not print_data(form, summary, rows="types" if by == "type" else "operators"):
        show_profile(summary, by_type=by == "type", top=top, console=console_for(form))
