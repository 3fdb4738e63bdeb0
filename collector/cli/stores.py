"""Options that name a store or a ledger, and what commands read from them."""

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.options import PATH, added
from edgemeter.agent.base.postgres_address import is_postgres
from edgemeter.agent.base.progress import progress_bar
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.collector.ledgers.place import LedgerPlace, ledger_place, open_ledger

if TYPE_CHECKING:
    from edgemeter.collector.compare.summary import CaseSummary, DaysCounted


_Command = TypeVar("_Command", bound=Callable[..., Any])


class StorePath(click.Path):
    """An environment variable holds several files separated by colons, or one URL."""

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Return the stores in one environment variable."""
        return [rv] if "://" in rv else super().split_envvar_value(rv)


class LedgerParam(click.ParamType):  # type: ignore[type-arg]
    """The place of a ledger: a file, or an address with `://`."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> LedgerPlace:  # noqa: ARG002 - click's
        """Return the place that `value` names."""
        return ledger_place(value) if isinstance(value, str) else value


all_days_option = click.option(
    "--all-days",
    "days",
    flag_value="all",
    default="current",
    help="Count every run of a case, also those before its level last changed. Default: only those since then.",
)
ledger_option = click.option(
    "--ledger",
    envvar="EDGEMETER_LEDGER",
    type=LedgerParam(),
    metavar="PLACE",
    help="Ledger: a file, or postgresql://USER@HOST/DATABASE. Default: ledger.sqlite in $EDGEMETER_HOME, else in $XDG_DATA_HOME/edgemeter.",
)
influx_token_option = click.option(
    "--influx-token-file", type=PATH, help="File with the token of an InfluxDB. Or set EDGEMETER_INFLUX_TOKEN."
)


def stores_option(text: str, metavar: str | None = "FILE|URL") -> Callable[[_Command], _Command]:
    """Return what adds `--store`, repeatable, as `stores`."""
    return click.option("--store", "stores", multiple=True, type=StorePath(), metavar=metavar, envvar="EDGEMETER_STORE", help=text)


store_option = stores_option(
    "A ledger, or a document of `edgemeter run --json`; several are read as one. Default: the ledger in $EDGEMETER_HOME.", "FILE"
)


def since_option(event: str) -> Callable[[_Command], _Command]:
    """Return what adds `--since`, as `since_ns` (UTC, in ns since 1970; None: all): only records that were `event` since that day."""

    def to_ns(_ctx: click.Context, _param: click.Parameter, day: datetime | None) -> int | None:
        return None if day is None else int(day.replace(tzinfo=timezone.utc).timestamp()) * 1_000_000_000

    text = f"Only records {event} since this day, UTC. Default: all."
    return click.option("--since", "since_ns", metavar="DAY", type=click.DateTime(["%Y-%m-%d"]), callback=to_ns, help=text)


def only_options(*names: str) -> Callable[[_Command], _Command]:
    """Return what adds `--fleet`, `--device`, `--board`, `--model`, `--precision` or `--runtime`, which select the runs to look at."""
    texts = {name: f"Only this {'board type' if name == 'board' else name}." for name in names}
    return added(*(click.option(*(["-m"] if name == "model" else []), f"--{name}", help=text) for name, text in texts.items()))


def chosen_ledger(ledger: LedgerPlace | None = None) -> LedgerPlace:
    """Return the ledger's place: the one given, or the default."""
    return ledger or default_path()


def ledger_file(ledger: LedgerPlace | None, instead: str) -> Path:
    """Return the file of the ledger; `instead` is what to do with a database. Raises ConfigError if it is a database."""
    path = chosen_ledger(ledger)
    if not isinstance(path, Path):
        raise ConfigError(f"{path} is a database of PostgreSQL, and this command is for files: {instead}")
    return path


def chosen_stores(stores: Sequence[str]) -> Sequence[str]:
    """Return the stores given, or the default ledger."""
    return stores or (str(chosen_ledger()),)


def stamp(taken_ns: int) -> str:
    """Return a time in ISO 8601, to the second, UTC."""
    return datetime.fromtimestamp(taken_ns // 1_000_000_000, timezone.utc).isoformat()


def stored_summaries(
    stores: Sequence[str], influx_token_file: Path | None = None, days: "DaysCounted" = "current"
) -> "Sequence[CaseSummary]":
    """Return the cases of `stores`, by default those of the default ledger; of the current level of each, or of all its days.

    Raises:
        ConfigError: a store is absent or invalid.
        UnavailableError: it contains no run.
    """
    from edgemeter.collector.compare import views
    from edgemeter.collector.index.rollup import rolled_up
    from edgemeter.collector.runs.store import open_store

    store = open_store(*chosen_stores(stores), influx_token_file=influx_token_file)
    with progress_bar() as progress:
        ready = rolled_up(store, progress, days=days)
    return ready.summaries if ready else views.gather(store.contents(), days).summaries


def existing_store(store: str) -> str:
    """Return `store`, checked to be a ledger or a document of runs."""
    from edgemeter.collector.runs.store import LedgerStore, open_store

    if not is_postgres(store) and not Path(store).expanduser().is_file():
        raise ConfigError(f"no store at {store!r}: name its file with --store")
    opened = open_store(store)
    if isinstance(opened, LedgerStore):
        open_ledger(opened.place, "read").close()
    else:
        opened.contents()
    return store
