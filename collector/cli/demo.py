"""The command `edgemeter demo`."""

import time
from pathlib import Path

import click

from edgemeter.agent.base.options import PATH, format_option, quiet_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data


@click.command(short_help="Measure, deliver, compare and report on this machine.")
@click.option("--html", type=PATH, default=Path("report.html"), help="File to write the report to. Default: report.html.")
@click.option("--home", type=PATH, help="Folder for the demo's ledger. Default: in $EDGEMETER_HOME.")
@click.option(
    "--influx",
    metavar="URL",
    help="Also write every run to this InfluxDB 2: http://HOST:8086[?org=ORG&bucket=BUCKET] (token: EDGEMETER_INFLUX_TOKEN).",
)
@click.option("--influx-token-file", type=PATH, help="File with the token.")
@quiet_option
@format_option("Print the comparison as JSON.")
def demo(html: Path, home: Path | None, influx: str | None, influx_token_file: Path | None, *, form: Format | None) -> None:
    """Measure the shipped models on every installed runtime, deliver the results by MQTT, compare them and write a report.

    Example: edgemeter demo --html report.html
    """
    from edgemeter.collector.demo.plan import begin_doctor

    # The rest is imported beside the doctor, and nothing of it while queries are timed.
    with begin_doctor() as doctor:
        from edgemeter.agent.base.config import home as default_home
        from edgemeter.collector.compare import columns
        from edgemeter.collector.compare import comparison as compare
        from edgemeter.collector.demo import demo as whole_way
        from edgemeter.collector.index.sources import source_of
        from edgemeter.collector.influx.influx_config import parse_influx
        from edgemeter.collector.ledgers.place import open_ledger
        from edgemeter.collector.runs.store import open_store
        from edgemeter.collector.show.compare_table import show_comparison
        from edgemeter.collector.web.one_file import FileChoice, write_file_of

        sink = parse_influx(influx, token_file=influx_token_file) if influx else None
        page = html.with_name(f"{html.stem}-fleet.html")
        with whole_way.FleetPage() as fleet_page:
            folder = home or default_home() / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
            ledger = whole_way.run_demo(folder, sink, note, doctor, fleet_page)
            # Nothing is measured any more: the two files are written beside each other.
            fleet_page.begin(ledger, page)
            store = open_store(str(ledger))
            comparison = compare.compare(store.contents(), "reference")
            write_file_of(source_of(store), html, FileChoice(baseline="reference"))
            fleet_page.wait()
    if not print_data(form, columns.to_json(comparison), rows="rows"):
        show_comparison(comparison, console_for(form))
    with open_ledger(ledger, "read") as opened:
        records = opened.last_row()
    where = f" and in InfluxDB at {sink}" if sink else ""
    note(f"\n{records} records are delivered and stored in {ledger}{where}")
    note(f"the report: {html.resolve()}")
    note(f"the page, with a simulated fleet of 40 boards next to these runs: {page.resolve()}")
    note("next: edgemeter run YOUR.onnx --images DIR --annotations COCO.json; edgemeter doctor; edgemeter models list")
