"""The command `edgemeter models profile`."""

from pathlib import Path

import click

from edgemeter.agent.base.cli.options import PATH, format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.cli.case_options import MODEL_OPTIONS, case_options, case_settings


@click.command("profile")
@click.argument("model", type=PATH)
@case_options(*MODEL_OPTIONS)
@click.option(
    "--queries",
    metavar="N",
    type=click.IntRange(5, 10_000),
    default=50,
    show_default=True,
    help="Inferences with and without the profiler.",
)
@click.option(
    "--by",
    type=click.Choice(["operator", "type"]),
    default="operator",
    show_default=True,
    help="One row for each operator, or for each type.",
)
@click.option(
    "--top",
    metavar="N",
    type=click.IntRange(1),
    default=15,
    show_default=True,
    help="Number of rows.",
)
@format_option()
def profile_command(
    model: Path, queries: int, by: str, top: int, *, form: Format, **settings: object
) -> None:
    """Show the slowest operators of a model.

    The profiler slows the model down, so its times are no latencies.

    Example: edgemeter models profile model.onnx --threads 4
    """
    from edgemeter.agent.measuring.suites import suite_of
    from edgemeter.agent.profile.report import show_profile
    from edgemeter.agent.profile.worker import ProfileJob, profile_in_child
    from edgemeter.agent.session import checks

    suite = suite_of(None, model, case_settings(settings))
    checks.check(suite)
    (case,) = suite.cases
    profile = profile_in_child(ProfileJob(case=case, queries=queries, by_type=by == "type"))
    if not print_data(form, profile, rows="operators"):
        show_profile(profile, top, console_for(form))
