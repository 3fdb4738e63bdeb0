"""`edgemeter collector`: receive, keep and pass on."""

import dataclasses
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from edgemeter.agent.broker_options import broker_files
from edgemeter.agent.delivery import broker_address, log_limit
from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.credentials import TlsFiles
from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.finite_range import FiniteRange
from edgemeter.collector.changes_cli import changes
from edgemeter.collector.deploy_cli import deploy_files
from edgemeter.collector.devices_cli import devices
from edgemeter.collector.influx_cli import init_influx
from edgemeter.collector.keep import influx_config
from edgemeter.collector.ledger_option import ledger_option, ledger_path
from edgemeter.collector.load_cli import load
from edgemeter.collector.quarantine_cli import quarantine
from edgemeter.collector.upkeep_cli import backup, restore, stats, vacuum
from edgemeter.collector.web_cli import web

LOOK_S = 0.5


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def collector() -> None:
    """Receive, keep and pass on the results of a fleet.

    Example: edgemeter collector up --broker broker.example
    """


@collector.command(short_help="Receive results until stopped.")
@click.option("--broker", envvar="EDGEMETER_BROKER", help="HOST[:PORT], mqtt://..., mqtts://... Default: a broker in this process.")
@broker_files
@click.option(
    "--port", default=1883, show_default=True, type=click.IntRange(0, 65535), help="Of the broker in this process; 0: a free one."
)
@ledger_option
@click.option(
    "--influx", envvar="EDGEMETER_INFLUX", help="Drain to this InfluxDB: http://HOST:8086[?org=ORG&bucket=BUCKET], 1.x: ?db=NAME."
)
@click.option("--influx-org", help="Organisation. Default: the only one that the token sees.")
@click.option("--influx-bucket", help=f"Bucket, made when absent. Default: {influx_config.DEFAULT_BUCKET}.")
@click.option("--influx-token-file", type=click.Path(path_type=Path), help="Or set EDGEMETER_INFLUX_TOKEN.")
@click.option(
    "--influx-fields",
    type=click.Choice(["all", "figures"]),
    default="all",
    help="all: whole records, which compare reads back; figures: some 20 numbers a run, at a fraction of the load. Default: all.",
)
@click.option(
    "--influx-also",
    type=click.Choice(["latency_histogram", "power_trace"]),
    multiple=True,
    help="Write this measurement of the raw samples too.",
)
@click.option("--group", envvar="EDGEMETER_GROUP", help="Share what comes with the collectors of this name (MQTT 5 or mosquitto).")
@click.option("--metrics", envvar="EDGEMETER_METRICS", help="Answer /metrics and /healthz at [HOST:]PORT. Default host: 127.0.0.1.")
@click.option("--keep-days", type=FiniteRange(0, min_open=True), help="Forget records after so many days. Default: never.")
@click.option("--keep-samples-days", type=FiniteRange(0, min_open=True), help="Forget raw samples sooner than records.")
@click.option("--keep-mb", type=click.IntRange(1), help="Forget the oldest, raw samples first, when the ledger holds more MB.")
def up(
    *,
    broker: str | None,
    broker_user_file: Path | None,
    broker_password_file: Path | None,
    broker_ca_file: Path | None,
    broker_certificate_file: Path | None,
    broker_key_file: Path | None,
    port: int,
    ledger: Path | None,
    influx: str | None,
    influx_org: str | None,
    influx_bucket: str | None,
    influx_token_file: Path | None,
    influx_fields: influx_config.Extent,
    influx_also: tuple[influx_config.Extra, ...],
    group: str | None,
    metrics: str | None,
    keep_days: float | None,
    keep_samples_days: float | None,
    keep_mb: int | None,
) -> None:
    """Receive results until Ctrl-C or SIGTERM, keep them in the ledger, and drain it to InfluxDB when one is given.

    Example: edgemeter collector up --broker broker.example --influx http://influx.example:8086
    """
    from edgemeter.collector.digest import keeper
    from edgemeter.collector.keep.retention import Retention
    from edgemeter.collector.receive import monitor
    from edgemeter.collector.receive.service import Collector

    if group and not broker:
        message = "--group shares what comes to one broker: name it with --broker; the one in this process cannot share"
        raise click.UsageError(message)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    log_limit.apply()
    path = ledger_path(ledger)
    answering_at = monitor.parse(metrics) if metrics else None
    retention = Retention(keep_days, keep_samples_days, keep_mb * 1_000_000 if keep_mb else None)
    config = None
    if influx:
        config = influx_config.parse(influx, org=influx_org, bucket=influx_bucket, token_file=influx_token_file)
        config = dataclasses.replace(config, extent=influx_fields, also=frozenset(influx_also))
    tls = TlsFiles(broker_ca_file, broker_certificate_file, broker_key_file)
    given = broker_address.parse(broker, user_file=broker_user_file, password_file=broker_password_file, tls=tls) if broker else None
    with _until_told() as told, _broker(given, port) as address, keeper.running(path):
        service = Collector(address, path, config, group=group, retention=retention)
        watching = monitor.Monitor(service, *answering_at) if answering_at else None
        try:
            service.start()
            drained = f", draining to {config}" if config else ""
            if watching is not None:
                watching.start()
                drained += f", /metrics at {watching.host}:{watching.port}"
            click.echo(f"receiving from {address}, keeping in {path}{drained}; Ctrl-C ends it", err=True)
            while not told.wait(LOOK_S):
                if not service.is_alive():
                    message = (
                        f"a part of the collector has stopped; what is committed is safe in {str(path)!r}: see the log above, start again"
                    )
                    raise UnavailableError(message)
        finally:
            if watching is not None:
                watching.stop()
            service.stop()
        counts = service.counts
        click.echo(f"kept {counts.inserted} new records, {counts.duplicates} came again, {counts.quarantined} quarantined", err=True)


collector.add_command(web)
collector.add_command(devices)
collector.add_command(quarantine)
collector.add_command(changes)
for upkeep in (stats, vacuum, backup, restore):
    collector.add_command(upkeep)
collector.add_command(load)
collector.add_command(init_influx)
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
def _broker(given: BrokerAddress | None, port: int) -> Iterator[BrokerAddress]:
    if given is not None:
        yield given
        return
    from edgemeter.collector.receive.embedded_broker import EmbeddedBroker

    embedded = EmbeddedBroker(port)
    try:
        yield embedded.start()
    finally:
        embedded.stop()
