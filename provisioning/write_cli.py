"""The command `edgemeter fleet write`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from edgemeter.provisioning.write.disk import Disk, World


@click.command(short_help="Write an image to a card: refuses disks in use, reads everything back.")
@click.argument("image", type=click.Path(path_type=Path), metavar="IMG")
@click.option("--device", type=click.Path(path_type=Path), help="The card: /dev/sdX, /dev/mmcblkN. Without it the disks here are listed.")
@click.option("--force-large", is_flag=True, help="Also write to a disk of more than 512 GB.")
@click.option("--yes-model", metavar="TEXT", help="Model and size of the card, as the question shows them, for scripts: no question.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Check image and card, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def write(image: Path, device: Path | None, *, force_large: bool, yes_model: str | None, is_dry: bool, as_json: bool) -> None:
    """Write an image (raw, .gz, .xz) to a card and read every byte of it back.

    Example: edgemeter fleet write raspios.img.xz --device /dev/sdb
    """
    import json
    from dataclasses import asdict

    from edgemeter.provisioning.write import disk as disks
    from edgemeter.provisioning.write import image as images
    from edgemeter.provisioning.write import writing
    from edgemeter.provisioning.write.disk import World
    from edgemeter.provisioning.write.watching import Watching

    world = World()
    if device is None:
        raise click.UsageError(_choice(world))
    card = disks.read(device, world)
    _refuse(card, disks.objections(card, world, None, "allowed" if force_large else "refused"))
    with Watching() as watching:
        source = images.read(image, lambda done, total: watching.told("checking the image", done, total))
    _refuse(card, disks.objections(card, world, source.size_bytes, "allowed" if force_large else "refused"))
    if is_dry:
        click.echo(f"would write {source.size_bytes / disks.GB:.2f} GB to {card.path} ({card.words})")
        return
    _confirm(card, yes_model)
    # Some time went by: somebody may have mounted it meanwhile, or another card may be there.
    if disks.read(device, world) != card:
        _refuse(card, ["another card is there now"])
    _refuse(card, disks.objections(card, world, source.size_bytes, "allowed" if force_large else "refused"))
    with Watching() as watching:
        done = writing.write(source, card, watching.told)
    if as_json:
        click.echo(json.dumps({"device": str(card.path), "model": card.model, **asdict(done)}))
    else:
        click.echo(f"{card.path} ({card.words}): {done.size_bytes / disks.GB:.2f} GB written, all of it read back: sha256 {done.sha256}")


def _refuse(card: "Disk", reasons: list[str]) -> None:
    from edgemeter.agent.errors import ConfigError

    if reasons:
        message = f"{card.path} ({card.words}) is not written: {'; '.join(reasons)}"
        raise ConfigError(message)


def _confirm(card: "Disk", said: str | None) -> None:
    from edgemeter.agent.errors import ConfigError

    if said is None:
        if not sys.stdin.isatty():
            message = f"nobody is there to ask: to erase {card.path} give --yes-model {card.words!r}"
            raise ConfigError(message)
        click.echo(f"All that is on {card.path} will be lost.", err=True)
        said = click.prompt(f"To erase it type its model and size, {card.words}", err=True)
    if said.strip() != card.words:
        message = f"{said!r} is not what {card.path} is ({card.words}): nothing was written"
        raise ConfigError(message)


def _choice(world: "World") -> str:
    from edgemeter.provisioning.write import disk as disks

    lines = []
    for one in disks.every(world):
        why = disks.objections(one, world, None, "refused")
        lines.append(f"  {one.path}  {one.words}" + (f"  no: {why[0]}" if why else ""))
    return "which card? Give --device:\n" + ("\n".join(lines) or "  no disk is here")
