"""The commands `edgemeter collector web` and `edgemeter report`: the page, served or as one file."""

import os
from pathlib import Path

import click

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.terminal import until_stopped
from edgemeter.collector.cli.stores import chosen_stores, store_option
from edgemeter.collector.ledgers.place import shown


@click.command()
@store_option
@click.option(
    "--listen", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on; any but the loopback needs a token. Default: 127.0.0.1."
)
@click.option("--port", default=8080, type=click.IntRange(0, 65535), help="Port; 0 picks a free one. Default: 8080.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the access token. Or set EDGEMETER_WEB_TOKEN.")
def web(stores: tuple[str, ...], listen: str, port: int, token_file: Path | None) -> None:
    """Serve the page until Ctrl-C or SIGTERM. It only reads: a collector may run at the same time.

    Example: edgemeter collector web --store ledger.sqlite --port 8080
    """
    from edgemeter.collector.index.run_index import open_index
    from edgemeter.collector.index.sources import open_source
    from edgemeter.collector.web.events import TrendEvents
    from edgemeter.collector.web.server import PageServer

    where = chosen_stores(stores)
    index = open_index(open_source(where))
    try:
        server = PageServer(index, TrendEvents(index.source), listen, port, _token(token_file))
        with until_stopped() as stopped:
            server.start()
            click.echo(f"the page of {', '.join(map(shown, where))} is at {server.url}; Ctrl-C ends it", err=True)
            stopped.wait()
            server.stop()
    finally:
        index.close()


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("EDGEMETER_WEB_TOKEN") or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token from {str(file)!r}: {error}: name a text file that contains it") from error
    if not token:
        raise ConfigError(f"{str(file)!r} is empty: write the token into it")
    return token
