"""`edgemeter collector`: receive and store results; write deployment files; set up InfluxDB."""

import gc
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from edgemeter.agent.base import log_limit
from edgemeter.agent.base.broker_address import BrokerAddress, accepts_anybody, parse_address
from edgemeter.agent.base.cli.command_group import CommandGroup, Sections
from edgemeter.agent.base.cli.options import PATH, FiniteRange, format_option
from edgemeter.agent.base.cli.tables import Format, print_data
from edgemeter.agent.base.config import home
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.http_server import is_loopback
from edgemeter.agent.base.mqtt_session import CONNECT_TIMEOUT_S
from edgemeter.agent.base.number_text import count
from edgemeter.agent.base.service_manager import ServiceManager
from edgemeter.agent.base.threads import until_stopped
from edgemeter.agent.ledger.retention import Retention
from edgemeter.collector.cli.stores import LedgerParam, chosen_ledger, ledger_option
from edgemeter.collector.influx import influx_config
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger

COMMANDS: Sections = {
    "Set up": {
        "deploy-files": (
            "edgemeter.collector.cli.collector:deploy_files",
            "Write configuration files for deployment.",
        ),
        "init-ledger": (
            "edgemeter.collector.cli.collector:init_ledger",
            "Prepare a PostgreSQL database for a ledger.",
        ),
        "init-influx": (
            "edgemeter.collector.cli.collector:init_influx",
            "Set up InfluxDB for a collector.",
        ),
    },
    "Receive and show": {
        "up": ("edgemeter.collector.cli.collector:up", "Receive results until stopped."),
        "web": (
            "edgemeter.collector.cli.report:web",
            "Serve the page: overview, compare, trend, down to raw samples.",
        ),
        "devices": (
            "edgemeter.collector.cli.ledger:devices",
            "List devices: presence, records, missing records.",
        ),
        "changes": (
            "edgemeter.collector.cli.ledger:changes",
            "List changes of firmware, kernel, runtime, ...; mark them in Grafana.",
        ),
        "drain": (
            "edgemeter.collector.cli.ledger:drain",
            "Show how many records each InfluxDB lacks, or write records again.",
        ),
    },
    "Try it": {
        "demo": (
            "edgemeter.collector.cli.demo:demo",
            "Measure the shipped models here, deliver, compare and report.",
        ),
    },
    "Repair": {
        "request-again": (
            "edgemeter.collector.cli.ledger:request_again",
            "Ask devices to send acknowledged records again.",
        ),
    },
    "Maintain the ledger": {
        "status": (
            "edgemeter.collector.cli.ledger:status",
            "Show what the ledger holds, what takes the space, and what was rejected.",
        ),
        "backup": (
            "edgemeter.collector.cli.ledger:backup",
            "Back up the ledger while the collector runs.",
        ),
        "restore": ("edgemeter.collector.cli.ledger:restore", "Restore a backup."),
    },
}

DEPLOY_FILES = Path(__file__).parents[1] / "deploy"


@click.command("deploy-files")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def deploy_files(folder: Path) -> None:
    """Write configuration files for a deployment.

    These are mosquitto.conf with its ACL, a compose file (broker, InfluxDB, Grafana, collector),
    and a systemd unit.

    Example: edgemeter collector deploy-files ./deploy
    """
    with os_error_as(
        UnavailableError, f"cannot write the files to {str(folder)!r}", "give a writable folder"
    ):
        shipped = {
            folder / file.relative_to(DEPLOY_FILES): file.read_bytes()
            for file in sorted(DEPLOY_FILES.rglob("*"))
            if file.is_file()
        }
        for path, text in shipped.items():
            if path.exists() and path.read_bytes() != text:
                raise ConfigError(
                    f"{str(path)!r} exists and differs from the shipped file: nothing was "
                    "written; give another folder"
                )
        for path, text in shipped.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    for path in shipped:
        click.echo(path)


# InfluxDB counts nanoseconds in 64 bits, 292 years, and silently changes longer durations.
MOST_DAYS = 100_000
# A statement that changes the tables of a large ledger may take this long.
UPGRADE_S = 3600.0


@click.command("init-influx")
@click.option(
    "--influx",
    required=True,
    envvar="EDGEMETER_INFLUX",
    help="URL: http://HOST:8086[?org=ORG&bucket=BUCKET].",
)
@click.option(
    "--influx-token-file",
    type=PATH,
    help="File with an administrator's token. Default: $EDGEMETER_INFLUX_TOKEN.",
)
@click.option(
    "--keep-days",
    metavar="N",
    type=click.IntRange(1, MOST_DAYS),
    help="Delete points after this many days. Default: never.",
)
@click.option(
    "--write-token-to",
    type=PATH,
    help="File for the write token. Default: influx-write.token in $EDGEMETER_HOME.",
)
@click.option(
    "--read-token-to",
    type=PATH,
    help="File for the read token. Default: influx-read.token in $EDGEMETER_HOME.",
)
@format_option("", "table", "json")
def init_influx(
    *,
    influx: str,
    influx_token_file: Path | None,
    keep_days: int | None,
    write_token_to: Path | None,
    read_token_to: Path | None,
    form: Format,
) -> None:
    """Create a bucket in InfluxDB, a token to write it, and a token to read it.

    Example: edgemeter collector init-influx --influx http://influx.example:8086 --influx-token-file
    admin.token --keep-days 365
    """
    from edgemeter.collector.influx.bucket import set_up_influx

    config = influx_config.parse_influx(influx, token_file=influx_token_file)
    files: dict[influx_config.Right, Path] = {
        "write": write_token_to or home() / "influx-write.token",
        "read": read_token_to or home() / "influx-read.token",
    }
    steps = set_up_influx(config, keep_days, files)
    if not print_data(
        form,
        {
            "set_up": str(config),
            "token_files": {name: str(path) for name, path in files.items()},
            "said": steps,
        },
    ):
        click.echo("\n".join(steps))


@click.command("init-ledger")
@click.option(
    "--ledger",
    envvar="EDGEMETER_LEDGER",
    type=LedgerParam(),
    required=True,
    metavar="ADDRESS",
    help="postgresql://OWNER@HOST/DATABASE",
)
@format_option("", "table", "json")
def init_ledger(*, ledger: LedgerPlace, form: Format) -> None:
    """Prepare a PostgreSQL database for a ledger.

    Missing tables are created, and roles get the least privilege.

    Run it as the owner of the database; the collectors may be running.

    Example: edgemeter collector init-ledger --ledger postgresql://owner@db.example/edgemeter
    """
    from edgemeter.agent.base.postgres_session import LedgerSession
    from edgemeter.collector.ledgers.postgres_schema import init_ledger as initialise
    from edgemeter.collector.trend.watch_file import WATCH_FORMAT

    if isinstance(ledger, Path):
        raise ConfigError(
            f"{str(ledger)!r} is a file, which needs no preparation: give "
            "postgresql://OWNER@HOST/DATABASE"
        )
    with closing(LedgerSession(ledger, deadline_s=UPGRADE_S)) as session:
        steps = initialise(session, WATCH_FORMAT.schema)
    if not print_data(form, {"ledger": str(ledger), "done": steps}):
        click.echo("\n".join(steps))


STATUS_POLL_S = 0.5


@click.group(
    cls=CommandGroup, sections=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
def collector() -> None:
    """Receive, store and forward the results of a fleet.

    Example: edgemeter collector up --broker broker.example
    """


@click.command()
@click.option(
    "--broker",
    envvar="EDGEMETER_BROKER",
    help="Broker: HOST[:PORT], mqtt://... or mqtts://... Default: an embedded broker.",
)
@click.option(
    "--folder",
    "fleet_folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the fleet, with the broker's address and our certificate.",
)
@click.option(
    "--port",
    default=1883,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the embedded broker; 0: any free port.",
)
@ledger_option
@click.option(
    "--influx",
    envvar="EDGEMETER_INFLUX",
    help="Drain to this InfluxDB: http://HOST:8086[?org=ORG&bucket=BUCKET].",
)
@click.option(
    "--influx-token-file", type=PATH, help="File with the token. Default: $EDGEMETER_INFLUX_TOKEN."
)
@click.option(
    "--group",
    envvar="EDGEMETER_GROUP",
    help="Share messages with the collectors of this group (MQTT 5 or mosquitto).",
)
@click.option(
    "--metrics",
    envvar="EDGEMETER_METRICS",
    help="Serve /metrics and /healthz at [HOST:]PORT. Default host: 127.0.0.1.",
)
@click.option(
    "--keep-days",
    type=FiniteRange(0, min_open=True),
    help="Delete records after this many days. Default: never.",
)
@click.option(
    "--keep-samples-days",
    type=FiniteRange(0, min_open=True),
    help="Delete raw samples after this many days. Default: with their records.",
)
@click.option(
    "--keep-mb",
    type=click.IntRange(1),
    help="Delete the oldest data, raw samples first, if the ledger exceeds this many "
    "MB. Default: unlimited.",
)
def up(
    *,
    broker: str | None,
    fleet_folder: Path | None,
    port: int,
    ledger: LedgerPlace | None,
    influx: str | None,
    influx_token_file: Path | None,
    group: str | None,
    metrics: str | None,
    keep_days: float | None,
    keep_samples_days: float | None,
    keep_mb: int | None,
) -> None:
    """Receive results and store them in the ledger. Stop it with Ctrl-C or SIGTERM.

    Example: edgemeter collector up --broker broker.example --influx http://influx.example:8086
    """
    from edgemeter.collector.receive import monitor
    from edgemeter.collector.receive.collector import Collector
    from edgemeter.collector.receive.fleet_address import fleet_address

    if broker and fleet_folder:
        raise click.UsageError("--folder names the broker too: give it or --broker")
    if group and not (broker or fleet_folder):
        raise click.UsageError(
            "--group shares the messages of one broker: name it with --broker; the embedded "
            "broker cannot share"
        )
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    log_limit.apply()
    path = chosen_ledger(ledger)
    monitor_address = monitor.parse_monitor_address(metrics) if metrics else None
    retention = Retention(keep_days, keep_samples_days, keep_mb * 1_000_000 if keep_mb else None)
    config = influx_config.parse_influx(influx, token_file=influx_token_file) if influx else None
    broker_address = (
        fleet_address(fleet_folder) if fleet_folder else parse_address(broker) if broker else None
    )
    manager = ServiceManager()
    # The watchdog must not restart it because a broker is not up yet.
    manager.ready()
    with until_stopped() as stopped, _broker(broker_address, port) as address:
        service = Collector(address, path, config, group=group, retention=retention)
        metrics_server = monitor.Monitor(service, *monitor_address) if monitor_address else None
        parts = [part for part in (service, metrics_server) if part is not None]
        try:
            for part in parts:
                part.start()
            # Freeze the objects that exist now: a collection that walks them delays every receipt
            # by 25 to 60 ms.
            gc.collect()
            gc.freeze()
            states = [
                f"receiving from {address}, storing in {path}",
                *([f"draining to {config}"] if config is not None else []),
            ]
            if metrics_server is not None:
                states.append(f"/metrics at {metrics_server.host}:{metrics_server.port}")
            with open_ledger(path, "read") as opened:
                click.echo(
                    f"{', '.join(states)}; a record is acknowledged {opened.safety()}; "
                    "stop with Ctrl-C",
                    err=True,
                )
            if (
                broker_address
                and not is_loopback(address.host)
                and accepts_anybody(address, CONNECT_TIMEOUT_S)
            ):
                remedy = (
                    "let it ask for passwords or certificates (`edgemeter fleet init` sets up a "
                    "mosquitto that does)"
                )
                click.echo(
                    f"the broker at {address} lets anybody in, who may write any device's "
                    f"results unless an ACL forbids it: {remedy}",
                    err=True,
                )
            while not stopped.wait(STATUS_POLL_S):
                service.report()
                # The service manager restarts a collector that hangs.
                if not service.is_stalled():
                    manager.alive()
        finally:
            for part in reversed(parts):
                part.stop()
        counts = service.counts
        stored = count(counts.inserted, "new record")
        click.echo(
            f"stored {stored}, {counts.duplicates} were here already, quarantined "
            f"{counts.quarantined}",
            err=True,
        )


@contextmanager
def _broker(address: BrokerAddress | None, port: int) -> Iterator[BrokerAddress]:
    if address is not None:
        yield address
        return
    from edgemeter.collector.receive.embedded_broker import EmbeddedBroker

    embedded = EmbeddedBroker(port)
    try:
        yield embedded.start()
    finally:
        embedded.stop()
