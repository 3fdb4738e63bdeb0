"""The commands `edgemeter fleet bundle`, `fleet bundle check` and `fleet boards`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

if TYPE_CHECKING:
    from edgemeter.provisioning.bundle.boards import Target
    from edgemeter.provisioning.bundle.release import Built
    from edgemeter.provisioning.bundle.smoke import Checked

_FILE = click.Path(path_type=Path, dir_okay=False)
_ROOT_HELP = "An arm64 system, folder or tar, to import the packages in. Default: $EDGEMETER_ARM64/root."


def _extras(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))


@click.group(invoke_without_command=True)
@folder_option
@click.option("--board", metavar="NAME", help="The board that it is for; `edgemeter fleet boards` lists them.")
@click.option("--python", metavar="X.Y", help="The Python on the board. Default: that of its usual system.")
@click.option("--glibc", metavar="X.Y", help="The glibc on the board. Default: that of the system with this Python.")
@click.option(
    "--extras", default="litert", show_default=True, callback=_extras, metavar="A,B", help="Runtimes and other extras of edgemeter."
)
@click.option("--wheel", type=_FILE, help="Edgemeter's wheel. Default: made of what is installed here.")
@click.option("--key", type=_FILE, help="The key that signs it. Default: the fleet's release.key.")
@click.option("--root", type=click.Path(path_type=Path, exists=True), help=_ROOT_HELP)
@click.option("--out", type=_FILE, help="The file to write. Default: named for what it is.")
@click.option("--dry-run", is_flag=True, help="Collect and check all, say what would be built, and write nothing.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.pass_context
def bundle(
    ctx: click.Context,
    *,
    folder: FleetFolder,
    board: str | None,
    python: str | None,
    glibc: str | None,
    extras: tuple[str, ...],
    wheel: Path | None,
    key: Path | None,
    root: Path | None,
    out: Path | None,
    dry_run: bool,
    is_json: bool,
) -> None:
    """Build a signed bundle of all that a board needs to run the agent; it installs there with no network.

    Example: edgemeter fleet bundle --board pi5 --python 3.13 --extras litert,onnx
    """
    if ctx.invoked_subcommand is not None:
        return
    from edgemeter.provisioning.bundle import boards, release, smoke

    if board is None:
        message = "Missing option '--board': `edgemeter fleet boards` lists them."
        raise click.UsageError(message)
    target = boards.target(board, python, glibc)
    wish = release.Wish(target, extras, key or folder.release_key, wheel, root or smoke.default_root())
    built = release.build(
        wish, out, lambda step: click.echo(f"{step} ...", err=True) if sys.stderr.isatty() else None, is_rehearsal=dry_run
    )
    _print_built(built, target, dry_run=dry_run, is_json=is_json)


def _print_built(built: "Built", target: "Target", *, dry_run: bool, is_json: bool) -> None:
    from edgemeter.provisioning.bundle import boards

    found = built.manifest
    if is_json:
        said = {"path": str(built.path), "size_bytes": built.size_bytes, "dry_run": dry_run, **_told(found)}
        click.echo(json.dumps(said, indent=1))
        return
    for file in sorted(found.files, key=lambda file: -file.size_bytes):
        click.echo(f"{file.size_bytes / 1e6:9.2f} MB  {file.path}")
    click.echo(f"{built.size_bytes / 1e6:9.2f} MB  {'would write ' if dry_run else ''}{built.path}")
    click.echo(f"release {found.version} for {target.words}; {found.checked}")
    click.echo(f"level {boards.level(target)}")


@bundle.command()
@folder_option
@click.argument("path", metavar="BUNDLE", type=click.Path(path_type=Path, exists=True))
@click.option("--board", metavar="NAME", help="The board whose processor it is tried for. Default: the one that it was built for.")
@click.option("--root", type=click.Path(path_type=Path, exists=True), help=_ROOT_HELP)
@click.option("--public-key", type=_FILE, help="The key to check it by. Default: the fleet's release.pub.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def check(
    folder: FleetFolder,
    path: Path,
    board: str | None,
    root: Path | None,
    public_key: Path | None,
    is_json: bool,  # noqa: FBT001 - click's
) -> None:
    """Verify a bundle's signature and hashes, and import its native packages as its board would.

    Example: edgemeter fleet bundle check edgemeter-pi5.tar
    """
    from edgemeter.provisioning.bundle import bundle_check, smoke

    verified, checked = bundle_check.check(path, public_key or folder.release_public_key, board, root or smoke.default_root())
    if is_json:
        said = {"path": str(path), **_told(verified.manifest), "now": checked.words, "dead": dict(checked.dead)}
        click.echo(json.dumps(said, indent=1))
    else:
        found = verified.manifest
        click.echo(f"{path}: release {found.version} for {found.board} ({found.arch}, Python {found.python}, glibc >= {found.glibc})")
        click.echo(f"signature and {len(found.files)} files are right; when it was built: {found.checked}")
        _print_imports(checked)
    smoke.refuse_dead(checked)


@click.command()
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def boards(is_json: bool) -> None:  # noqa: FBT001 - click's
    """Show the boards that bundles are built for, and how the agent gets onto each.

    Example: edgemeter fleet boards
    """
    import msgspec

    from edgemeter.provisioning.bundle import boards as known
    from edgemeter.provisioning.inventory import narrow_table

    found = known.table()
    if is_json:
        click.echo(json.dumps(msgspec.to_builtins(found), indent=1))
        return
    rows = []
    for name, board in found.items():
        for place, system in enumerate(board.system):
            first = (name, board.title, board.arch) if place == 0 else ("", "", "")
            rows.append((*first, system.name, system.python, system.glibc, system.level))
    headings = ("board", "what", "processor", "system", "Python", "glibc", "level")
    narrow_table.show(narrow_table.table(headings, rows, folded={"what", "system"}))
    for level, words in known.LEVELS.items():
        click.echo(f"{level}: {words}")


def _told(found: Any) -> dict[str, Any]:
    return {**found._asdict(), "files": [file._asdict() for file in found.files]}


def _print_imports(checked: "Checked") -> None:
    for name in checked.imported:
        click.echo(f"  imported  {name}")
    for name, why in checked.dead:
        click.echo(f"  DEAD      {name}: {why}")
    click.echo(checked.words)
