"""The command `edgemeter units`."""

import click

from edgemeter.collector.trend_cli import chosen_metrics, default_store, shown_progress, store_option


@click.command(short_help="How far boards of one type lie apart, and which of them is sick.")
@store_option
@click.option(
    "--metric",
    "metrics",
    callback=chosen_metrics,
    metavar="NAME[,NAME]",
    help="energy, energy-net, latency, ... Default: energy, latency, accuracy.",
)
@click.option("--fleet", help="Only this fleet.")
@click.option("--board", help="Only this board type.")
@click.option("--model", help="Only this model.")
@click.option("--json", "as_json", is_flag=True, help='Print {"board_types": [...]}.')
def units(
    stores: tuple[str, ...], metrics: tuple[str, ...], fleet: str | None, board: str | None, model: str | None, *, as_json: bool
) -> None:
    """Show how far boards of one type, their days and their runs lie apart, and which board is sick and where to look first.

    Example: edgemeter units --board "Raspberry Pi 5 Model B Rev 1.0" --metric energy
    """
    from edgemeter.collector.trend import watch
    from edgemeter.collector.trend.history import open_history
    from edgemeter.collector.units import units_table
    from edgemeter.collector.units.board_types import board_types

    with shown_progress() as progress:
        history = open_history(stores or (default_store(),), progress)
        selection = watch.Selection(fleet=fleet, board=board, model=model)
        keys = watch.keys_of(history, selection)
        found = [one for name in metrics if name != "throttling" for one in board_types(history, name, keys)]
    if as_json:
        click.echo(units_table.document(found).decode())
        return
    from rich.console import Console

    console = Console()
    units_table.show(found, console if console.is_terminal else Console(width=400))
