"""The commands that check and explain results: `edgemeter verify`, `bundle`, `rules` and `schema`."""

import sys
from pathlib import Path

import click

from edgemeter.agent.base.options import PATH, json_option


@click.command()
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE...", type=PATH)
@click.option("--key", type=PATH, help="Public key (PEM) that the signature must match. Default: any key, or none.")
@json_option('Print {"bundles": [...]}.')
def verify(bundles: tuple[Path, ...], key: Path | None, *, as_json: bool) -> None:
    """Recompute every figure of bundles from their raw samples, and check their signatures.

    Exit with status 1 if a figure differs, a bundle is damaged, or a signature is wrong or not by --key.

    Example: edgemeter verify results/*.edgemeter --key lab.pub
    """
    from importlib.metadata import version

    import msgspec

    from edgemeter.agent.bundle import signature
    from edgemeter.agent.bundle.verify import show_verifications
    from edgemeter.agent.bundle.verify import verify as verify_one

    expected = signature.fingerprint_of_file(key) if key else None
    found = [verify_one(path, expected) for path in bundles]
    if as_json:
        click.echo(msgspec.json.encode({"bundles": found}))
    else:
        show_verifications(found, version("edgemeter"))
    if not all(one.holds for one in found):
        sys.exit(1)


@click.group()
def bundle() -> None:
    """Create a key that signs the bundles of `edgemeter run --bundle DIR`; `edgemeter verify` checks them.

    Example: edgemeter bundle keygen lab.key
    """


@bundle.command()
@click.argument("file", type=PATH)
def keygen(file: Path) -> None:
    """Write a new Ed25519 private key to FILE and its public key to FILE.pub.

    Only you can read FILE. Existing files are not overwritten.

    Example: edgemeter bundle keygen lab.key
    """
    from edgemeter.agent.bundle import signature

    public, fingerprint = signature.keygen(file)
    click.echo(f"private key: {file}: keep it secret, and name it in the configuration (signing_key_file) or EDGEMETER_SIGNING_KEY_FILE")
    click.echo(f"public key:  {public}: give it to those who verify (edgemeter verify --key)")
    click.echo(f"fingerprint: {fingerprint}")


@click.command()
@json_option('Print {"rules": [...]}.')
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the rules as Markdown, with the rationale of each.")
def rules(*, as_json: bool, as_markdown: bool) -> None:
    """List the rules of the verdict: what each requires, and the verdict of a run that violates it.

    Example: edgemeter rules
    """
    from edgemeter.agent.verdict import judge as verdict
    from edgemeter.agent.verdict.judge import rule_rows, rules_json, rules_markdown

    if as_json and as_markdown:
        raise click.UsageError("use either --json or --markdown")
    if as_json:
        click.echo(rules_json(verdict.RULES))
    elif as_markdown:
        click.echo(rules_markdown(verdict.RULES), nl=False)
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table("rule", "violated, a run is", "requirement")
        for row in rule_rows(verdict.RULES):
            table.add_row(row.name, row.state, row.requirement)
        Console().print(table)


@click.command()
def schema() -> None:
    """Print the JSON Schema of a run record.

    Example: edgemeter schema > record.schema.json
    """
    import msgspec

    from edgemeter.agent.contract.record import json_schema

    click.echo(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())
