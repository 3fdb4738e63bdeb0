"""The command `edgemeter verify`."""

import sys
from pathlib import Path

import click


@click.command(short_help="Compute every figure of bundles again from their raw samples.")
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE...", type=click.Path(path_type=Path))
@click.option("--key", type=click.Path(path_type=Path), help="Public key (PEM) that must have signed them. Default: any, or none.")
@click.option("--json", "as_json", is_flag=True, help='Print {"bundles": [...]}.')
def verify(bundles: tuple[Path, ...], key: Path | None, *, as_json: bool) -> None:
    """Compute every figure of bundles again from their raw samples, report what differs, and check who signed them.

    Exit status 1 when a figure differs, a bundle is damaged, or a signature is wrong or, with --key, not the expected one.

    Example: edgemeter verify results/*.edgemeter --key lab.pub
    """
    from importlib.metadata import version

    import msgspec

    from edgemeter.agent.bundle import show, signature
    from edgemeter.agent.bundle.verify import verify as verify_one

    expected = signature.fingerprint_of_file(key) if key else None
    found = [verify_one(path, expected) for path in bundles]
    if as_json:
        click.echo(msgspec.json.encode({"bundles": found}))
    else:
        show.show(found, version("edgemeter"))
    if not all(one.holds for one in found):
        sys.exit(1)
