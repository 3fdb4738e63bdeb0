"""The commands `edgemeter bundle`: verify and show bundles of results, and create a key that signs them."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec

from edgemeter.agent.base.command_group import DefaultGroup
from edgemeter.agent.base.errors import FAILED, ConfigError
from edgemeter.agent.base.options import PATH, rows_json_option
from edgemeter.agent.base.tables import Format, console_for, print_data


@click.group(cls=DefaultGroup)
def bundle() -> None:
    """Verify and show the bundles of `edgemeter run --bundle DIR`, and create a key that signs them.

    Example: edgemeter bundle verify results/
    """


@bundle.command(short_help="Recompute every figure, and check signatures.")
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE|FOLDER...", type=PATH)
@click.option("--public-key", "key", type=PATH, help="Public key (PEM) that the signature must match. Default: any key, or none.")
@rows_json_option('Print {"bundles": [...]}.')
def verify(bundles: tuple[Path, ...], key: Path | None, *, form: Format | None) -> None:
    """Recompute every figure of bundles, or of runs in the ledger (by id), from their raw samples, and check their signatures.

    Exit with status 1 if a figure differs, a bundle is damaged, or a signature is wrong or not by --public-key.

    Example: edgemeter bundle verify results/ --public-key lab.key.pub
    """
    from importlib.metadata import version

    from edgemeter.agent.bundle import signature
    from edgemeter.agent.bundle.archive import bundle_files
    from edgemeter.agent.bundle.verify import show_verifications
    from edgemeter.agent.bundle.verify import verify as verify_one

    expected = signature.fingerprint_of_file(key) if key else None
    with _of_runs(bundles) as named:
        paths = bundle_files(list(named))
        verifications = [msgspec.structs.replace(verify_one(path, expected), file=named.get(path, str(path))) for path in paths]
    if not print_data(form, {"bundles": verifications}):
        show_verifications(verifications, version("edgemeter"), console_for(form))
    if not all(verification.holds for verification in verifications):
        sys.exit(FAILED)


@bundle.command(short_help="Show the record, the files and the signer.")
@click.argument("file", metavar="BUNDLE", type=PATH)
@rows_json_option('Print {"file", "record", "members", "series", "signature"}.')
def show(file: Path, *, form: Format | None) -> None:
    """Show what a bundle holds: the record in a few lines, its files, who signed it. Nothing is recomputed.

    Example: edgemeter bundle show results/pi5-01-1-1.edgemeter
    """
    from edgemeter.agent.base.figures import printable
    from edgemeter.agent.base.terminal import plain_table, print_text
    from edgemeter.agent.bundle.verify import contents_of, record_lines

    with _of_runs([file]) as named:
        ((path, name),) = named.items()
        contents = msgspec.structs.replace(contents_of(path), file=name)
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


@contextmanager
def _of_runs(sources: Sequence[Path]) -> Iterator[dict[Path, str]]:
    """Yield the paths with their names; in the place of the id of a run in this machine's ledger, the path of a bundle made of it."""
    from edgemeter.agent.bundle.write import write_bundle
    from edgemeter.agent.ledger.ledger import default_path
    from edgemeter.agent.ledger.run_history import ID, LedgerRuns, nothing_called
    from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger

    with ExitStack() as stack:
        named = {}
        for path in sources:
            run_id = history = None
            if not path.exists() and ID.fullmatch(str(path)) and default_path().exists():
                history = LedgerRuns(stack.enter_context(SqliteLedger(default_path(), "read")))
                run_id = history.lookup(path.name)
            if history is None or run_id is None:
                if not path.exists():
                    raise ConfigError(nothing_called(str(path)))
                named[path] = str(path)
            else:
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="edgemeter-bundle-"))).resolve()
                named[write_bundle(folder, history.entry(run_id, with_samples=True).record, None)] = f"run {run_id}"
        yield named


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
    click.echo(f"public key:  {public}: give it to those who verify (edgemeter bundle verify --public-key)")
    click.echo(f"fingerprint: {fingerprint}")
