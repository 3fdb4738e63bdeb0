"""The commands `edgemeter bundle`: verify and show bundles of results, and create a key that signs them."""

import sys
from pathlib import Path

import click

from edgemeter.agent.base.options import PATH, format_option
from edgemeter.agent.base.tables import Format, console_for, print_data


@click.group()
def bundle() -> None:
    """Verify and show the bundles of `edgemeter run --bundle DIR`, and create a key that signs them.

    Example: edgemeter bundle verify results/
    """


@bundle.command(short_help="Recompute every figure, and check signatures.")
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE|FOLDER...", type=PATH)
@click.option("--key", type=PATH, help="Public key (PEM) that the signature must match. Default: any key, or none.")
@format_option('Print {"bundles": [...]}.')
def verify(bundles: tuple[Path, ...], key: Path | None, *, form: Format | None) -> None:
    """Recompute every figure of bundles from their raw samples, and check their signatures.

    Exit with status 1 if a figure differs, a bundle is damaged, or a signature is wrong or not by --key.

    Example: edgemeter bundle verify results/ --key lab.key.pub
    """
    from importlib.metadata import version

    from edgemeter.agent.bundle import signature
    from edgemeter.agent.bundle.archive import bundle_files
    from edgemeter.agent.bundle.verify import show_verifications
    from edgemeter.agent.bundle.verify import verify as verify_one

    expected = signature.fingerprint_of_file(key) if key else None
    verifications = [verify_one(path, expected) for path in bundle_files(bundles)]
    if not print_data(form, {"bundles": verifications}):
        show_verifications(verifications, version("edgemeter"), console_for(form))
    if not all(verification.holds for verification in verifications):
        sys.exit(1)


@bundle.command(short_help="Show the record, the files and the signer.")
@click.argument("file", metavar="BUNDLE", type=PATH)
@format_option('Print {"file", "record", "members", "series", "signature"}.')
def show(file: Path, *, form: Format | None) -> None:
    """Show what a bundle holds: the record in a few lines, its files, who signed it. Nothing is recomputed.

    Example: edgemeter bundle show results/pi5-01-1-1.edgemeter
    """
    from edgemeter.agent.base.figures import printable
    from edgemeter.agent.base.terminal import plain_table, print_text
    from edgemeter.agent.bundle.verify import contents_of, record_lines

    contents = contents_of(file)
    if print_data(form, contents):
        return
    console = console_for(form)
    for line in record_lines(contents):
        print_text(console, line)
    table = plain_table("file", "bytes", "sha256", "holds", right=("bytes",))
    series = {samples.file: f"{samples.count:,} values of {samples.name}, {samples.unit}" for samples in contents.series}
    for member in contents.members:
        table.add_row(member.file, f"{member.size_bytes:,}", member.sha256[:12], printable(series.get(member.file, "")))
    console.print(table)


@bundle.command(short_help="Create a key that signs bundles.")
@click.argument("file", type=PATH)
def keygen(file: Path) -> None:
    """Write a new Ed25519 private key to FILE and its public key to FILE.pub.

    Only you can read FILE. Existing files are not overwritten.

    Example: edgemeter bundle keygen lab.key
    """
    from edgemeter.agent.bundle import signature

    public, fingerprint = signature.keygen(file)
    click.echo(f"private key: {file}: keep it secret, and name it in the configuration (signing_key_file) or EDGEMETER_SIGNING_KEY_FILE")
    click.echo(f"public key:  {public}: give it to those who verify (edgemeter bundle verify --key)")
    click.echo(f"fingerprint: {fingerprint}")
