"""The commands `edgemeter collector web` and `edgemeter report`: the page, served or as one file."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from edgemeter.agent.config import home
from edgemeter.agent.errors import ConfigError

_store_option = click.option(
    "--store",
    "stores",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    envvar="EDGEMETER_STORE",
    help="A ledger, or what `edgemeter run --json` printed; several are read as one. Default: the ledger below $EDGEMETER_HOME.",
)


@click.command(short_help="Serve the page: overview, compare, trend, down to raw samples.")
@_store_option
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Beyond this machine a token is needed.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0: a free one.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the token that readers need. Or set EDGEMETER_WEB_TOKEN.")
def web(stores: tuple[str, ...], listen: str, port: int, token_file: Path | None) -> None:
    """Serve the page until Ctrl-C or SIGTERM; it only reads, a collector may run beside it.

    Example: edgemeter collector web --store ledger.sqlite --port 8080
    """
    from edgemeter.collector.web.happenings import open_happenings
    from edgemeter.collector.web.run_index import open_index
    from edgemeter.collector.web.server import PageServer
    from edgemeter.collector.web.sources import open_source

    where = stores or (str(home() / "ledger.sqlite"),)
    index = open_index(open_source(where))
    try:
        server = PageServer(index, open_happenings(index), listen, port, _token(token_file))
        with _until_told() as told:
            server.start()
            click.echo(f"the page of {', '.join(where)} is at {server.url}; Ctrl-C ends it", err=True)
            told.wait()
            server.stop()
    finally:
        index.close()


@click.command(short_help="Write the page as one file that works offline.")
@_store_option
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True, help="Where it goes.")
@click.option("--fleet", help="Only this fleet.")
@click.option("--model", help="Only this model.")
@click.option("--board", help="Only this type of board.")
@click.option("--device", help="Only this device.")
@click.option("--runs", default=40, show_default=True, type=click.IntRange(0), help="So many runs are held with their raw samples.")
def report(
    stores: tuple[str, ...], output: Path, fleet: str | None, model: str | None, board: str | None, device: str | None, runs: int
) -> None:
    """Write overview, comparison, models, trends, devices and runs as one file that needs neither a network nor a server.

    Example: edgemeter report --store ledger.sqlite -o report.html
    """
    from edgemeter.collector.show import figures
    from edgemeter.collector.web import one_file
    from edgemeter.collector.web.happenings import open_happenings
    from edgemeter.collector.web.queries import Narrowing
    from edgemeter.collector.web.run_index import open_index
    from edgemeter.collector.web.sources import open_source

    index = open_index(open_source(stores or (str(home() / "ledger.sqlite"),)))
    try:
        with _progress("reading records") as progress:
            index.refresh(progress)
        narrowing = Narrowing(fleet=fleet, model=model, board=board, device=device)
        happenings = open_happenings(index)
        happenings.refresh()
        with _progress("making views") as progress:
            size_bytes = one_file.write(index, happenings, output, narrowing, runs, progress)
    finally:
        index.close()
    click.echo(f"the report: {output.resolve()}, {figures.significant(size_bytes / 1e6, 2)} MB", err=True)


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("EDGEMETER_WEB_TOKEN") or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the token from {str(file)!r} ({error}): name a text file that holds it"
        raise ConfigError(message) from error
    if not token:
        message = f"{str(file)!r} is empty: write a token into it"
        raise ConfigError(message)
    return token


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
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Give what shows progress on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)
