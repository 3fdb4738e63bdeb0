"""Options that name a store or a ledger, and functions that open them."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgemeter.agent.base.cli.notes import progress_bar, warn
from edgemeter.agent.base.cli.options import added
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.postgres_address import is_postgres
from edgemeter.agent.contract.figures import Figure
from edgemeter.collector.ledgers.place import LedgerPlace, ledger_place, open_ledger

if TYPE_CHECKING:
    from edgemeter.agent.ledger.run_history import LedgerRuns
    from edgemeter.collector.compare.case_book import CaseBook
    from edgemeter.collector.runs.contents import LeftOut
    from edgemeter.collector.runs.store import RunStore


DAY_S = 86_400
_Command = TypeVar("_Command", bound=Callable[..., Any])


class StorePath(click.Path):
    """A file or URL; the environment variable holds exactly one."""

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        return [rv]


class LedgerParam(click.ParamType):  # type: ignore[type-arg]
    """The place of a ledger: a file, or an address with `://`."""

    name = "place"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002 - click's
        ctx: click.Context | None,  # noqa: ARG002 - click's
    ) -> LedgerPlace:
        return ledger_place(value) if isinstance(value, str) else value


class FigureParam(click.ParamType):  # type: ignore[type-arg]
    """A figure, by its name or its title."""

    name = "figure"

    def __init__(self, among: Iterable[Figure]) -> None:
        self._among = tuple(among)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from edgemeter.collector.runs.figure_names import figure_called

        try:
            return figure_called(value, self._among).name
        except ConfigError as error:
            self.fail(str(error), param, ctx)


all_days_option = click.option(
    "--all-days",
    "days",
    flag_value="all",
    default="current",
    help="Count all runs of a case, also those before its level last changed.",
)
ledger_option = click.option(
    "--ledger",
    envvar="EDGEMETER_LEDGER",
    type=LedgerParam(),
    metavar="PLACE",
    help="Ledger: a file, or postgresql://USER@HOST/DATABASE. Default: the ledger in "
    "$EDGEMETER_HOME.",
)


def stores_option(text: str, metavar: str | None = "FILE|URL") -> Callable[[_Command], _Command]:
    """Return a decorator that adds `--ledger`, repeatable, as `stores`: the sources of runs."""
    return click.option(
        "--ledger",
        "stores",
        multiple=True,
        type=StorePath(),
        metavar=metavar,
        envvar="EDGEMETER_LEDGER",
        help=text,
    )


store_option = stores_option(
    "Ledger, or JSON of `edgemeter run`. Repeatable. Default: the ledger in $EDGEMETER_HOME.",
    "FILE",
)


def since_option(event: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds `--since`, for records `event` since that day.

    It is passed as `since_ns` (UTC, ns since 1970; None: all).
    """

    def to_ns(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
        day = day_number(context, option, text)
        # A ledger's integers have 64 bits.
        return None if day is None else min(max(day, 0) * DAY_S * 1_000_000_000, 2**63 - 1)

    text = (
        f"Only records {event} since this day, UTC: 2026-11-20, today, yesterday, or 7d ago. "
        "Default: all."
    )
    return click.option("--since", "since_ns", metavar="DAY", callback=to_ns, help=text)


def day_number(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Return the day in an option, as days since 1970 (UTC).

    It is a date, `today`, `yesterday`, or `7d` ago.
    """
    if text is None:
        return None
    days_ago = {"today": "0d", "yesterday": "1d"}.get(text, text)
    try:
        if re.fullmatch(r"\d{1,5}d", days_ago, re.ASCII):
            return int(time.time()) // DAY_S - int(days_ago[:-1])
        return (date.fromisoformat(text) - date(1970, 1, 1)).days
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not a day: write it as 2026-11-20, today, yesterday, or 7d "
            "(seven days ago)"
        ) from error


def model_called(stores: Sequence[str], model: str | None) -> str | None:
    """Return the name of a model.

    It is the name itself, or that of the newest run of this file in the first ledger of `stores`.
    """
    from edgemeter.agent.ledger.run_history import LedgerRuns
    from edgemeter.collector.runs.store import ledger_at

    if model is None or (ledger := ledger_at(stores[0])) is None:
        return model
    with open_ledger(ledger, "read") as opened:
        newest = LedgerRuns(opened).runs({"model": model}, limit=1)
    return newest[0].record.model.name if newest else model


def only_options(*names: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the options which select runs.

    They are `--fleet`, `--device`, `--board`, `--model`, `--precision` and `--runtime`.
    """
    words = {"board": "board type", "model": "model: its name, or a file that was run"}
    texts = {name: f"Only this {words.get(name, name)}." for name in names}
    return added(
        *(
            click.option(*(["-m"] if name == "model" else []), f"--{name}", help=text)
            for name, text in texts.items()
        )
    )


def chosen_ledger(ledger: LedgerPlace | None = None) -> LedgerPlace:
    from edgemeter.agent.ledger.ledger import default_path

    return ledger or default_path()


@contextmanager
def opened_runs(ledger: LedgerPlace | None, *, is_written: bool = False) -> Iterator["LedgerRuns"]:
    """Yield the runs of a ledger, or of the default one.

    Raises ConfigError if there is none yet.
    """
    from edgemeter.agent.ledger.run_history import LedgerRuns

    address = chosen_ledger(ledger)
    if isinstance(address, Path) and not address.exists():
        raise ConfigError(
            f"no run is kept in {str(address)!r} yet: measure with `edgemeter run MODEL`, or "
            "name another file with --ledger"
        )
    with open_ledger(address, "write" if is_written else "read") as opened:
        yield LedgerRuns(opened)


def ledger_file(ledger: LedgerPlace | None, instead: str) -> Path:
    """Return the file of the ledger; `instead` is what to do with a database.

    Raises ConfigError if it is a database.
    """
    path = chosen_ledger(ledger)
    if not isinstance(path, Path):
        raise ConfigError(
            f"{path} is a database of PostgreSQL, and this command is for files: {instead}"
        )
    return path


def chosen_stores(stores: Sequence[str]) -> Sequence[str]:
    return stores or (str(chosen_ledger()),)


def opened_book(stores: Sequence[str]) -> "CaseBook":
    """Return the present cases of `stores`, or of the default ledger.

    Raises ConfigError if one is invalid.
    """
    from edgemeter.collector.compare.case_book import book_of

    store = opened_store(stores)
    with progress_bar() as progress:
        return book_of(store, progress)


def opened_store(stores: Sequence[str]) -> "RunStore":
    """Return the rows of `stores` (or the default ledger); raises ConfigError if one is invalid."""
    from edgemeter.collector.runs.store import open_store

    return open_store(*chosen_stores(stores))


def warn_of_left_out(left_out: "Sequence[LeftOut]") -> None:
    """Count and name what a view leaves out, one line a reason."""
    from edgemeter.agent.base.number_text import count, printable
    from edgemeter.collector.runs.cases import grouped
    from edgemeter.collector.show.words import listed

    for reason, names in grouped((entry.reason, entry.name) for entry in left_out).items():
        warn(
            f"edgemeter: left out: {count(len(names), 'record')}, {printable(listed(names))}: "
            f"{printable(reason)}"
        )


def existing_store(store: str) -> str:
    """Return `store` if it is a ledger or a document of runs; else raise ConfigError."""
    from edgemeter.collector.runs.store import open_store

    if not is_postgres(store) and not Path(store).expanduser().is_file():
        raise ConfigError(
            f"there are no runs at {store!r}: measure or receive some first, or name another "
            "ledger with --ledger"
        )
    open_store(store).query("SELECT 1")
    return store
