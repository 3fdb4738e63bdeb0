"""The commands `edgemeter bundle ...`."""

from pathlib import Path

import click


@click.group(short_help="Keys that sign bundles (`edgemeter run --bundle DIR` writes them).")
def bundle() -> None:
    """Make the key that signs the bundles of `edgemeter run --bundle DIR`; `edgemeter verify` checks them.

    Example: edgemeter bundle keygen lab.key
    """


@bundle.command(short_help="Make a key that signs bundles.")
@click.argument("file", type=click.Path(path_type=Path))
def keygen(file: Path) -> None:
    """Write a new Ed25519 private key to FILE (readable by you only) and its public half to FILE.pub; nothing is overwritten.

    Example: edgemeter bundle keygen lab.key
    """
    from edgemeter.agent.bundle import signature

    public, fingerprint = signature.keygen(file)
    click.echo(f"private key: {file}: name it in the configuration (signing_key_file) or EDGEMETER_SIGNING_KEY_FILE, and keep it secret")
    click.echo(f"public key:  {public}: give it to whoever verifies (edgemeter verify --key)")
    click.echo(f"fingerprint: {fingerprint}")
