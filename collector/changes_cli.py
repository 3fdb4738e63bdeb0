"""`edgemeter collector changes`: what changed below the devices, listed, and brought to InfluxDB for Grafana."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from edgemeter.agent.errors import ConfigError
from edgemeter.collector.ledger_option import ledger_option, ledger_path


@click.command(short_help="List what changed below the devices; mark it in Grafana.")
@ledger_option
@click.option("--influx", envvar="EDGEMETER_INFLUX", help="Also write them to this InfluxDB, where the dashboards show them as marks.")
@click.option("--influx-token-file", type=click.Path(path_type=Path), help="Or set EDGEMETER_INFLUX_TOKEN.")
@click.option("--json", "as_json", is_flag=True, help='Print {"changes": [...]}.')
def changes(ledger: Path | None, influx: str | None, influx_token_file: Path | None, *, as_json: bool) -> None:
    """List what changed below the devices (firmware, kernel, agent, runtime, ...), confirmed steps, and what people noted.

    Example: edgemeter collector changes --influx http://influx.example:8086
    """
    from edgemeter.collector import changes as changing
    from edgemeter.collector.keep import influx_config
    from edgemeter.collector.keep.ledger import Ledger
    from edgemeter.collector.keep.sink import open_sink
    from edgemeter.collector.noted_changes import noted
    from edgemeter.collector.show import figures

    path = ledger_path(ledger)
    with Ledger(path, "read") as opened:
        found = changing.changes(held.record for held in opened.records())
    found = sorted([*found, *noted(path)], key=lambda change: change.started_at_ns)
    if influx:
        sink = open_sink(influx_config.parse(influx, token_file=influx_token_file))
        try:
            refused = sink.write([changing.point(change) for change in found])
        finally:
            sink.close()
        if refused:
            message = f"InfluxDB does not take {len(refused)} of {len(found)} changes: {refused[0].reason}"
            raise ConfigError(message)
    if as_json:
        click.echo(json.dumps({"changes": [asdict(change) for change in found]}, indent=2))
        return
    for change in found:
        click.echo(f"{figures.stamp(change.started_at_ns)}  {figures.printable(f'{change.device}  {change.text}')}")
    click.echo(f"{figures.count(len(found), 'change')}" + (", written to InfluxDB" if influx else ""), err=True)
