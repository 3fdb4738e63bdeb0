"""The commands `edgemeter runs bundle`.

They verify bundles of results, and create a key that signs them.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from edgemeter.agent.base.cli.command_group import DefaultGroup
from edgemeter.agent.base.cli.options import PATH, format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.errors import FAILED, ConfigError

if TYPE_CHECKING:
    from edgemeter.agent.base.console import Console
    from edgemeter.agent.bundle.verify import BundleSignature, Verification


@click.group(cls=DefaultGroup, short_help="Verify signed results; create a key that signs them.")
def bundle() -> None:
    """Verify bundles; create a key that signs them.

    Example: edgemeter runs bundle verify results/
    """


@bundle.command(short_help="Recompute every value, and check signatures.")
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE|FOLDER...", type=PATH)
@click.option(
    "--public-key",
    "key",
    type=PATH,
    help="Public key (PEM) that the signature must match. Default: any key, or none.",
)
@format_option('{"bundles": [...]}')
def verify(bundles: tuple[Path, ...], key: Path | None, *, form: Format) -> None:
    """Recompute every value from raw samples, and check signatures.

    Give bundles, folders, or ids of runs in the ledger.

    The exit status is 1 if a value differs, a bundle is damaged, or a signature is wrong or not by
    --public-key.

    Example: edgemeter runs bundle verify results/ --public-key lab.key.pub
    """
    from edgemeter.agent.bundle import signature
    from edgemeter.agent.bundle.verify import verify as verify_one

    expected = signature.fingerprint_of_file(key) if key else None
    with _of_runs(bundles) as named:
        paths = _bundles(list(named))
        verifications = [
            msgspec.structs.replace(verify_one(path, expected), file=named.get(path, str(path)))
            for path in paths
        ]
    if not print_data(form, {"bundles": verifications}):
        console = console_for(form)
        for verification in verifications:
            _print(verification, console)
    if not all(verification.holds for verification in verifications):
        sys.exit(FAILED)


def _bundles(paths: Sequence[Path]) -> list[Path]:
    """Return the bundles among files and within folders, each once.

    Raises ConfigError if a folder has none.
    """
    bundles: dict[Path, Path] = {}
    for path in paths:
        files = sorted(path.rglob("*.edgemeter")) if path.is_dir() else [path]
        if not files:
            raise ConfigError(
                f"no bundle in {str(path)!r}: `edgemeter run ... --bundle DIR` writes them"
            )
        bundles |= {file.resolve(): file for file in files}
    return list(bundles.values())


def _print(verification: "Verification", console: "Console") -> None:
    from importlib.metadata import version

    from edgemeter.agent.base.console import Table
    from edgemeter.agent.base.terminal import print_text

    if verification.error is not None:
        print_text(console, verification.error)
        return
    count = len(verification.differences)
    parts = ", ".join(f"{part} {checked}" for part, checked in verification.checked.items())
    differ = (
        f"{sum(verification.checked.values())} values recomputed ({parts}), {count or 'none'} "
        f"differ{'s' * (count == 1)}"
    )
    differ = differ if parts else "it has no raw samples, so nothing was recomputed"
    print_text(
        console, f"{verification.file}: {verification.model} on {verification.device}: {differ}"
    )
    print_text(console, f"  {_signature_text(verification.signature)}")
    if verification.written_by != version("edgemeter"):
        print_text(
            console,
            f"  written by edgemeter {verification.written_by}: definitions may have changed since",
        )
    if verification.differences:
        table = Table("field", "stated", "recomputed", right=("stated", "recomputed"))
        for difference in verification.differences:
            table.add_row(difference.field, _text(difference.stated), _text(difference.recomputed))
        console.print(table)


def _signature_text(signature: "BundleSignature | None") -> str:
    if signature is None or signature.state == "unsigned":
        return "not signed" + (
            ", though a key was expected" if signature and signature.expected is False else ""
        )
    if signature.state in ("wrong", "unchecked"):
        return (
            f"{'WRONG SIGNATURE' if signature.state == 'wrong' else 'signature not checked'}: "
            f"{signature.detail}"
        )
    whose = {
        None: "; check the signer with --public-key",
        True: ", the expected key",
        False: ", NOT the expected key",
    }[signature.expected]
    return f"signed by {signature.fingerprint}{whose}"


def _text(value: object) -> str:
    return "-" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)


@contextmanager
def _of_runs(sources: Sequence[Path]) -> Iterator[dict[Path, str]]:
    """Yield the paths with their names.

    The id of a run in this machine's ledger becomes the path of a bundle made from it.
    """
    from tempfile import TemporaryDirectory

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
                folder = Path(
                    stack.enter_context(TemporaryDirectory(prefix="edgemeter-bundle-"))
                ).resolve()
                named[write_bundle(folder, history.entry(run_id, with_samples=True).record)] = (
                    f"run {run_id}"
                )
        yield named


@bundle.command(short_help="Create a key that signs bundles.")
@click.argument("file", type=PATH)
def key(file: Path) -> None:
    """Write a private key to FILE and its public key to FILE.pub.

    Only you can read FILE. Existing files are not overwritten.

    Example: edgemeter runs bundle key lab.key
    """
    from edgemeter.agent.bundle import signature

    public, fingerprint = signature.keygen(file)
    click.echo(
        f"private key: {file} (keep it secret, and name it in the configuration as "
        "signing_key_file, or in EDGEMETER_SIGNING_KEY_FILE)"
    )
    click.echo(
        f"public key:  {public} (whoever verifies needs it: edgemeter runs bundle verify "
        "--public-key)"
    )
    click.echo(f"fingerprint: {fingerprint}")
