"""The command `edgemeter demo`."""

from pathlib import Path

import click


@click.command(short_help="The whole way on this machine.")
@click.option("--html", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True, help="Where the report goes.")
@click.option("--home", type=click.Path(path_type=Path), help="Where the demo's ledger goes. Default: below $EDGEMETER_HOME.")
@click.option("--influx", metavar="URL", help="Also write every run to this InfluxDB 2 (token: EDGEMETER_INFLUX_TOKEN).")
@click.option("--influx-org", help="Organisation. Default: the only one that the token sees.")
@click.option("--influx-bucket", help="Bucket, made when absent. Default: edgemeter.")
@click.option("--influx-token-file", type=click.Path(path_type=Path), help="File that holds the token.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def demo(
    html: Path,
    home: Path | None,
    influx: str | None,
    influx_org: str | None,
    influx_bucket: str | None,
    influx_token_file: Path | None,
    *,
    as_json: bool,
) -> None:
    """Measure the shipped models on every runtime installed here, deliver the results by MQTT, compare them, write a report.

    Example: edgemeter demo --html report.html
    """
    from rich.console import Console

    from edgemeter.agent.config import home as default_home
    from edgemeter.collector import compare_cli
    from edgemeter.collector import demo as whole_way
    from edgemeter.collector.compare import comparison as compare
    from edgemeter.collector.compare.store import open_store
    from edgemeter.collector.keep.influx_config import parse
    from edgemeter.collector.show import report
    from edgemeter.collector.show.compare_table import show
    from edgemeter.collector.web import demo_page

    sink = parse(influx, org=influx_org, bucket=influx_bucket, token_file=influx_token_file) if influx else None
    delivered = whole_way.run(home or whole_way.new_folder(default_home()), sink, lambda line: click.echo(line, err=True))
    store = open_store(str(delivered.ledger))
    comparison = compare.compare(store.contents(with_samples=True), "reference")
    report.write(comparison, html, f"edgemeter compare --reference reference --store {delivered.ledger}")
    page = html.with_name(f"{html.stem}-fleet.html")
    demo_page.write(delivered.ledger, page)
    if as_json:
        click.echo(compare_cli.as_json(comparison))
    else:
        show(comparison, Console())
    where = f" and in InfluxDB at {sink}" if sink else ""
    click.echo(f"\n{delivered.records} records were delivered and are kept in {delivered.ledger}{where}", err=True)
    click.echo(f"the report: {html.resolve()}", err=True)
    click.echo(f"the page, with a simulated fleet of 40 boards beside these runs: {page.resolve()}", err=True)
    click.echo(
        "next: edgemeter run --model YOUR.onnx --images DIR --annotations COCO.json; edgemeter doctor; edgemeter models list", err=True
    )
