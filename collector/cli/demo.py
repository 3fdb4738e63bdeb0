"""The command `edgemeter collector demo`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import structs

from edgemeter.agent.base.cli.notes import note, warn
from edgemeter.agent.base.cli.options import PATH, format_option, quiet_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.durable_file import check_writable
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.terminal import print_text
from edgemeter.agent.contract.figures import LATENCY

if TYPE_CHECKING:
    from edgemeter.collector.compare.comparison import Comparison


@click.command(short_help="Measure, deliver, compare and report on this machine.")
@click.option(
    "-o",
    "--output",
    "html",
    type=PATH,
    metavar="FILE",
    help="File for the report (edgemeter[report]). Default: report.html.",
)
@click.option(
    "--home", type=PATH, help="Folder for the demo's ledger. Default: $EDGEMETER_HOME/demo."
)
@quiet_option
@format_option()
def demo(html: Path | None, home: Path | None, *, form: Format) -> None:
    """Measure the shipped models, deliver, compare and report.

    Every installed runtime is used, and the results go by MQTT.

    Run it again to measure more runs of each model; the earlier ones are kept.

    Without edgemeter[collector] the results go straight into the ledger; without edgemeter[report]
    there is only the table.

    Example: edgemeter collector demo --output report.html
    """
    from edgemeter.agent.base.config import home as default_home
    from edgemeter.collector.charts import vega
    from edgemeter.collector.compare import columns
    from edgemeter.collector.compare import comparison as compare
    from edgemeter.collector.compare.case_book import book_of
    from edgemeter.collector.demo import demo as whole_way
    from edgemeter.collector.ledgers.place import open_ledger
    from edgemeter.collector.receive import embedded_broker
    from edgemeter.collector.runs.store import LedgerStore
    from edgemeter.collector.show.compare_table import show_comparison
    from edgemeter.collector.web.one_file import FileChoice, write_file_of

    delivers, has_page = (
        _is_installed(embedded_broker.check_installed),
        _is_installed(vega.check_installed),
    )
    html = html or Path("report.html")
    page = html.with_name(f"{html.stem}-fleet.html")
    # Fail now, not after two minutes of measuring.
    for file in (html, page) if has_page else ():
        check_writable(file)
    ledger = whole_way.run_demo(home or default_home() / "demo", note, delivers=delivers)
    store = LedgerStore(ledger)
    if has_page:
        note("writing the pages ...")
        write_file_of(store, html, FileChoice(reference="reference"))
        whole_way.write_demo_page(ledger, page)
    comparison = compare.compare(book_of(store), "reference")
    if not print_data(form, columns.to_json(comparison), rows="rows"):
        show_comparison(comparison, console_for(form))
        for line in control_lines(comparison):
            print_text(console_for(form), line)
    with open_ledger(ledger, "read") as opened:
        records = opened.last_row()
    note(f"\n{records} records are {'delivered and ' * delivers}stored in {ledger}")
    if has_page:
        note(f"the report: {html.resolve()}")
        note(f"the page, with a simulated fleet of 40 boards next to these runs: {page.resolve()}")
    note(
        "next: edgemeter run YOUR.onnx --data DIR --annotations COCO.json; edgemeter doctor; "
        "edgemeter models list"
    )


def control_lines(comparison: "Comparison") -> Iterator[str]:
    """Yield a sentence for each case that was measured twice, once as the reference.

    It says the difference of the two, which has no cause.
    """
    from edgemeter.collector.show.words import change_with_interval

    references = {
        id(row.case): number for number, row in enumerate(comparison.rows, 1) if row.is_reference
    }
    for number, row in enumerate(comparison.rows, 1):
        is_control = (
            not row.is_reference
            and structs.replace(row.case.key, role=row.reference.key.role) == row.reference.key
        )
        if not is_control or (change := row.decisions.get(LATENCY)) is None:
            continue
        yield (
            f"Row {number} repeats row {references[id(row.reference)]} as a control: latency "
            f"{change_with_interval(LATENCY, change)}. "
            "Smaller differences between other rows may be noise, too."
        )


def _is_installed(check: Callable[[], None]) -> bool:
    try:
        check()
    except UnavailableError as error:
        warn(f"edgemeter: left out: {error}")
        return False
    return True
