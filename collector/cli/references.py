"""The command `edgemeter references`, for published figures and the datacenter.

Figures are judged by three laws and shown next to own runs.
"""

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.base.cli.command_group import DefaultGroup
from edgemeter.agent.base.cli.notes import warn
from edgemeter.agent.base.cli.options import PATH, format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.collector.cli.datacenter import datacenter
from edgemeter.collector.cli.stores import opened_book, stores_option
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published import laws, listing
from edgemeter.collector.published.own_runs import own_runs
from edgemeter.collector.published.readers import ReadRows, default_folder, parse_claim, read
from edgemeter.collector.published.row import NOT_STATED, PublishedRow


@click.group(cls=DefaultGroup, context_settings={"help_option_names": ["-h", "--help"]})
def references() -> None:
    """Judge published figures; compare a device with a datacenter.

    Example: edgemeter references judge --model resnet
    """


references.add_command(datacenter)


@references.command(short_help="Judge published figures, or a claim.")
@click.argument("file", required=False, type=PATH)
@click.option(
    "--claim", metavar="TEXT", help="A claim instead of a FILE: MODEL on DEVICE: NUMBER UNIT."
)
@click.option(
    "--fact",
    "facts",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Field that the source lacks: device, precision, batch, version, address, ... Repeatable.",
)
@click.option("-m", "--model", default="", help="Part of the model name.")
@click.option("--device", default="", help="Part of the device name.")
@stores_option("Your own runs to compare with. Default: the ledger in $EDGEMETER_HOME.")
@format_option("each figure with value, limit and unit of every check")
def judge(
    *,
    file: Path | None,
    claim: str | None,
    facts: tuple[str, ...],
    model: str,
    device: str,
    stores: tuple[str, ...],
    form: Format,
) -> None:
    """Judge published figures: impossible, unclear or plausible, and why.

    FILE is TOML with a [[case]] for each measurement, or CSV whose headings are the names of
    fields. Without FILE, the shipped figures and the TOML files in $EDGEMETER_HOME/references are
    judged. Each figure is checked against the memory, the compute units and the supply of its
    board, and shown next to your own runs. None enters a statistic.

    Example: edgemeter references judge --claim "Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 20
    tokens/s"
    """
    if file and claim is not None:
        raise click.UsageError("give a FILE or --claim, not both")
    if facts and file is None and claim is None:
        raise click.UsageError("--fact describes a FILE or a claim: give one, or omit it")
    if file:
        content = read(file, _facts(file, facts))
    else:
        content = ReadRows(
            [parse_claim(claim, _facts(None, facts))]
            if claim is not None
            else default_folder().rows()
        )
    for words in content.left_out:
        click.echo(f"left out: {words}", err=True)
    rows = [
        row
        for row in content.rows
        if model.casefold() in row.model.casefold() and device.casefold() in row.device.casefold()
    ]
    judged, cases = laws.judge(rows), _own_cases(stores)
    runs_by_key = {row.key: own_runs(row, cases) for row in rows}
    if print_data(form, listing.document(judged, runs_by_key, content.left_out), "rows"):
        return
    if rows:
        listing.show(judged, runs_by_key, console_for(form))
    else:
        click.echo(
            "no published figure matches: list all with `edgemeter references judge`", err=True
        )


def _facts(path: Path | None, texts: Sequence[str]) -> dict[str, Any]:
    """Return the facts that hold for a whole file or a claim.

    They are the given ones, and those that the file shows about its source.
    """
    pairs = [text.partition("=") for text in texts]
    fields = PublishedRow.__struct_fields__
    if wrong := next(
        (
            text
            for text, (name, equals, _) in zip(texts, pairs, strict=True)
            if not equals or name not in fields
        ),
        None,
    ):
        raise click.UsageError(
            f"--fact {wrong!r} is not FIELD=VALUE: the fields are {', '.join(fields)}"
        )
    of_file = {"source": path.name, "address": path.resolve().as_uri()} if path else {}
    return {
        "version": NOT_STATED,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        **of_file,
        **{name: value for name, _, value in pairs},
    }


def _own_cases(stores: tuple[str, ...]) -> Sequence[CaseSummary]:
    """Return the cases of own runs.

    Without a ledger there are none, and there is a note if the default ledger has none.
    """
    if not stores and not default_path().exists():
        return []
    try:
        return opened_book(stores).summaries("current")
    except UnavailableError as error:
        if stores:
            raise
        warn(f"edgemeter: judged without own runs: {error}")
        return []
