"""The command `edgemeter fleet card`."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from edgemeter.agent.base.cli.options import format_option
from edgemeter.agent.base.cli.tables import Format, print_data
from edgemeter.agent.base.number_text import count
from edgemeter.provisioning.cli.options import FILE, in_folder
from edgemeter.provisioning.image.adapter_text import BootFormat

if TYPE_CHECKING:
    from edgemeter.provisioning.inventory.fleet_folder import FleetFolder


@click.command()
@click.argument("image", type=click.Path(path_type=Path), metavar="IMAGE|FOLDER")
@click.option(
    "--release",
    required=True,
    type=click.Path(path_type=Path),
    help="Release for this board, of `edgemeter fleet release build`.",
)
@click.option(
    "--join", required=True, type=FILE, help="Join file of the board, from `edgemeter fleet token`."
)
@click.option(
    "--first-boot",
    type=click.Choice(get_args(BootFormat)),
    help="First-boot format of the system. Default: detected.",
)
@click.option("--wifi-ssid", help="Name of the Wi-Fi network. Default: the network of the system.")
@click.option(
    "--wifi-psk-file", type=FILE, help="File with its passphrase. Default: the network is open."
)
@click.option(
    "--wifi-country", help="Country of the radio: two letters. Default: that of the system."
)
@format_option("", "table", "json")
@in_folder
def card(folder: "FleetFolder", image: Path, form: Format, **options: Any) -> None:
    """Prepare an image so that its board joins at first boot.

    Give an image file, or the folder of a mounted boot partition.

    Example: edgemeter fleet card raspios.img --release pi5.tar --join pi5-01.join.toml
    """
    from edgemeter.provisioning.image.boot_partition import open_boot_partition
    from edgemeter.provisioning.image.preparing import prepare_card
    from edgemeter.provisioning.image.wifi import read_wifi

    wifi = None
    if options["wifi_ssid"]:
        wifi = read_wifi(options["wifi_ssid"], options["wifi_psk_file"], options["wifi_country"])
    elif options["wifi_psk_file"] or options["wifi_country"]:
        raise click.UsageError("--wifi-psk-file and --wifi-country need --wifi-ssid")
    boot, public_key = open_boot_partition(image), folder.release_public_key
    prepared = prepare_card(
        boot, options["release"], public_key, options["join"], wifi, options["first_boot"]
    )
    if wifi is not None and wifi.country is None:
        prepared.warnings.append(
            "Raspberry Pi OS keeps the radio off until it knows the country: add --wifi-country"
        )
    for warning in prepared.warnings:
        click.echo(f"warning: {warning}", err=True)
    if print_data(form, {"target": str(image), **asdict(prepared)}):
        return
    click.echo(f"first boot by {prepared.first_boot}, because {prepared.why}")
    written = (
        f"{count(prepared.files, 'file')}, {prepared.size_bytes / 1e6:,.1f} MB, each read back"
    )
    click.echo(f"edgemeter {prepared.release} for {prepared.board}: {written}")
    if image.is_dir():
        click.echo(
            f"eject the card (umount {shlex.quote(str(image))}), and start the board with it"
        )
    else:
        click.echo(
            f"write it to a card (lsblk shows its name):  sudo dd if={shlex.quote(str(image))} "
            "of=/dev/sdX bs=4M conv=fsync"
        )
        click.echo(
            f'or by Raspberry Pi Imager: "Use custom", {image.name}, and no customisation, which '
            "would replace this"
        )
