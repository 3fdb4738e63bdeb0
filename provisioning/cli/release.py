"""The commands `edgemeter fleet release` and `edgemeter fleet boards`."""

import sys
import time
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.command_group import DefaultGroup
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.options import format_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import print_text
from edgemeter.provisioning.cli.options import FILE, in_folder
from edgemeter.provisioning.identity import release_keys
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.formatting import narrow_table
from edgemeter.provisioning.update import releases

if TYPE_CHECKING:
    from edgemeter.provisioning.release.boards import ReleaseTarget
    from edgemeter.provisioning.release.build import BuiltRelease


@click.group(cls=DefaultGroup)
def release() -> None:
    """Build, sign, check and add releases: all that a board needs to run the agent, in one signed file, installed without a network.

    Example: edgemeter fleet release build --board pi5 --python 3.13
    """


@release.command(short_help="Verify releases and add them to the fleet.")
@click.argument("paths", metavar="RELEASE...", type=click.Path(path_type=Path), nargs=-1, required=True)
@format_option("", "table", "json")
@in_folder
def add(paths: tuple[Path, ...], folder: FleetFolder, *, form: Format) -> None:
    """Verify releases with the fleet's key and add them to those that `edgemeter fleet update` installs.

    Example: edgemeter fleet release add edgemeter-1.2.0-pi5.tar
    """
    verified = [releases.inspect_release(folder, path) for path in paths]
    with open_registry(folder) as registry:
        added = [releases.add_release(folder, registry, release) for release in verified]
    if print_data(form, added):
        return
    for each in added:
        click.echo(f"{each.version} for {each.board} ({each.arch}, Python {each.python}, glibc {each.glibc}): {each.sha256[:12]}")


@release.command()
@click.option("--public-key", type=FILE, help="Public key of a new pair whose private key stays elsewhere.")
@click.option("--finish", "finishes", is_flag=True, help="Drop the old key: devices reject it from their next update on.")
@click.option("--even-if", type=click.Choice(["behind"]), help="behind: finish although some devices trust only the old key.")
@click.option("--dry-run", is_flag=True, help="Show which devices have not taken the new key, and change nothing.")
@in_folder
def rotate(folder: FleetFolder, *, public_key: Path | None, finishes: bool, even_if: str | None, dry_run: bool) -> None:
    """Replace the key that signs releases, over the air.

    Begin, update all devices to a release signed with the old key, then end it with --finish.

    Example: edgemeter fleet release rotate
    """
    if finishes and public_key is not None:
        raise click.UsageError("--public-key begins a rotation, --finish ends one: give one of them")
    trusted = release_keys.read_keys(folder.release_public_key)
    with open_registry(folder, read_only=True) as registry:
        behind = release_keys.devices_behind(registry, trusted.since_ns) if trusted.is_open else []
    if dry_run:
        click.echo(f"{len(trusted.keys)} release keys, number {trusted.number}; not taken yet by {', '.join(behind) or 'no device'}")
    elif not finishes:
        rotated = release_keys.begin_rotation(folder, public_key, time.time_ns())
        click.echo(
            f"release keys, number {rotated.number}: devices trust the new key and the old one once they run a release built from now on"
        )
        click.echo(
            "sign with the old key until you finish: release build, release add, update, then `edgemeter fleet release rotate --finish`"
        )
    elif behind and even_if is None:
        raise ConfigError(
            f"{len(behind)} devices run no release built since the rotation began ({', '.join(behind[:5])}): update them first, "
            "or leave them to `edgemeter fleet apply` with --even-if behind"
        )
    else:
        rotated = release_keys.finish_rotation(folder, time.time_ns())
        click.echo(f"release keys, number {rotated.number}: sign with the new key; each device rejects the old one after its next update")


@release.command()
@click.argument("version", required=False)
@in_folder
def lowest(version: str | None, folder: FleetFolder) -> None:
    """Show or set the lowest release that devices install.

    It holds even for `--even-if older`, and travels in the next release that you build, under its signature.

    Example: edgemeter fleet release lowest 1.2.0
    """
    if version is None:
        click.echo(release_keys.read_keys(folder.release_public_key).lowest or "any release")
    else:
        keys = release_keys.set_lowest(folder, version)
        click.echo(
            f"release keys, number {keys.number}: devices refuse releases before {version} once they run a release built from now on"
        )


@release.command("list")
@format_option()
@in_folder
def list_releases(folder: FleetFolder, *, form: Format) -> None:
    """List the releases, the newest first.

    Example: edgemeter fleet release list
    """
    with open_registry(folder, read_only=True) as registry:
        listed = releases.read_releases(registry)
    if print_data(form, listed):
        return
    target_of = attrgetter("version", "board", "python", "glibc")
    rows = [(*target_of(release), f"{release.size_bytes / 1e6:.1f} MB", release.sha256[:12]) for release in listed]
    headings = ("version", "board", "Python", "glibc", "size", "sha256")
    console_for(form).print(narrow_table(headings, rows, folded=(), right={"size"}))


def _extras(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))


@release.command(short_help="Build a signed release for a board.")
@in_folder
@click.option("--board", required=True, metavar="NAME", help="Board to build for; `edgemeter fleet boards` lists them.")
@click.option("--python", metavar="X.Y", help="Python version on the board. Default: that of its usual system.")
@click.option("--glibc", metavar="X.Y", help="glibc version on the board. Default: that of the system with this Python.")
@click.option(
    "--extras", default="litert", show_default=True, callback=_extras, metavar="A,B", help="Runtimes and other extras to include."
)
@click.option("--wheel", type=FILE, help="Wheel of edgemeter. Default: made of what is installed here.")
@click.option(
    "--signing-key-file",
    "key",
    type=FILE,
    help="Key to sign with. Default: release.key in the fleet folder; if it is elsewhere, the release is signed there.",
)
@click.option("-o", "--output", "out", type=FILE, help="Output file. Default: a name with version, board and Python.")
@click.option("--dry-run", is_flag=True, help="Collect and check everything, show the result, and write nothing.")
@format_option("", "table", "json")
def build(
    *,
    folder: FleetFolder,
    board: str,
    python: str | None,
    glibc: str | None,
    extras: tuple[str, ...],
    wheel: Path | None,
    key: Path | None,
    out: Path | None,
    dry_run: bool,
    form: Format,
) -> None:
    """Build a signed release with everything that a board needs to run the agent; it installs without a network.

    Example: edgemeter fleet release build --board pi5 --python 3.13 --extras litert,onnx
    """
    from edgemeter.provisioning.release import boards as known
    from edgemeter.provisioning.release.build import ReleaseRequest, build_release

    target = known.release_target(board, python, glibc)
    public = folder.release_public_key if folder.release_public_key.exists() else None
    # A fleet whose release key is elsewhere has the public one alone.
    signing = key or (None if public is not None and not folder.release_key.exists() else folder.release_key)
    request = ReleaseRequest(target, extras, signing, wheel, public)
    built = build_release(request, out, lambda step: click.echo(f"{step} ...", err=True) if sys.stderr.isatty() else None, is_dry=dry_run)
    _print_built(built, target, dry_run=dry_run, form=form)
    if signing is None and not dry_run:
        click.echo(
            f"not signed yet: where the release key is, run `edgemeter fleet release sign {built.path} --signing-key-file release.key`",
            err=True,
        )


def _print_built(built: "BuiltRelease", target: "ReleaseTarget", *, dry_run: bool, form: Format) -> None:
    from edgemeter.provisioning.release import boards as known

    manifest = built.manifest
    if print_data(form, {"path": str(built.path), "size_bytes": built.size_bytes, "dry_run": dry_run, **_fields(manifest)}):
        return
    for file in sorted(manifest.files, key=lambda file: -file.size_bytes):
        click.echo(f"{file.size_bytes / 1e6:9.2f} MB  {file.path}")
    click.echo(f"{built.size_bytes / 1e6:9.2f} MB  {'would write ' if dry_run else ''}{built.path}")
    click.echo(f"release {manifest.version} for {target.words}")
    click.echo(f"level {known.support_level(target)}")
    if advice := known.find_board(target.board).accelerators:
        click.echo(f"more on this board: {advice}")


@release.command(short_help="Sign a release that was built elsewhere.")
@in_folder
@click.argument("path", metavar="RELEASE", type=FILE)
@click.option("--signing-key-file", "key", type=FILE, help="Key to sign with. Default: release.key in the fleet folder.")
@click.option("-o", "--output", "out", type=FILE, help="Output file. Default: the input file.")
def sign(folder: FleetFolder, path: Path, key: Path | None, out: Path | None) -> None:
    """Sign a release that was built where the release key is not; needs no network and no fleet folder.

    Example: edgemeter fleet release sign edgemeter-pi5.tar --signing-key-file /media/stick/release.key
    """
    from edgemeter.provisioning.release import manifest
    from edgemeter.provisioning.release.build import sign_release

    unsigned = manifest.unsigned_release(path)
    sign_release(path, key or folder.release_key, out)
    click.echo(f"signed {unsigned.manifest.version} for {unsigned.manifest.board}: {out or path}")


@release.command(short_help="Verify a release's signature and hashes.")
@in_folder
@click.argument("path", metavar="RELEASE", type=click.Path(path_type=Path))
@click.option("--public-key", type=FILE, help="Key to verify with. Default: release.pub in the fleet folder.")
@format_option("", "table", "json")
def check(folder: FleetFolder, *, path: Path, public_key: Path | None, form: Format) -> None:
    """Verify a release's signature and hashes.

    Example: edgemeter fleet release check edgemeter-pi5.tar
    """
    from edgemeter.provisioning.release.manifest import read_release

    manifest = read_release(path, public_key or folder.release_public_key).manifest
    if print_data(form, {"path": str(path), **_fields(manifest)}):
        return
    target = f"{manifest.board} ({manifest.arch}, Python {manifest.python}, glibc >= {manifest.glibc})"
    click.echo(f"{path}: release {manifest.version} for {target}")
    click.echo(f"the signature and {count(len(manifest.files), 'file')} are valid")


@click.command()
@format_option()
def boards(form: Format) -> None:
    """List the boards that releases are built for, and how the agent is installed on each.

    Example: edgemeter fleet boards
    """
    import msgspec

    from edgemeter.provisioning.release import boards as known

    boards_by_name = known.all_boards()
    plain = msgspec.to_builtins(boards_by_name)
    if print_data(form, [{"board": name, **board} for name, board in plain.items()] if form == "csv" else plain):
        return
    rows = []
    for name, board in boards_by_name.items():
        for index, system in enumerate(board.system):
            first = (name, board.title, board.arch) if index == 0 else ("", "", "")
            rows.append((*first, system.name, system.python, system.glibc, system.level))
    headings = ("board", "what", "processor", "system", "Python", "glibc", "level")
    console = console_for(form)
    console.print(narrow_table(headings, rows, folded={"what", "system"}))
    print_text(console, "Without further options a release for arm runs on the CPU only. What else can be used:")
    for name, board in boards_by_name.items():
        if board.accelerators:
            print_text(console, f"{name}: {board.accelerators}")
    for level, words in known.LEVELS.items():
        print_text(console, f"{level}: {words}")


def _fields(manifest: Any) -> dict[str, Any]:
    return {**manifest._asdict(), "files": [file._asdict() for file in manifest.files]}
