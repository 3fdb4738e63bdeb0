"""The command `edgemeter site`: a static site from signed bundles."""

import sys
import time
from pathlib import Path

import click

from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.options import PATH, quiet_option, renamed_option
from edgemeter.agent.base.progress import note, progress_bar


@click.command(short_help="Make a public board: a static site from signed bundles.")
@click.argument("bundles", nargs=-1, required=True, type=PATH, metavar="BUNDLE|FOLDER...")
@renamed_option(
    "-o",
    "--output",
    "out",
    former=["--out"],
    default=Path("site"),
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write to. Default: site.",
)
@renamed_option(
    "--public-key",
    "keys",
    former=["--key"],
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Public key of a lab, named as the lab (repeatable); results signed by others are not verified then. Default: any key counts.",
)
@click.option(
    "--require",
    type=click.Choice(["nothing", "recomputed", "verified"]),
    default="nothing",
    help="Exit 1, writing nothing, if a bundle is refused or a copy (recomputed), or is not verified (verified). Default: nothing.",
)
@quiet_option
def site(*, bundles: tuple[Path, ...], out: Path, keys: tuple[Path, ...], require: str) -> None:
    """Write a static site: an index with filters, a page for each model, device and run, a badge for each result.

    Every figure is computed again from the raw samples first; what does not recompute, is not signed or has samples of another
    bundle stands apart.

    Example: edgemeter site results/ --public-key labs/oslo.key.pub --output site
    """
    from importlib.metadata import version

    from edgemeter.agent.base import figures
    from edgemeter.agent.bundle.archive import bundle_files
    from edgemeter.collector.board.board_site import write_board
    from edgemeter.collector.board.entries import lab_keys, read_entries
    from edgemeter.collector.charts import vega

    vega.check_installed()
    files, labs = bundle_files(bundles), lab_keys(keys)
    with progress_bar() as progress:
        entries = read_entries(files, labs, progress)
    for entry in entries:
        if entry.state != "verified":
            note(f"{entry.state}: {entry.path}: {entry.reason}")
    fails = {"nothing": (), "recomputed": ("refused", "copied"), "verified": ("refused", "copied", "unproven")}[require]
    if failed := sum(entry.state in fails for entry in entries):
        note(f"{failed} of {figures.count(len(entries), 'bundle')} fail --require {require}: remove them, or ask their labs")
        sys.exit(FAILED)
    remark = f"Built on {figures.stamp(time.time_ns())} UTC; every figure recomputed by version {version('edgemeter')}."
    with progress_bar() as progress:
        pages = write_board(entries, out, remark, progress)
    count = sum(entry.state == "verified" for entry in entries)
    note(f"{out / 'index.html'}: {figures.count(pages, 'page')}, {count} of {figures.count(len(entries), 'bundle')} verified")
