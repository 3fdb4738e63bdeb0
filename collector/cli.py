"""`edgemeter collector`: receive, keep and pass on."""

import json
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import click

from edgemeter.agent.config import home
from edgemeter.agent.delivery import broker_address
from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.errors import UnavailableError
from edgemeter.collector.deploy_cli import deploy_files
from edgemeter.collector.keep import influx_config
from edgemeter.collector.keep.quarantine import Quarantined
from edgemeter.collector.load_cli import load

LOOK_S = 0.5

_ledger_option = click.option(
    "--ledger",
    envvar="EDGEMETER_LEDGER",
    type=click.Path(path_type=Path, dir_okay=True),
    help="The ledger's file. Default: ledger.sqlite in $EDGEMETER_HOME, else in $XDG_DATA_HOME/edgemeter.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def collector() -> None:
    """Receive, keep and pass on the results of a fleet.

    Example: edgemeter collector up --broker broker.example
    """


@collector.command(short_help="Receive results until stopped.")
@click.option("--broker", envvar="EDGEMETER_BROKER", help="HOST[:PORT], mqtt://..., mqtts://... Default: a broker in this process.")
@click.option("--broker-password-file", type=click.Path(path_type=Path), help="Or set EDGEMETER_MQTT_PASSWORD.")
@click.option(
    "--port", default=1883, show_default=True, type=click.IntRange(0, 65535), help="Of the broker in this process; 0: a free one."
)
@_ledger_option
@click.option("--influx", envvar="EDGEMETER_INFLUX", help="Drain to this InfluxDB: http://HOST:8086[?org=ORG&bucket=BUCKET].")
@click.option("--influx-org", help="Organisation. Default: the only one that the token sees.")
@click.option("--influx-bucket", help=f"Bucket, made when absent. Default: {influx_config.DEFAULT_BUCKET}.")
@click.option("--influx-token-file", type=click.Path(path_type=Path), help="Or set EDGEMETER_INFLUX_TOKEN.")
def up(
    broker: str | None,
    broker_password_file: Path | None,
    port: int,
    ledger: Path | None,
    influx: str | None,
    influx_org: str | None,
    influx_bucket: str | None,
    influx_token_file: Path | None,
) -> None:
    """Receive results until Ctrl-C or SIGTERM, keep them in the ledger, and drain it to InfluxDB when one is given.

    Example: edgemeter collector up --broker broker.example --influx http://influx.example:8086
    """
    from edgemeter.collector.receive.service import Collector

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    path = ledger or home() / "ledger.sqlite"
    config = None
    if influx:
        config = influx_config.parse(influx, org=influx_org, bucket=influx_bucket, token_file=influx_token_file)
    with _until_told() as told, _broker(broker, broker_password_file, port) as address:
        service = Collector(address, path, config)
        try:
            service.start()
            drained = f", draining to {config}" if config else ""
            click.echo(f"receiving from {address}, keeping in {path}{drained}; Ctrl-C ends it", err=True)
            while not told.wait(LOOK_S):
                if not service.is_alive():
                    message = (
                        f"the collector's writer has stopped; what is committed is safe in {str(path)!r}: see the log above, start again"
                    )
                    raise UnavailableError(message)
        finally:
            service.stop()
        counts = service.counts
        refused = counts.rejected + counts.collisions
        click.echo(f"kept {counts.inserted} new records, {counts.duplicates} came again, {refused} quarantined", err=True)


@collector.command(short_help="List what came in and was not taken.")
@_ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the payloads.")
def quarantine(ledger: Path | None, *, as_json: bool) -> None:
    """List what came in and was not taken, with the reason.

    Example: edgemeter collector quarantine --json
    """
    from edgemeter.collector.keep.ledger import Ledger

    with Ledger(ledger or home() / "ledger.sqlite", "read") as opened:
        entries = opened.quarantined()
    if as_json:
        click.echo(json.dumps({"quarantined": [_document(entry) for entry in entries]}, indent=2))
        return
    for entry in entries:
        times = f", {entry.times} times" if entry.times > 1 else ""
        click.echo(f"{entry.row}  {_stamp(entry.last_ns)}  {_printable(entry.topic)}  {entry.size_bytes} bytes{times}")
        click.echo(f"    {_printable(entry.reason)}")
    click.echo(f"{len(entries)} in quarantine", err=True)


collector.add_command(load)
collector.add_command(deploy_files)


@contextmanager
def _until_told() -> Iterator[threading.Event]:
    told = threading.Event()
    before = {number: signal.signal(number, lambda *_: told.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _broker(text: str | None, password_file: Path | None, port: int) -> Iterator[BrokerAddress]:
    if text:
        yield broker_address.parse(text, password_file=password_file)
        return
    from edgemeter.collector.receive.embedded_broker import EmbeddedBroker

    embedded = EmbeddedBroker(port)
    try:
        yield embedded.start()
    finally:
        embedded.stop()


def _document(entry: Quarantined) -> dict[str, object]:
    return {
        "row": entry.row,
        "topic": entry.topic,
        "reason": entry.reason,
        "times": entry.times,
        "first": _stamp(entry.received_ns),
        "last": _stamp(entry.last_ns),
        "size_bytes": entry.size_bytes,
        "payload": entry.payload.decode("utf-8", "backslashreplace"),
    }


def _stamp(taken_ns: int) -> str:
    return datetime.fromtimestamp(taken_ns // 1_000_000_000, timezone.utc).isoformat()


def _printable(text: str) -> str:
    # It came from outside: a terminal must not obey it.
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
