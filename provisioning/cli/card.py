"""The command `edgemeter fleet card`."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.options import format_option
from edgemeter.agent.base.progress import progress_bar
from edgemeter.agent.base.tables import Format, print_data
from edgemeter.provisioning.cli.options import in_folder

if TYPE_CHECKING:
    from edgemeter.provisioning.image.preparing import CardPlan, CardRequest, ReleaseFiles

# As in image/detect.py, which is not imported for --help; a test compares the two.
FORMATS = ["cloudinit", "preseed", "firstrun", "cidata"]
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
FILE = click.Path(path_type=Path)
_JOIN = ".join.toml"


def _size(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = re.fullmatch(r"(\d+)([KMG]?)", value.upper())
    if not match:
        raise click.BadParameter(f"{value!r} is not a size: give bytes, or 64M, 1G")
    return int(match[1]) * UNITS[match[2]]


@click.command()
@click.argument("target", required=False, type=FILE, metavar="[IMAGE|CARD|FOLDER]")
@click.option("--release", required=True, type=FILE, help="Release for this board: a folder or tar of `edgemeter fleet release build`.")
@click.option(
    "--join",
    "join_path",
    required=True,
    type=FILE,
    help="Join file of the board, from `edgemeter fleet token`; or a folder of such files: one image for each of their boards.",
)
@click.option("--public-key", type=FILE, help="Key to verify the release with. Default: release.pub in the fleet folder.")
@click.option(
    "--first-boot",
    type=click.Choice(FORMATS),
    help="First-boot format of the system. Default: detected on the card.",
)
@click.option("--user", help="Name of the first account; needs --ssh-key.")
@click.option("--ssh-key", type=FILE, help="File with the public SSH keys that may log in.")
@click.option("--hostname", help="Host name of the board; {device} in it is the board's name in the fleet. Default: that of the system.")
@click.option("--wifi-ssid", help="Name of the Wi-Fi network.")
@click.option("--wifi-psk-file", type=FILE, help="File with its passphrase. Default: the network is open.")
@click.option("--wifi-country", help="Country of the radio: two letters. Default: that of the system.")
@click.option("--partition", type=click.IntRange(1), help="Number of the boot partition, if several are FAT.")
@click.option("--make-stick", type=FILE, help="Make a new stick image labelled CIDATA instead, for any system with cloud-init.")
@click.option("--size", callback=_size, help="Size of the stick: 64M, 1G. Default: as needed, with some spare room.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@format_option("", "table", "json")
@in_folder
def card(target: Path | None, make_stick: Path | None, **options: Any) -> None:
    """Prepare an image file, a card (/dev/sdX) or a mounted boot partition (its folder), so that its board joins the fleet.

    An image in .gz or .xz is unpacked next to it. With a folder of join files, each board gets an image that is named after it.

    Example: edgemeter fleet card raspios.img --release pi5.tar --join pi5-01.join.toml
    """
    from edgemeter.provisioning.image.preparing import new_stick, open_release

    if (target is None) == (make_stick is None):
        raise click.UsageError("give either an image, a card or a folder, or --make-stick FILE")
    if options["size"] is not None and make_stick is None:
        raise click.UsageError("--size is that of a stick: give --make-stick FILE too")
    public_key: Path = options["public_key"] or options["folder"].release_public_key
    joins = _joins(options["join_path"])
    if joins and (target is None or not target.is_file()):
        raise click.UsageError("--join FOLDER makes one image for each join file: give an image file")
    if len(joins) > 1 and "{device}" not in (options["hostname"] or "{device}"):
        raise click.UsageError("several boards cannot have one host name: give --hostname '{device}', or another with {device} in it")
    with open_release(options["release"], public_key) as release:
        if make_stick is not None:
            request = _request(release, public_key, options)
            with new_stick(make_stick, request, options["size"], is_dry=options["dry_run"]) as path:
                _prepare(path, make_stick, request, options)
        elif target is not None:
            for join in joins or [options["join_path"]]:
                request = _request(release, public_key, {**options, "join_path": join})
                with _image_of(target, join if joins else None, is_dry=options["dry_run"]) as (path, named):
                    _prepare(path, named, request, options)


def _joins(path: Path) -> list[Path]:
    """Return the join files of a folder; none where a file was given. Raises ConfigError if the folder has none."""
    if not path.is_dir():
        return []
    join_files = sorted(path.glob(f"*{_JOIN}"))
    if not join_files:
        raise ConfigError(f"there is no *{_JOIN} in {str(path)!r}: `edgemeter fleet token DEVICE... --output {path}` writes them")
    return join_files


@contextmanager
def _image_of(target: Path, join: Path | None, *, is_dry: bool) -> Iterator[tuple[Path, Path]]:
    """Yield what is to be prepared, and its final path: the target itself, or a copy for the board of a join file."""
    from edgemeter.provisioning.image.preparing import is_compressed, unpacked_copy

    if join is None and not is_compressed(target):
        yield target, target
        return
    plain = target.with_suffix("") if target.suffix in {".gz", ".xz"} else target
    board = f"-{join.name.removesuffix(_JOIN)}" if join is not None else "-unpacked" if plain == target else ""
    path = plain.with_name(f"{plain.stem}{board}{plain.suffix or '.img'}")
    with (
        progress_bar("bytes") as report,
        unpacked_copy(target, path, lambda checked_bytes, total: report("checking the image", checked_bytes, total), is_dry=is_dry) as copy,
    ):
        yield copy, path


def _request(release: "ReleaseFiles", public_key: Path, options: dict[str, Any]) -> "CardRequest":
    """Return the requested contents of the card; every file that the options name is read and checked."""
    from edgemeter.provisioning.image import settings
    from edgemeter.provisioning.image.preparing import CardRequest

    if options["user"] and not options["ssh_key"]:
        raise click.UsageError("--user needs --ssh-key FILE: without a key nobody can log in")
    if (options["wifi_psk_file"] or options["wifi_country"]) and not options["wifi_ssid"]:
        raise click.UsageError("--wifi-psk-file and --wifi-country need --wifi-ssid")
    join = settings.read_join_file(options["join_path"])
    wifi = join.wifi
    if options["wifi_ssid"]:
        phrase = settings.read_passphrase(options["wifi_psk_file"]) if options["wifi_psk_file"] else None
        where = "--wifi-ssid, --wifi-psk-file, --wifi-country"
        wifi = settings.checked_wifi(options["wifi_ssid"], phrase, options["wifi_country"], where)
    first_boot = settings.FirstBootSettings(
        user=settings.checked_user(options["user"]) if options["user"] else None,
        ssh_keys=settings.ssh_keys(options["ssh_key"]) if options["ssh_key"] else (),
        hostname=settings.checked_hostname(options["hostname"], join.device) if options["hostname"] else None,
        wifi=wifi,
    )
    return CardRequest(release=release, join=join.text, public_key=public_key.read_bytes(), settings=first_boot, form=options["first_boot"])


def _prepare(path: Path, named: Path, request: "CardRequest", options: dict[str, Any]) -> None:
    """Plan, print the plan, write, and read back through a new handle; `named` is the final path."""
    from edgemeter.provisioning.image.boot_partition import open_boot_partition
    from edgemeter.provisioning.image.preparing import carry_out, plan_card, verify_card

    number, is_dry = options["partition"], options["dry_run"]
    with open_boot_partition(path, "read" if is_dry else "write", number) as boot:
        plan = plan_card(boot, request)
        _print_notes(named, plan, request)
        if not is_dry:
            with _counting("writing", plan.size_bytes) as wrote:
                carry_out(boot, plan, wrote)
    if not is_dry:
        with open_boot_partition(path, "read", number) as reopened, _counting("reading back", plan.size_bytes) as read:
            verify_card(reopened, plan, read)
    _print(named, plan, is_dry=is_dry, form=options["form"])


def _print_notes(named: Path, plan: "CardPlan", request: "CardRequest") -> None:
    release = request.release.manifest
    click.echo(f"{named}: {plan.chosen.form}, because {plan.chosen.why}", err=True)
    contents = f"edgemeter {release.version} for {release.board} ({release.arch}, Python {release.python}, glibc {release.glibc})"
    click.echo(f"release: {contents}", err=True)
    if plan.previous:
        click.echo(f"removing an earlier preparation for another format: {', '.join(plan.previous)}", err=True)
    for name in plan.also_firing:
        click.echo(f"warning: {name} also acts at the first boot: delete it if that is not intended", err=True)
    for why in plan.misfits:
        click.echo(f"warning: {why}", err=True)
    wifi = request.settings.wifi
    if wifi is not None and wifi.country is None:
        click.echo("warning: Raspberry Pi OS keeps the radio off until it knows the country: add --wifi-country", err=True)
    if request.settings.user:
        click.echo(f"{request.settings.user} logs in with the key, has no password, and may use sudo without one", err=True)


def _print(named: Path, plan: "CardPlan", *, is_dry: bool, form: Format) -> None:
    from edgemeter.provisioning.fat.volume import PutFile

    files = {change.path: change.content.size_bytes for change in plan.changes() if isinstance(change, PutFile)}
    removed = [change.path for change in plan.changes() if not isinstance(change, PutFile)]
    document = {
        "target": str(named),
        "format": plan.chosen.form,
        "why": plan.chosen.why,
        "also_firing": plan.also_firing,
        "misfits": plan.misfits,
        "dry_run": is_dry,
        "written": [{"path": path, "size_bytes": size_bytes} for path, size_bytes in files.items()],
        "removed": removed,
        "unchanged": plan.unchanged,
        "verified": not is_dry,
    }
    if print_data(form, document):
        return
    if is_dry:
        for path, size_bytes in files.items():
            click.echo(f"write   {size_bytes:>12,}  {path}")
        for path in removed:
            click.echo(f"remove  {'':>12}  {path}")
    tail = "nothing was written" if is_dry else "every byte read back" if files or removed else "it was prepared already"
    parts = [f"{'would write' if is_dry else 'wrote'} {count(len(files), 'file')}, {plan.size_bytes / 1e6:,.1f} MB"]
    parts += [f"{'would remove' if is_dry else 'removed'} {len(removed)}"] if removed else []
    parts += [f"{plan.unchanged} unchanged"] if plan.unchanged else []
    click.echo(f"{', '.join(parts)}; {tail}")


@contextmanager
def _counting(step: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Yield what shows a progress bar of the bytes that it is called with."""
    done_bytes = 0
    with progress_bar("bytes") as report:

        def passed(size_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += size_bytes
            report(step, done_bytes, total_bytes)

        yield passed
