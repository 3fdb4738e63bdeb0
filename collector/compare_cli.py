"""The command `edgemeter compare`."""

from pathlib import Path

import click

from edgemeter.collector.compare import columns
from edgemeter.collector.compare import comparison as comparing
from edgemeter.collector.compare.comparison import Comparison


@click.command(short_help="Compare devices with a reference, like with like.")
@click.option(
    "--reference", required=True, metavar="DEVICE|ROLE", help="What the others are compared with: a device, or a role (reference)."
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    envvar="EDGEMETER_STORE",
    help="A ledger, or what `edgemeter run --json` printed; several are read as one. Default: the ledger below $EDGEMETER_HOME.",
)
@click.option("--json", "form", flag_value="json", help="Print rows and what was left out as JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print the rows as CSV, the same columns as in JSON.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Also write a report: one page that needs nothing else.")
def compare(reference: str, stores: tuple[str, ...], form: str | None, html: Path | None) -> None:
    """Compare every device with a reference: same model, task, data, scenario and input size, or left out with the reason.

    Example: edgemeter compare --reference server-1 --html report.html
    """
    from edgemeter.agent.config import home
    from edgemeter.collector.compare.store import open_store

    where = stores or (str(home() / "ledger.sqlite"),)
    found = comparing.compare(open_store(*where).contents(with_samples=html is not None), reference)
    if html is not None:
        _write_report(found, html, f"edgemeter compare --reference {reference} " + " ".join(f"--store {Path(one).name}" for one in where))
    if form == "json":
        click.echo(as_json(found))
    elif form == "csv":
        click.echo(columns.to_csv(found.rows), nl=False)
    else:
        _show(found)


def as_json(comparison: Comparison) -> str:
    """Return `{"rows": [...], "left_out": [...]}` as text."""
    return columns.to_json(comparison).decode()


def _write_report(comparison: Comparison, path: Path, asked: str) -> None:
    from edgemeter.collector.show import report

    report.write(comparison, path, asked)
    click.echo(f"the report: {path.resolve()}", err=True)


def _show(comparison: Comparison) -> None:
    from rich.console import Console

    from edgemeter.collector.show.compare_table import show

    console = Console()
    # Nobody reads a pipe at 80 columns: what goes on to a file or another program is not cut.
    show(comparison, console if console.is_terminal else Console(width=400))
