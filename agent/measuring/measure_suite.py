"""A session, in which a suite is measured.

Each record is stored and delivered, and an outcome tells what became of it.
"""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgemeter.agent.base import config, interrupts
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.agent.base.number_text import count
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.ledger.own_runs import OwnRuns, open_own_runs
from edgemeter.agent.measuring.settings import SessionSettings
from edgemeter.agent.operating.changed_board import quiet_board
from edgemeter.agent.power.detect import check_sensors, open_sensors
from edgemeter.agent.session import checks, session
from edgemeter.agent.session.run_plan import RunPlan
from edgemeter.agent.verdict.environment_rules import environment_notes
from edgemeter.agent.verdict.words import text_of

if TYPE_CHECKING:
    from edgemeter.agent.bundle.write import BundleRecorder
    from edgemeter.agent.delivery.delivery import Delivery

logger = logging.getLogger(__name__)
# The time that an interrupted session waits for receipts; other records stay in the outbox.
HURRIED_S = 5.0


@dataclass(frozen=True, slots=True)
class SessionOutcome:
    """The outcome of a session.

    Attributes:
        records: the finished runs, as the outbox and the ledger have them.
        errors: why runs failed, and why records are not stored.
        undelivered: why receipts are missing; None if there are none.
        interruption: what ended the session early (Ctrl-C, SIGTERM): raise it after showing the
            rest.
        saved: what the ledger has of the session, in words.
        seconds: duration of the runs.
    """

    records: list[RunRecord]
    errors: list[EdgemeterError]
    undelivered: str | None = None
    interruption: BaseException | None = None
    saved: str | None = None
    seconds: float | None = None


def ignore(_: object) -> None:
    """Ignore an event or a note."""


def measure_suite(
    suite: Suite,
    settings: SessionSettings,
    on_event: session.OnEvent = ignore,
    report: Callable[[str], None] = ignore,
    plan: RunPlan | None = None,
) -> SessionOutcome:
    """Measure a suite on this machine, store and deliver the records, and return the outcome.

    Args:
        suite: the cases; those that this machine cannot measure become errors of the outcome.
        settings: what observes the session, and where its records go.
        on_event: receives the events of each run.
        report: receives notes on sensors and on this machine.
        plan: the order of the runs of cases that were checked before; it receives their outcomes.

    Raises:
        EdgemeterError: nothing could be measured, or no broker answered at the start.
    """
    configuration = config.read(settings.config)
    identity = _identity(settings, configuration)
    check_sensors(settings.power, configuration.power, configuration.sensors)
    new_recorder = _new_recorder(settings.bundle, configuration)
    refused: list[EdgemeterError] = []
    if plan is None:
        suite, refused = checks.runnable(suite)
    own_runs = open_own_runs(configuration) if settings.save else None
    with ExitStack() as stack:
        delivery = None
        if address := settings.broker or configuration.broker:
            from edgemeter.agent.delivery.delivery import open_delivery  # noqa: PLC0415 - MQTT

            delivery = open_delivery(identity, configuration, address, settings.if_no_broker)
            stack.callback(delivery.close)
        keeping = RecordKeeping(delivery, own_runs, errors=refused)
        with ExitStack() as board:
            board.enter_context(
                quiet_board(config.home(), "edgemeter run", partial(logger.warning, "%s"))
            )
            sensors, why_no_power = board.enter_context(
                open_sensors(settings.power, configuration.power, configuration.sensors)
            )
            if why_no_power and (sensors or configuration.sensors) and settings.power is None:
                report(f"power: {why_no_power}")
            for violation in environment_notes():
                report(f"note: {text_of(violation)}")
            listener = on_event
            if delivery is not None:
                from edgemeter.agent.session.activity_report import (  # noqa: PLC0415 - MQTT
                    ActivityReport,
                )

                report_activity = delivery.publisher.report_activity
                listener = _in_turn(ActivityReport(suite.name, report_activity), on_event)
                board.callback(report_activity, None)
            recorder = new_recorder(listener) if new_recorder else None
            bench = (suite, identity, sensors, why_no_power, recorder or listener, keeping.keep)
            if plan is None and any(case.together for case in suite.cases):
                from edgemeter.agent.session import together  # noqa: PLC0415 - for few suites

                runs = together.measure(*bench)
            else:
                runs = session.measure(*bench, plan)
            begun_s = time.monotonic()
            interruption = keeping.follow(runs)
        on_event(session.RunsEnd())
        seconds = time.monotonic() - begun_s
        keeping.errors.extend(recorder.errors if recorder else [])
        saved = keeping.finish()
        keeping.require_records()
        undelivered = None
        if delivery is not None:
            undelivered, interruption = _delivered(
                delivery, settings.delivery_timeout_s, interruption
            )
    return SessionOutcome(
        keeping.records, keeping.errors, undelivered, interruption, saved, seconds
    )


def _delivered(
    delivery: "Delivery", timeout_s: float, interruption: BaseException | None
) -> tuple[str | None, BaseException | None]:
    """Wait for receipts; return why some are missing, and the interruption of runs or waiting."""
    # Receipts may take long, and waiting disturbs no run.
    try:
        remaining = delivery.publisher.drain(
            timeout_s if interruption is None else min(timeout_s, HURRIED_S)
        )
    except (KeyboardInterrupt, SystemExit) as error:
        interrupts.acknowledge()
        remaining, interruption = delivery.waiting(), interruption or error
    return _undelivered(remaining, delivery) if remaining else None, interruption


def _identity(settings: SessionSettings, configuration: config.Config) -> session.DeviceIdentity:
    device, fleet = config.names(settings.device, settings.fleet, configuration)
    return session.DeviceIdentity(device, fleet, configuration.role)


def _in_turn(first: session.OnEvent, second: session.OnEvent) -> session.OnEvent:
    """Return a handler that passes each event to both."""

    def follow(event: session.SessionEvent) -> None:
        first(event)
        second(event)

    return follow


@dataclass(slots=True)
class RecordKeeping:
    """The finished runs, however the session ends.

    A record that neither outbox nor ledger can store is still returned.
    """

    delivery: "Delivery | None"
    own_runs: OwnRuns | None = None
    records: list[RunRecord] = field(default_factory=list)
    errors: list[EdgemeterError] = field(default_factory=list)

    def keep(self, record: RunRecord) -> RunRecord:
        """Return the record as stored in the outbox and the ledger."""
        # A run that has ended is stored, even if Ctrl-C comes now.
        with interrupts.deferred():
            self.records.append(record)
            try:
                if self.delivery is not None:
                    self.records[-1] = self.delivery.keep(record)
            except EdgemeterError as error:
                self.errors.append(error)
            if self.own_runs is not None:
                self.records[-1] = self.own_runs.keep(self.records[-1])
        return self.records[-1]

    def finish(self) -> str | None:
        """Return the content of the ledger in words; note why it is incomplete."""
        if self.own_runs is None:
            return None
        saved = self.own_runs.finish()
        if self.own_runs.error is not None:
            self.errors.append(self.own_runs.error)
        return saved

    def require_records(self) -> None:
        """Raise the first error if there is no record; log the others."""
        if self.records or not self.errors:
            return
        for text in list(dict.fromkeys(map(str, self.errors)))[1:]:
            logger.warning("edgemeter: %s", text)
        raise self.errors[0]

    def follow(
        self, outcomes: Generator[RunRecord | EdgemeterError, None, None]
    ) -> BaseException | None:
        """Run the session to its end; return the interruption.

        A closed session has restored the board's settings.
        """
        try:
            with closing(outcomes):
                for outcome in outcomes:
                    if isinstance(outcome, EdgemeterError):
                        self.errors.append(outcome)
        except KeyboardInterrupt as interruption:
            if not self.records:
                raise KeyboardInterrupt(
                    "interrupted before the first run ended: there is no result"
                ) from interruption
            interrupts.acknowledge()
            return KeyboardInterrupt(
                f"interrupted: {count(len(self.records), 'run')} ended, the one in "
                "progress does not count"
            )
        except SystemExit as interruption:
            if not self.records:
                raise
            interrupts.acknowledge()
            return interruption
        return None


def publish_outbox(settings: SessionSettings) -> str:
    """Send the outbox of one device, and return a sentence with the number of records.

    Raises:
        EdgemeterError: no broker is named or answers, receipts for some records did not arrive in
            time, or the rest belongs to a device that was not named.
    """
    from edgemeter.agent.delivery.delivery import open_delivery  # noqa: PLC0415 - MQTT
    from edgemeter.agent.delivery.outbox_file import OUTBOX, try_again  # noqa: PLC0415

    configuration = config.read(settings.config)
    identity = _identity(settings, configuration)
    if not (address := settings.broker or configuration.broker):
        raise ConfigError(
            "no broker is named: give --broker HOST, or set `broker` in the configuration"
        )
    # The broker's limit may have been raised.
    try_again(config.home() / OUTBOX)
    delivery = open_delivery(identity, configuration, address, "fail")
    try:
        waiting = delivery.waiting()
        if remaining := delivery.publisher.drain(settings.delivery_timeout_s):
            raise TransientError(_undelivered(remaining, delivery))
        counts = delivery.others()
    finally:
        delivery.close()
    if not counts:
        return f"delivered {waiting} records; the outbox is empty"
    counts_text = " and ".join(f"{count} of device {name!r}" for name, count in counts.items())
    message = (
        f"delivered {waiting} records of device {identity.device!r}; the outbox still has "
        f"{counts_text}: send them with --device"
    )
    if not (settings.device or configuration.device):
        raise TransientError(message)
    return message


def _undelivered(remaining: int, delivery: "Delivery") -> str:
    return (
        f"{remaining} records are not delivered: {delivery.publisher.why_left()}; `edgemeter "
        "agent publish` sends them later"
    )


def _new_recorder(
    folder: Path | None, configuration: config.Config
) -> "Callable[[session.OnEvent], BundleRecorder] | None":
    """Return a factory of the writer of bundles, None without a folder.

    Raises:
        ConfigError: bundles cannot be written there.
    """
    if folder is None:
        return None
    from edgemeter.agent.bundle import signature  # noqa: PLC0415 - few sessions write bundles
    from edgemeter.agent.bundle.write import BundleRecorder, check_folder  # noqa: PLC0415

    check_folder(folder)
    key = configuration.signing_key_file
    return partial(BundleRecorder, folder, signer=signature.signer(Path(key)) if key else None)
