"""The commands `edgemeter trend` and `edgemeter annotate`."""

from pathlib import Path
from typing import Any

import click

from edgemeter.collector.store_path import StorePath

store_option = click.option(
    "--store",
    "stores",
    multiple=True,
    type=StorePath(),
    metavar="FILE",
    envvar="EDGEMETER_STORE",
    help="A ledger, or what `edgemeter run --json` printed; several are read as one. Default: the ledger below $EDGEMETER_HOME.",
)


def _day(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    from datetime import date

    try:
        return None if value is None else (date.fromisoformat(value) - date(1970, 1, 1)).days
    except ValueError as error:
        message = f"{value!r} is no day: give it as 2026-11-20"
        raise click.BadParameter(message) from error


def chosen_metrics(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Return the names of metrics in an option, the usual ones where none is given."""
    from edgemeter.collector.trend.metrics import DEFAULT, METRICS

    names = DEFAULT if value is None else tuple(METRICS) if value == "all" else tuple(part.strip() for part in value.split(","))
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        message = f"{unknown[0]!r} is no metric: give some of {', '.join(METRICS)}, or all"
        raise click.BadParameter(message)
    return names


@click.command(short_help="Find what changed over the days: steps, drifts, scatter, gaps.")
@store_option
@click.option(
    "--metric",
    "metrics",
    callback=chosen_metrics,
    metavar="NAME[,NAME]",
    help="energy, energy-net, latency, latency-p90, accuracy, throttling, or all. Default: energy, latency, accuracy, throttling.",
)
@click.option("--fleet", help="Only this fleet.")
@click.option("--device", help="Only this device.")
@click.option("--board", help="Only this board type.")
@click.option("--model", help="Only this model.")
@click.option("--precision", help="Only this precision.")
@click.option("--runtime", help="Only this runtime.")
@click.option("--by-type", is_flag=True, help="The trend of each board type (two devices and more) instead of each device's.")
@click.option("--until", callback=_day, metavar="DAY", help="The day up to which points could have come. Default: that of the newest run.")
@click.option("--all", "with_quiet", is_flag=True, help="Also series of which there is nothing to say.")
@click.option("--json", "form", flag_value="json", help='Print {"series": [...]} with every figure of the findings.')
@click.option("--csv", "form", flag_value="csv", help="Print the points, a line a day.")
def trend(
    stores: tuple[str, ...],
    metrics: tuple[str, ...],
    until: int | None,
    form: str | None,
    *,
    by_type: bool,
    with_quiet: bool,
    **selected: str | None,
) -> None:
    """Find what changed over the days on each device and case, with size, interval, first day and what changed beside it.

    Example: edgemeter trend --metric energy --device pi-7
    """
    from edgemeter.collector.trend import annotations, finding, trend_table, watch
    from edgemeter.collector.trend.digest import digest
    from edgemeter.collector.trend.history import open_history

    where = stores or (default_store(),)
    with shown_progress() as progress:
        history = open_history(where, progress)
        known = annotations.of_store(where[0])
        selection = watch.Selection(**selected)
        watch.keys_of(history, selection)
        found = watch.look(history, known, metrics, selection, by_type=by_type)
    newest = max((one.last_day for one in found), default=0)
    if until is not None and until < newest:
        message = f"--until {finding.iso(until)} is before the newest run, of {finding.iso(newest)}: trends are of all days"
        raise click.UsageError(message)
    last = newest if until is None else until
    if form == "csv":
        click.echo(trend_table.points_csv([(one.key, one.metric, watch.points(history, one.key, one.metric)) for one in found]), nl=False)
    elif form == "json":
        click.echo(trend_table.document(found, digest(found), last).decode())
    else:
        from rich.console import Console

        console = Console()
        trend_table.show(found, digest(found), last, console if console.is_terminal else Console(width=400), with_quiet=with_quiet)


@click.command(short_help="Write down what is known of a day: a new level begins, or a remark.")
@click.argument("text", required=False)
@store_option
@click.option("--day", callback=_day, metavar="DAY", help="The first day of the new level, as 2026-11-20. Default: today (UTC).")
@click.option("--fleet", help="Only of this fleet.")
@click.option("--device", help="Only of this device.")
@click.option("--model", help="Only of this model.")
@click.option("--metric", help="Only of this metric.")
@click.option("--author", help="Who says so.")
@click.option("--remark", is_flag=True, help="Only a remark: the level goes on.")
@click.option("--remove", type=click.IntRange(1), metavar="NUMBER", help="Take an annotation back.")
@click.option("--list", "as_list", is_flag=True, help="List the annotations.")
@click.option("--json", "as_json", is_flag=True, help="List them as JSON.")
def annotate(
    text: str | None, stores: tuple[str, ...], remove: int | None, *, remark: bool, as_list: bool, as_json: bool, **about: Any
) -> None:
    """Write down what is known of a day: from it on a new level begins, which is no finding; what was before stays in the history.

    Example: edgemeter annotate --device pi-7 --day 2026-11-02 "new power supply"
    """
    from edgemeter.agent.errors import ConfigError
    from edgemeter.collector.trend import annotations
    from edgemeter.collector.trend.metrics import METRICS
    from edgemeter.collector.trend.watch_file import WatchFile, beside

    if about["metric"] is not None and about["metric"] not in METRICS:
        message = f"{about['metric']!r} is no metric: give one of {', '.join(METRICS)}"
        raise click.UsageError(message)
    if sum((text is not None, remove is not None, as_list or as_json)) != 1:
        message = "give a TEXT, --remove NUMBER, or --list"
        raise click.UsageError(message)
    if text is not None and not text.strip():
        message = "the TEXT is empty: say what is known of the day"
        raise click.UsageError(message)
    where = stores or (default_store(),)
    with WatchFile(beside(existing_store(where[0]))) as file:
        if text is not None:
            _check_series(where, about)
            day = about.pop("day")
            entry = annotations.Annotation(day=annotations.today() if day is None else day, text=text, begins_level=not remark, **about)
            click.echo(f"annotation {annotations.add(file, entry)} is kept in {file.path}", err=True)
        elif remove is not None:
            if not annotations.remove(file, remove):
                message = f"there is no annotation {remove} in {str(file.path)!r}: see `edgemeter annotate --list`"
                raise ConfigError(message)
            click.echo(f"annotation {remove} is taken back", err=True)
        else:
            click.echo(annotations.listed(annotations.read(file), as_json=as_json))


def _check_series(stores: tuple[str, ...], about: dict[str, Any]) -> None:
    """Raise where no run is of the fleet, device or model: an annotation with a slip in its name would be of nothing."""
    from edgemeter.collector.trend import watch
    from edgemeter.collector.trend.history import open_history

    with shown_progress() as progress:
        watch.keys_of(open_history(stores, progress), watch.Selection(fleet=about["fleet"], device=about["device"], model=about["model"]))


def default_store() -> str:
    """Return the ledger below $EDGEMETER_HOME."""
    from edgemeter.agent.config import home

    return str(home() / "ledger.sqlite")


def existing_store(store: str) -> str:
    """Return `store` where it is a ledger or a document of runs that is there."""
    from edgemeter.agent.errors import ConfigError
    from edgemeter.collector.compare.store import LedgerFile, open_store
    from edgemeter.collector.keep.ledger import Ledger

    if not Path(store).expanduser().is_file():
        message = f"there is no store at {store!r} that could be annotated: name its file with --store"
        raise ConfigError(message)
    found = open_store(store)
    if isinstance(found, LedgerFile):
        Ledger(found.path, "read").close()
    else:
        found.contents()
    return store


def shown_progress() -> Any:
    """Return a context that gives what is told how far the index is, shown where somebody watches standard error."""
    from contextlib import contextmanager

    from rich.console import Console

    @contextmanager
    def shown() -> Any:
        console = Console(stderr=True)
        if not console.is_terminal:
            yield lambda *_: None
            return
        with console.status("looking at the trends ...") as status:
            yield lambda row, last: status.update(f"taking in what came since: {row:,} of {last:,} runs")

    return shown()
