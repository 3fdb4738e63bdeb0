"""The command `edgemeter compare`; `compare BASELINE NEW` reviews a change."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.command_group import ModalCommand
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.options import format_option, matters_option
from edgemeter.agent.base.suggestions import did_you_mean
from edgemeter.agent.base.tables import Format
from edgemeter.collector.cli.stores import FigureParam, all_days_option, chosen_stores, page_option, stores_option
from edgemeter.collector.compare.judged_figures import EXAMPLE, JUDGED
from edgemeter.collector.runs.store import LedgerStore, open_store

if TYPE_CHECKING:
    from edgemeter.collector.compare.summary import DaysCounted

# How alike a name and one of the catalogue are that is meant.
NEARLY = 0.8
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class CompareCommand(ModalCommand):
    """The command `compare`; where it is given models, it measures them."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        """Return the context of the command that the flags or the arguments choose."""
        # An option may be followed by its value: that is no positional argument.
        valued = [option for option in self.params if isinstance(option, click.Option) and not option.is_flag]
        names = {name for option in valued for name in option.opts}
        positional = [
            argument for index, argument in enumerate(args) if not argument.startswith("-") and not (index and args[index - 1] in names)
        ]
        if not any(flag in args for flag in self.modes) and any(map(is_model, positional)):
            args = ["--models", *args]
        if "--models" in args and any(argument.partition("=")[0] == "--fail-on" for argument in args):
            raise ConfigError(
                "--fail-on judges runs of one model before and after a change: write them with `edgemeter run MODEL --output FILE`, "
                "then edgemeter compare OLD.json NEW.json --fail-on slower:5%"
            )
        return super().make_context(info_name, args, parent, **extra)


def is_model(text: str) -> bool:
    """Return whether `text` names something to measure: a model's file, a factory, a suite, or a catalogue name; not a file of results."""
    from edgemeter.agent.base import python_target
    from edgemeter.agent.base.model_names import model_names
    from edgemeter.agent.contract.model_formats import is_model_file

    path = Path(text)
    if target := python_target.parse(text):
        with suppress(ConfigError):
            return target.file is not None or target.source.is_file()
    if path.suffix.lower() == ".toml" or is_model_file(path):
        return True
    if path.suffix.lower() == ".json":
        return False
    if path.exists() or not NAME.fullmatch(text):
        return False
    # A name that is nearly right gets the message about models.
    return did_you_mean(text, model_names(), alike=NEARLY) is not None


@click.command(
    cls=CompareCommand,
    modes={"--models": "edgemeter.agent.cli.compare_models:compare_models"},
    short_help="Compare devices with a reference, like with like.",
)
@click.argument("sides", nargs=-1, metavar="[BASELINE NEW]")
@click.option("--reference", metavar="DEVICE|ROLE", help="Device or role (such as reference) to compare the others with.")
@stores_option(
    "A ledger, a document of `edgemeter run --format json`, or an InfluxDB (http://HOST:8086?bucket=BUCKET, version 1: ?db=DATABASE); "
    "several are read as one. Default: the ledger in $EDGEMETER_HOME."
)
@matters_option
@all_days_option
@format_option()
@click.option(
    "--fail-on",
    metavar="LIMITS",
    help="With BASELINE NEW: exit 1 if NEW exceeds a limit, such as slower:3%,energy:5%,memory:10%,ap:0.5 (ap in points of 100).",
)
@click.option(
    "--choose",
    "limits_text",
    metavar="LIMITS",
    help="Choose the case to ship: those that meet all limits with certainty, and one of them; exit 1 if there is none. LIMITS are such as "
    f"'{EXAMPLE}', or '' for none.",
)
@click.option(
    "--page-url",
    envvar="EDGEMETER_PAGE_URL",
    metavar="URL",
    help="With BASELINE NEW --format markdown: the address of the page (`edgemeter collector web`), to which the comment links.",
)
@click.option("--choose-by", "by", type=FigureParam(JUDGED.values()), help="Figure to choose by. Default: energy, else latency.")
@page_option("Also write the page as one file that begins with this comparison.")
@click.option(
    "--models",
    is_flag=True,
    expose_value=False,
    help="Measure models in turn instead, as is done where models are given: see `edgemeter compare --models --help`.",
)
def compare(
    *,
    sides: tuple[str, ...],
    reference: str | None,
    stores: tuple[str, ...],
    matters: float,
    days: "DaysCounted",
    form: Format,
    fail_on: str | None,
    limits_text: str | None,
    by: str | None,
    page_url: str | None,
    html: Path | None,
) -> None:
    """Compare models, two sets of runs, or every device with a reference.

    Models are measured in turn on this device: see `edgemeter compare --models --help`. BASELINE and NEW are runs that are there already: a
    ledger, document, bundle or folder, the id of a run, or a device. Without arguments, list the newest runs and the command that compares
    two cases.

    Example: edgemeter compare before.json after.json --fail-on slower:5%
    """
    if by is not None and limits_text is None:
        raise click.UsageError("--choose-by needs --choose: edgemeter compare --choose 'p99<=33ms' --choose-by energy")
    if sides or fail_on is not None:
        has_more = bool(reference or html or stores) or form == "csv"
        from edgemeter.collector.cli.review import ReviewRequest, review_change
        from edgemeter.collector.compare.judgement import SmallestDifferences

        request = ReviewRequest(sides, SmallestDifferences(ratio=matters), fail_on, days, limits_text, by, page_url)
        review_change(request, form, has_more=has_more)
        return
    if limits_text is not None:
        from edgemeter.collector.cli.choose import show_choice

        show_choice(limits_text, by, reference, stores, days, form, html)
        return
    where = chosen_stores(stores)
    if reference is None:
        _show_newest(where, form, is_other=html is not None)
        return
    from edgemeter.collector.cli.compare_cases import show_cases
    from edgemeter.collector.compare.judgement import SmallestDifferences

    show_cases(open_store(*where), reference, SmallestDifferences(ratio=matters), days, form, html)


def _show_newest(where: Sequence[str], form: Format, *, is_other: bool) -> None:
    store = open_store(*where)
    if is_other or not isinstance(store, LedgerStore):
        raise click.UsageError("Missing option '--reference': name a device or role to compare with; models are compared as A B.")
    from edgemeter.collector.cli.runs import show_newest

    show_newest(store.place, form)
