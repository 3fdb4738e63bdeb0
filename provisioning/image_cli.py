"""The command `edgemeter fleet image`."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.provisioning.folder_option import folder_option

if TYPE_CHECKING:
    from edgemeter.provisioning.image.bundle_files import BundleFiles
    from edgemeter.provisioning.image.preparing import Order, Plan

# As in image/detect.py, which is not imported for --help; a test compares the two.
FORMATS = ["cloudinit", "preseed", "firstrun", "cidata"]
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
FILE = click.Path(path_type=Path)


def _size(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d+)([KMG]?)", value.upper())
    if not found:
        message = f"{value!r} is no size: give bytes, or 64M, 1G"
        raise click.BadParameter(message)
    return int(found[1]) * UNITS[found[2]]


@click.command()
@click.argument("target", required=False, type=FILE)
@click.option("--bundle", required=True, type=FILE, help="The agent for this board: the folder or tar of `edgemeter fleet bundle`.")
@click.option("--join", "join_path", required=True, type=FILE, help="The file with which the board joins, from `edgemeter fleet token`.")
@click.option("--public-key", type=FILE, help="By which bundles are checked. Default: the fleet folder's release.pub.")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="How the system is set up at its first boot. Default: what the card shows."
)
@click.option("--user", help="Name of the first account; needs --ssh-key.")
@click.option("--ssh-key", type=FILE, help="File with public SSH keys that may log in.")
@click.option("--hostname", help="Name of the host.")
@click.option("--wifi-ssid", help="Name of the Wi-Fi network.")
@click.option("--wifi-psk-file", type=FILE, help="File with its passphrase. Default: the network is open.")
@click.option("--wifi-country", help="Where the radio is used: two letters. Default: as the system has it.")
@click.option("--partition", type=click.IntRange(1), help="Which partition boots, when several are FAT.")
@click.option("--make-stick", type=FILE, help="Make a new stick image labelled CIDATA instead, for any system with cloud-init.")
@click.option("--size", callback=_size, help="How large the stick is: 64M, 1G. Default: what is needed, and room to spare.")
@click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
@folder_option
def image(target: Path | None, make_stick: Path | None, **options: Any) -> None:
    """Prepare an image, a card or a mounted boot partition, so that its board joins the fleet by itself at its first boot.

    Example: edgemeter fleet image raspios.img --bundle pi5.tar --join pi5-01.toml
    """
    from edgemeter.provisioning.image import bundle_files, stick

    if (target is None) == (make_stick is None):
        message = "give either an image, a card or a folder, or --make-stick FILE"
        raise click.UsageError(message)
    if options["size"] is not None and make_stick is None:
        message = "--size is that of a stick: give --make-stick FILE too"
        raise click.UsageError(message)
    public_key: Path = options["public_key"] or options["folder"].release_public_key
    with bundle_files.opened(options["bundle"], public_key) as bundle:
        order = _order(bundle, public_key, options)
        if make_stick is not None:
            with stick.made(make_stick, order, options["size"], is_dry=options["dry_run"]) as path:
                _prepare(path, make_stick, order, options)
        elif target is not None:
            _prepare(target, target, order, options)


def _order(bundle: "BundleFiles", public_key: Path, options: dict[str, Any]) -> "Order":
    """Return what is to be on the card, by the options; every file that they name is read and checked."""
    from edgemeter.provisioning.image import joining, settings
    from edgemeter.provisioning.image.preparing import Order

    if options["user"] and not options["ssh_key"]:
        message = "--user needs --ssh-key FILE: without a key nobody could log in"
        raise click.UsageError(message)
    if (options["wifi_psk_file"] or options["wifi_country"]) and not options["wifi_ssid"]:
        message = "--wifi-psk-file and --wifi-country need --wifi-ssid"
        raise click.UsageError(message)
    join = joining.read(options["join_path"])
    wifi = join.wifi
    if options["wifi_ssid"]:
        phrase = settings.phrase(options["wifi_psk_file"]) if options["wifi_psk_file"] else None
        wifi = settings.wifi(options["wifi_ssid"], phrase, options["wifi_country"], "--wifi-ssid, --wifi-psk-file, --wifi-country")
    said = settings.Settings(
        user=settings.checked_user(options["user"]) if options["user"] else None,
        ssh_keys=settings.ssh_keys(options["ssh_key"]) if options["ssh_key"] else (),
        hostname=settings.checked_hostname(options["hostname"]) if options["hostname"] else None,
        wifi=wifi,
    )
    return Order(bundle=bundle, join=join.text, public_key=public_key.read_bytes(), settings=said, form=options["form"])


def _prepare(path: Path, named: Path, order: "Order", options: dict[str, Any]) -> None:
    """Plan, say so, write, and read back what was written through a fresh handle; `named` is what `path` will be called."""
    from edgemeter.provisioning.image import boot_partition, preparing

    number, is_dry, as_json = options["partition"], options["dry_run"], options["as_json"]
    with boot_partition.opened(path, "read" if is_dry else "write", number) as boot:
        plan = preparing.plan(boot, order)
        _say(named, plan, order)
        if not is_dry:
            with _progress("writing", plan.size_bytes) as wrote:
                preparing.carry_out(boot, plan, wrote)
    if not is_dry:
        with boot_partition.opened(path, "read", number) as again, _progress("reading back", plan.size_bytes) as read:
            preparing.verify(again, plan, read)
    if as_json:
        _print_json(named, plan, is_dry=is_dry)
    else:
        _print(plan, is_dry=is_dry)


def _say(named: Path, plan: "Plan", order: "Order") -> None:
    bundle = order.bundle.manifest
    click.echo(f"{named}: {plan.chosen.form}, because {plan.chosen.why}", err=True)
    what = f"edgemeter {bundle.version} for {bundle.board} ({bundle.arch}, Python {bundle.python}, glibc {bundle.glibc})"
    click.echo(f"bundle: {what}; checked: {bundle.checked}", err=True)
    if plan.former:
        click.echo(f"what an earlier preparation for another format wrote goes: {', '.join(plan.former)}", err=True)
    for found in plan.also_firing:
        click.echo(f"warning: {found} is on the card too and acts at the first boot as well: delete it if that is not wanted", err=True)
    wifi = order.settings.wifi
    if wifi is not None and wifi.country is None:
        click.echo("warning: Raspberry Pi OS keeps the radio off until it knows the country: add --wifi-country", err=True)
    if order.settings.user:
        click.echo(f"{order.settings.user} logs in with the key, has no password, and may use sudo without one", err=True)


def _print(plan: "Plan", *, is_dry: bool) -> None:
    from edgemeter.provisioning.image.changes import Put

    puts = [change for change in plan.changes() if isinstance(change, Put)]
    removed = [change for change in plan.changes() if not isinstance(change, Put)]
    if is_dry:
        for put in puts:
            click.echo(f"write   {put.content.size_bytes:>12,}  {put.path}")
        for change in removed:
            click.echo(f"remove  {'':>12}  {change.path}")
    done = "would write" if is_dry else "wrote"
    tail = "nothing was written" if is_dry else "every byte read back" if puts or removed else "it was prepared already"
    parts = [f"{done} {len(puts)} files, {plan.size_bytes / 1e6:,.1f} MB"]
    parts += [f"{'would remove' if is_dry else 'removed'} {len(removed)}"] if removed else []
    parts += [f"{plan.unchanged} are as they should be"] if plan.unchanged else []
    click.echo(f"{', '.join(parts)}; {tail}")


def _print_json(named: Path, plan: "Plan", *, is_dry: bool) -> None:
    import json

    from edgemeter.provisioning.image.changes import Put

    said = {
        "target": str(named),
        "format": plan.chosen.form,
        "why": plan.chosen.why,
        "also_firing": plan.also_firing,
        "dry_run": is_dry,
        "written": [{"path": put.path, "size_bytes": put.content.size_bytes} for put in plan.changes() if isinstance(put, Put)],
        "removed": [change.path for change in plan.changes() if not isinstance(change, Put)],
        "unchanged": plan.unchanged,
        "verified": not is_dry,
    }
    click.echo(json.dumps(said, indent=2))


def _progress(what: str, size_bytes: int) -> Any:
    """Return a context whose value is told of bytes as they pass: a bar on a terminal, else silence."""
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def shown() -> Any:
        with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task(what, total=size_bytes)
            yield lambda passed: bar.advance(task, passed)

    return shown()
