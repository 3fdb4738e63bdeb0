"""Measures an order: a suite with the order's models and data sets."""

import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.number_text import count
from edgemeter.agent.contract import order_suite
from edgemeter.agent.contract import suite as contract_suite
from edgemeter.agent.contract.messages import Measuring
from edgemeter.agent.contract.order_suite import SHIPPED
from edgemeter.agent.contract.orders import FileName, Measure
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Suite, SuiteFile
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import OUTBOX
from edgemeter.agent.delivery.verdict_log import note_verdict
from edgemeter.agent.engine import job
from edgemeter.agent.jobs import unpacking
from edgemeter.agent.jobs.carry_out import WORK_FOLDER, OrderContext, OrderOutcome
from edgemeter.agent.jobs.content import DATA, PART
from edgemeter.agent.jobs.unpacking import DataFolder
from edgemeter.agent.operating.changed_board import restore_leftover
from edgemeter.agent.power.detect import open_sensors
from edgemeter.agent.sandbox.bubblewrap import no_sandbox
from edgemeter.agent.session import checks, session, together
from edgemeter.agent.session.activity_report import ActivityReport
from edgemeter.agent.verdict.siblings import judged_together
from edgemeter.agent.verdict.words import none_ok_text

logger = logging.getLogger(__name__)

# Such a model is a file with an address, and the path of a key that is sent there.
SERVERS = ("server", "served")


def open_data(archive: Path) -> DataFolder:
    """Return the unpacked data set of an archive in the content, complete or not at all.

    Raises:
        ConfigError: it is not an archive of images, or contains files that are not allowed.
        UnavailableError: there is no space, or the folder cannot be written.
    """
    folder = archive.with_name(f"{archive.name}{DATA}")
    try:
        if not folder.is_dir():
            _unpack_data(archive, folder)
        # Its space is needed more.
        archive.unlink(missing_ok=True)
        return unpacking.find(folder)
    except OSError as error:
        raise UnavailableError(
            f"cannot unpack images to {str(folder)!r} ({error.strerror}): check that the folder "
            "may be written"
        ) from error


def _unpack_data(archive: Path, folder: Path) -> None:
    part = folder.with_name(f"{folder.name}{PART}")
    # Work that a power cut interrupted starts again.
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    try:
        unpacking.unpack(archive, part)
        unpacking.find(part)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    # Thousands of files at once: one sync instead of one each.
    os.sync()
    part.rename(folder)
    durable_file.sync(folder.parent)


def expand_order(
    written: SuiteFile,
    models: Mapping[FileName, Path],
    folder: Path,
    data: Mapping[FileName, DataFolder] | None = None,
) -> Suite:
    """Return the cases of a suite from `order_suite.read`.

    `folder` is created with links to the models by their names.

    Raises:
        ConfigError: a case names a model that is neither in the order nor shipped, or photographs
            that are not in the order, or there is nothing to measure.
    """
    for name, path in models.items():
        (folder / name).symlink_to(path.resolve())
    suite_of_order = contract_suite.expand(written, folder)
    cases = []
    for case in suite_of_order.cases:
        if case.runtime in SERVERS:
            raise ConfigError(
                "the ordered suite is refused: an order cannot contain a server, whose file "
                "names an address and a key"
            )
        if not Path(case.model).exists():
            _link_shipped(Path(case.model))
        if case.data is None:
            cases.append(case)
        elif (of_case := (data or {}).get(name := Path(case.data).name)) is None:
            raise ConfigError(
                f"unknown photographs {name!r}: they are not among the order's "
                f"({', '.join(sorted(data or ())) or 'it has none'})"
            )
        else:
            cases.append(
                msgspec.structs.replace(
                    case,
                    data=str(of_case.images),
                    annotations=str(of_case.annotations) if of_case.annotations else None,
                )
            )
    return replace(suite_of_order, cases=tuple(cases))


def _link_shipped(path: Path) -> None:
    if not (SHIPPED / path.name).is_file():
        shipped = ", ".join(
            sorted(model.name for model in SHIPPED.glob("*") if model.suffix != ".toml")
        )
        raise ConfigError(
            f"unknown model {path.name!r}: it is not one of the order's models, nor a shipped "
            f"one ({shipped})"
        )
    for name in (path.name, f"{path.name}.toml"):
        if (SHIPPED / name).is_file() and not (path.parent / name).exists():
            (path.parent / name).symlink_to(SHIPPED / name)


def measure(context: OrderContext, work: Measure) -> OrderOutcome:
    """Measure the suite of the order.

    Every record is in the outbox, and its run noted, before the next run begins.

    Raises:
        EdgemeterError: the suite is refused, also without a sandbox for its models, or nothing
            could be measured.
    """
    if context.settings.unconfined_orders == "refuse" and (gap := no_sandbox()):
        raise UnavailableError(
            f"no order is carried out here without a sandbox, and {gap.reason}: {gap.remedy}, or "
            "the device's owner sets "
            'unconfined_orders = "allow" in its configuration'
        )
    # Remove the folder of a process that was killed.
    above = Path(context.task.home) / WORK_FOLDER
    shutil.rmtree(above, ignore_errors=True)
    above.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=above) as name:
        folder = Path(name).resolve()
        ordered = order_suite.read(context.content(work.suite).read_bytes())
        models = {model.name: context.content(model) for model in work.models}
        if work.data:
            context.report("unpacking images", None, None)
        data = {archive.name: open_data(context.content(archive)) for archive in work.data}
        suite = expand_order(ordered, models, folder, data=data)
        records, errors = _run(context, suite)
    if errors and not records:
        # A missing runtime, a model that no runtime reads: the order is not for this board.
        raise errors[0]
    notes = [*suite.left_out, *map(str, errors)]
    if (none_ok := none_ok_text([record.verdict for record in judged_together(records)])) or notes:
        notes.append(none_ok or count(len(records), "run"))
    return OrderOutcome(state="failed" if errors else "done", reason="; ".join(notes) or None)


def _run(context: OrderContext, suite: Suite) -> tuple[list[RunRecord], list[EdgemeterError]]:
    """Return the records that are in the outbox, and the errors of the runs without one."""
    settings = context.settings
    identity = session.DeviceIdentity(context.task.device, context.task.fleet, settings.role)
    records: list[RunRecord] = []
    suite, refused = checks.runnable(suite)
    notes = ProgressNotes(context, suite.name)
    # The daemon holds the run lock, and has passed it on.
    if why := restore_leftover(Path(context.task.home), holds_run_lock=True):
        logger.warning("%s", why)
    with (
        Outbox(Path(context.task.home) / OUTBOX, settings.outbox_limit_mb << 20) as outbox,
        open_sensors(None, settings.power, settings.sensors) as (sensors, why_no_power),
    ):

        def keep(record: RunRecord) -> RunRecord:
            records.append(record)
            numbered = outbox.put(msgspec.structs.replace(record, job=context.task.order.job))
            # At once: if the process is killed between the two, the order is measured once more.
            context.kept(numbered.id, not refused and len(records) == notes.planned)
            note_verdict(outbox.path.parent, numbered.started_at_ns, numbered.verdict.state)
            return numbered

        # Closing the session restores the board's settings before the lock is released.
        with closing(
            together.measure(suite, identity, sensors, why_no_power, notes, keep)
        ) as outcomes:
            errors = [outcome for outcome in outcomes if isinstance(outcome, EdgemeterError)]
    return records, [*refused, *errors]


class ProgressNotes:
    """Reports the progress of a session; nothing while a query is timed."""

    def __init__(self, context: OrderContext, suite: str) -> None:
        # The number of runs of the session, if known.
        self.planned = 0
        self._context = context
        self._run = ""
        self._ratio = 0.0
        self._activity = ActivityReport(suite, self._begin, context.task.order.job)

    def __call__(self, event: session.SessionEvent) -> None:
        self._activity(event)
        if isinstance(event, job.Phase) and event.name != "timed":
            self._context.report(f"{self._run}, {event.name}", self._ratio, None)

    def _begin(self, measuring: Measuring) -> None:
        self.planned = measuring.runs
        self._run = f"run {measuring.run} of {measuring.runs}: {measuring.case}"
        self._ratio = (measuring.run - 1) / measuring.runs
        self._context.report(self._run, self._ratio, measuring)
