"""The commands `edgemeter fleet release`."""

import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.base.cli.command_group import DefaultGroup
from edgemeter.agent.base.cli.options import format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.console import Table
from edgemeter.provisioning.cli.options import FILE, in_folder
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.release.release_file import read_release
from edgemeter.provisioning.update import releases


@click.group(cls=DefaultGroup)
def release() -> None:
    """Build and add releases.

    A release is one signed file with all that a board needs; it installs without a network.

    Example: edgemeter fleet release build --board pi5 --python 3.13
    """


@release.command(short_help="Build a signed release for a board.")
@in_folder
@click.option(
    "--board",
    required=True,
    metavar="NAME",
    help="Board to build for, as in docs/tasks/fleet.md: pi5, jetson-orin, arm64, pc, ...",
)
@click.option(
    "--python",
    metavar="X.Y",
    help="Python version on the board. Default: that of its usual system.",
)
@click.option(
    "--glibc",
    metavar="X.Y",
    help="glibc version on the board. Default: that of the system with this Python.",
)
@click.option(
    "--extras",
    default="litert",
    show_default=True,
    metavar="A,B",
    help="Runtimes and other extras to include.",
)
@click.option(
    "--wheel", type=FILE, help="Wheel of edgemeter. Default: built from this installation."
)
@click.option(
    "--with",
    "further",
    type=FILE,
    multiple=True,
    metavar="FILE.whl",
    help="Further wheel to include, such as a vendor's runtime. Repeatable.",
)
@click.option(
    "-o",
    "--output",
    "out",
    type=FILE,
    help="Output file. Default: a name with version, board and Python.",
)
@format_option("", "table", "json")
def build(
    *,
    folder: FleetFolder,
    board: str,
    python: str | None,
    glibc: str | None,
    form: Format,
    **options: Any,
) -> None:
    """Build a signed release for a board.

    The fleet's release.key signs it. If that key is on another machine, sign the release there.

    Example: edgemeter fleet release build --board pi5 --python 3.13 --extras litert,onnx
    """
    from edgemeter.provisioning.release.boards import release_target
    from edgemeter.provisioning.release.release_file import build_release

    target, key = (
        release_target(board, python, glibc),
        folder.release_key if folder.release_key.exists() else None,
    )
    extras = list(
        dict.fromkeys(name.strip() for name in options.pop("extras").split(",") if name.strip())
    )
    built = build_release(
        target,
        extras,
        options.pop("out"),
        lambda step: click.echo(f"{step} ...", err=True) if sys.stderr.isatty() else None,
        key=key,
        public_keys=folder.release_public_key,
        **options,
    )
    manifest, size_bytes = built.manifest, built.path.stat().st_size
    files = [file._asdict() for file in manifest.files]
    if not print_data(
        form,
        {"path": str(built.path), "size_bytes": size_bytes, **manifest._asdict(), "files": files},
    ):
        for file in sorted(manifest.files, key=lambda file: -file.size_bytes):
            click.echo(f"{file.size_bytes / 1e6:9.2f} MB  {file.path}")
        click.echo(f"{size_bytes / 1e6:9.2f} MB  {built.path}")
        click.echo(f"release {manifest.version} for {target.words}")
    if key is None:
        click.echo(
            "not signed yet: sign manifest.json where the release key is, by the command in "
            "docs/tasks/fleet-security.md",
            err=True,
        )


@release.command(short_help="Verify releases, add them to the fleet, and list its releases.")
@click.argument("paths", metavar="[RELEASE]...", type=click.Path(path_type=Path), nargs=-1)
@format_option()
@in_folder
def add(paths: tuple[Path, ...], folder: FleetFolder, *, form: Format) -> None:
    """Verify releases, add them, and list all. `edgemeter fleet update` installs them.

    Example: edgemeter fleet release add edgemeter-1.2.0-pi5.tar
    """
    verified = [read_release(path, folder.release_public_key) for path in paths]
    with open_registry(folder) as registry:
        for each in verified:
            releases.add_release(folder, registry, each)
        listed = releases.read_releases(registry)
    if print_data(form, listed):
        return
    target_of = attrgetter("version", "board", "python", "glibc")
    table = Table("version", "board", "Python", "glibc", "size", "sha256", right={"size"})
    for entry in listed:
        table.add_row(*target_of(entry), f"{entry.size_bytes / 1e6:.1f} MB", entry.sha256[:12])
    console_for(form).print(table)
