"""The commands `edgemeter config`.

They show the settings and where they come from, samples, the mistakes in a file, and the schema of
a record.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click
from click.core import ParameterSource

from edgemeter.agent.base.cli.command_group import CommandGroup, Sections
from edgemeter.agent.base.cli.options import PATH, format_option, names_and_config
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.config import file_in_use, places
from edgemeter.agent.base.console import Table
from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.terminal import safe_text
from edgemeter.agent.base.variables import VARIABLES, set_variables, unknown_variables
from edgemeter.agent.cli.session_options import power_option

COMMANDS: Sections = {
    "Settings": {
        "show": (
            "edgemeter.agent.cli.config:show",
            "Show every setting with its value and where it comes from.",
        ),
        "sample": ("edgemeter.agent.cli.config:sample", "Print a complete sample of a file."),
        "check": ("edgemeter.agent.cli.config:check", "Show all mistakes in a file at once."),
        "variables": (
            "edgemeter.agent.cli.config:variables",
            "List every environment variable that is read.",
        ),
    },
    "What results mean": {
        "rules": (
            "edgemeter.collector.cli.rules:rules",
            "List the rules of verdicts and comparisons.",
        ),
        "schema": (
            "edgemeter.agent.cli.config:schema",
            "Print the JSON Schema of a record or of the messages.",
        ),
    },
}
# The function that makes each document, by subject.
SCHEMAS = {
    "record": "edgemeter.agent.contract.record:json_schema",
    "messages": "edgemeter.agent.contract.message_schema:json_schema",
}


@click.group(cls=CommandGroup, sections=COMMANDS)
def config() -> None:
    """Show, sample and check settings; list rules; print schemas.

    Example: edgemeter config show
    """


@click.command()
@names_and_config
@click.option(
    "--broker",
    envvar="EDGEMETER_BROKER",
    help="HOST[:PORT], mqtt://... or mqtts://... Default: the configuration's.",
)
@power_option
@format_option(
    '{"settings": [{"key", "value", "source"}], "variables": {...}, "files": [{"path", "exists", '
    '"is_read"}]}'
)
@click.pass_context
def show(ctx: click.Context, /, config: Path | None, *, form: Format, **options: Any) -> None:
    """Show every setting with its value and source. The files that were looked for are listed too.

    Example: edgemeter config show --device pi5-lab
    """
    from edgemeter.agent.settings.files import settings

    set_options = {
        name: value
        for name, value in options.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    all_settings, variables = settings(config, set_options), set_variables()
    rows = [
        {"key": setting.key, "value": setting.value, "source": setting.source}
        for setting in all_settings
    ]
    read, looked_for = config or file_in_use(), [config] if config else places()
    files = [
        {"path": str(file), "exists": file.exists(), "is_read": file == read} for file in looked_for
    ]
    if not print_data(form, {"settings": rows, "variables": variables, "files": files}):
        sources = {setting.source for setting in all_settings}
        other_variables = [
            (name, value, "variable") for name, value in variables.items() if name not in sources
        ]
        _print_settings(
            [(setting.key, setting.value, setting.source) for setting in all_settings],
            other_variables,
            form,
        )
        for file in files:
            click.echo(
                f"{file['path']}: "
                f"{'read' if file['is_read'] else 'not read' if file['exists'] else 'absent'}",
                err=True,
            )
    if not any(file["exists"] for file in files):
        click.echo(
            f"no configuration: `edgemeter config sample > {looked_for[0]}` creates one", err=True
        )
    for name in unknown_variables():
        click.echo(
            f"{name} is set, but nothing reads it; `edgemeter config variables` "
            "lists the variables",
            err=True,
        )


@click.command()
@click.argument("kind", default="agent")
def sample(kind: str) -> None:
    """Print a complete sample of a file.

    Kinds: agent (the default), suite, camera, mlperf-tiny, detector-study, alerts and fleet. `##`
    explains, `#` is a commented default.

    Example: edgemeter config sample suite > suite.toml
    """
    from edgemeter.agent.settings import files

    click.echo(files.sample(kind), nl=False)


@click.command()
@click.argument("file", required=False, type=PATH, envvar="EDGEMETER_CONFIG")
@click.option(
    "--kind", help="agent, suite, alerts or fleet. Default: the one whose keys the file has."
)
@format_option('{"file", "kind", "mistakes": [{"section", "key", "what"}]}', "table", "json")
@click.pass_context
def check(ctx: click.Context, /, file: Path | None, kind: str | None, *, form: Format) -> None:
    """Show all mistakes in a file. Default: the configuration that is read.

    The exit status is 2 if there is a mistake.

    Example: edgemeter config check suite.toml
    """
    from edgemeter.agent.settings.files import FILES, check_file

    file = file or file_in_use()
    if file is None:
        click.echo(
            f"no configuration to check: neither {' nor '.join(map(str, places()))} exists, so "
            "the defaults hold",
            err=True,
        )
        return
    kind, mistakes = check_file(file, kind)
    rows = [
        {"section": mistake.section, "key": mistake.key, "what": mistake.what}
        for mistake in mistakes
    ]
    if not print_data(form, {"file": str(file), "kind": kind, "mistakes": rows}):
        for mistake in mistakes:
            click.echo(f"{file}: {mistake}")
        if not mistakes:
            click.echo(f"{file}: no mistakes ({FILES[kind].what})")
    ctx.exit(2 if mistakes else 0)


@click.command()
@format_option('{"NAME": {"meaning", "default", "read_by"}}')
def variables(*, form: Format) -> None:
    """List the environment variables. Options override variables, which override files.

    Example: edgemeter config variables
    """
    rows = {
        name: {"meaning": variable.meaning, "default": variable.default, "read_by": reader}
        for reader, group in VARIABLES.items()
        for name, variable in group.items()
    }
    if print_data(
        form, [{"name": name, **row} for name, row in rows.items()] if form == "csv" else rows
    ):
        return
    if _typeset(
        ("name", "meaning", "default", "read by"),
        [(name, *map(str, row.values())) for name, row in rows.items()],
        form,
    ):
        return
    for reader, group in VARIABLES.items():
        click.echo(f"{reader}:")
        for name, variable in group.items():
            click.echo(f"  {name:<32} {variable.meaning}. Default: {variable.default}.")


@click.command()
@click.argument("subject", type=click.Choice(sorted(SCHEMAS)), default="record")
def schema(*, subject: str) -> None:
    """Print the JSON Schema of a run record or of the MQTT messages.

    Example: edgemeter config schema messages > messages.schema.json
    """
    click.echo(json_document(resolve_name(SCHEMAS[subject])()))


def _print_settings(
    rows: list[tuple[str, Any, str]], other_variables: list[tuple[str, str, str]], form: Format
) -> None:
    """Print a table of full width, then the other variables that are set.

    A shortened value or path would be wrong.
    """
    texts = [
        (key, "-" if value in (None, []) else json.dumps(value, ensure_ascii=False), source)
        for key, value, source in rows
    ]
    widths = [max(len(row[column]) for row in texts) for column in (0, 1)]
    if _typeset(("key", "value", "source"), [*texts, *other_variables], form):
        return
    for key, value, source in texts:
        click.echo(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {source}")
    for name, value, _ in other_variables:
        click.echo(f"{name} = {value}")


def _typeset(headings: Sequence[str], rows: Sequence[Sequence[str]], form: Format) -> bool:
    """Print a table as Markdown, if that is the format, and return whether it is."""
    if form != "markdown":
        return False
    console, table = console_for(form), Table(*headings)
    for row in rows:
        table.add_row(*(safe_text(cell, console) for cell in row))
    console.print(table)
    return True
