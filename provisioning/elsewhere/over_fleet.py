"""Measures on devices of the fleet: an order to all of them, followed to its end; results come through the collector."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rich.console import Console

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, MeasurementError, TransientError
from edgemeter.agent.base.figures import age, count
from edgemeter.agent.base.progress import is_quiet
from edgemeter.agent.cli.elsewhere import RemoteOutcome, RemoteWork
from edgemeter.agent.contract.record import RunRecord
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.health.server_status import server_issues
from edgemeter.provisioning.inventory import fleet_folder
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.jobs import ordering, packing
from edgemeter.provisioning.jobs.job_view import follow_job, one_line
from edgemeter.provisioning.jobs.waves import cancel
from edgemeter.provisioning.registry import devices, jobs
from edgemeter.provisioning.registry.jobs import Execution, NewJob
from edgemeter.provisioning.registry.registry import Registry

# How long a device may take to answer the order, and may be away while it measures: a board that starts again is back by then.
UNANSWERED_S, AWAY_S = 60.0, 180.0
# How long devices may take to report which runs had ended before the order was cancelled, and those to arrive.
CANCELLED_S = 10.0
UNKNOWN_TO_AGENT = "unknown field"


def measure(selection: str, work: RemoteWork) -> Iterator[RemoteOutcome]:
    """Yield what each of the devices measured, when all have ended or were given up; Ctrl-C cancels the order.

    Raises:
        EdgemeterError: there is no fleet or no such device, none takes orders, no order can bring the suite, or results cannot be read.
        KeyboardInterrupt: it was pressed; what had ended was yielded before.
    """
    folder = fleet_folder.default()
    if not folder.path.is_dir():
        raise ConfigError(
            f"--on {selection!r} names devices of a fleet, but there is none at {str(folder.path)!r}: set EDGEMETER_FLEET_FOLDER, make one "
            "with `edgemeter fleet init`, or use --on ssh://USER@HOST for a board without a fleet"
        )
    with open_registry(folder) as registry:
        picked = ordering.pick(folder, registry, selection)
        work.results.check()
        with Console(stderr=True, quiet=is_quiet()).status("packing"):
            packed = packing.pack(work.written, work.folder, ContentStore(folder.content))
        for note in (*picked.notes, packed.size_note, *server_issues(folder, time.time_ns())):
            work.report(f"edgemeter: {note}")
        new = NewJob((packed.work,), packed.title, work.timeout_s, retries=0)
        with registry.transaction() as connection:
            job = jobs.add(connection, new, picked.targets, time.time_ns())
        work.announce()
        work.report(f"order {job}: {packed.title} on {', '.join(picked.names)}")
        patience = Patience(registry)
        interruption: BaseException | None = None
        try:
            executions: Sequence[Execution] = follow_job(registry, job, Console(stderr=True, quiet=is_quiet()), gives_up=patience.gives_up)
        except BaseException as error:
            cancelled = cancel(registry, job, None, time.time_ns())
            work.report(f"edgemeter: order {job} is cancelled on {', '.join(execution.device for execution in cancelled) or 'no device'}")
            if not isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            # Devices report which runs had ended.
            interruption, end_s = error, time.monotonic() + CANCELLED_S
            executions = follow_job(registry, job, Console(quiet=True), gives_up=lambda _: time.monotonic() > end_s)
            work = replace(work, results=replace(work.results, wait_s=min(work.results.wait_s, CANCELLED_S)))
    is_interrupted = interruption is not None
    arrived = work.results.find({execution.device: execution.runs for execution in executions})
    for execution in executions:
        records = [arrived[run] for run in execution.runs if run in arrived]
        yield _outcome(execution, records, work, patience.reasons.get(execution.device), is_interrupted=is_interrupted)
    if interruption is not None:
        raise interruption


def _outcome(
    execution: Execution, records: list[RunRecord], work: RemoteWork, given_up: str | None, *, is_interrupted: bool
) -> RemoteOutcome:
    """Return what the collector received of a device, with what went wrong."""
    device, errors = execution.device, list[EdgemeterError]()
    if given_up is not None or (execution.state != "done" and not is_interrupted):
        errors.append(MeasurementError(f"{device}: {given_up or _why_not_done(execution)}"))
    elif is_interrupted and not execution.is_final:
        errors.append(
            TransientError(
                f"{device}: did not report within {CANCELLED_S:.0f} s which runs had ended: they arrive in the collector's ledger "
                f"{work.results}, and are not kept here"
            )
        )
    if missing := len(execution.runs) - len(records):
        errors.append(
            TransientError(
                f"{device}: {missing} of {count(len(execution.runs), 'run')} did not arrive in the collector's "
                f"ledger {work.results} in {work.results.wait_s:.0f} s: `edgemeter fleet list` shows whether a collector answers, "
                "--ledger names its ledger; the device delivers them later"
            )
        )
    return RemoteOutcome(device, records, errors)


def _why_not_done(execution: Execution) -> str:
    reason = one_line(execution.reason or "it gave no reason")
    remedy = "; its agent is older than this one: update it (`edgemeter fleet update`)" if UNKNOWN_TO_AGENT in reason else ""
    return f"{execution.state.replace('_', ' ')}: {reason}{remedy}"


class Patience:
    """Ends the wait for devices that do not answer, or stay away while they measure: their order is cancelled, for the `reasons`."""

    def __init__(self, registry: Registry, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.reasons: dict[str, str] = {}
        self._registry = registry
        self._clock_s = clock_s
        self._since_s: dict[tuple[str, bool], float] = {}

    def gives_up(self, execution: Execution) -> bool:
        """Return whether to wait no longer for an execution that has not ended."""
        if execution.device not in self.reasons and (reason := self._reason(execution)) is not None:
            cancel(self._registry, execution.job, execution.device, time.time_ns())
            self.reasons[execution.device] = reason
        return execution.device in self.reasons

    def _reason(self, execution: Execution) -> str | None:
        has_begun = execution.state in {"accepted", "running"}
        presence = devices.find_presence(self._registry, execution.device)
        is_online = presence is not None and presence.state == "online"
        key = execution.device, has_begun
        # A device that measures, or is busy with other orders, may take long.
        if is_online and (has_begun or execution.state == "queued"):
            self._since_s.pop(key, None)
            return None
        if self._clock_s() - self._since_s.setdefault(key, self._clock_s()) < (AWAY_S if has_begun else UNANSWERED_S):
            return None
        state = "it has never connected"
        if presence is not None and presence.state is not None:
            state = f"it has been {presence.state} for {age(time.time_ns() - (presence.since_ns or time.time_ns()))}"
        if has_begun:
            return f"given up while it measured: {state}; it stops when it is back, and what it had measured is delivered then"
        remedy = f"see `edgemeter fleet show {execution.device}`"
        return f"no answer to the order in {UNANSWERED_S:.0f} s, so it is cancelled ({state}): {remedy}"
