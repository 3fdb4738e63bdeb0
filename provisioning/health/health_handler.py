"""The handler for health: keeps what devices report, orders canary runs when they are due, and judges their results.

Reports are kept in memory until the next poll, and then written in one transaction: ten thousand devices that reconnect together cost a
few of those. Nothing is asked of every device: what is due, and what has changed, is found by an index.
"""

import itertools
import logging
import time
from collections import OrderedDict
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.health import Health, decode_health
from edgemeter.agent.contract.messages import EVERY_ACTIVITY, EVERY_BIRTH, EVERY_HEALTH, EVERY_STATE, parse_topic
from edgemeter.provisioning.health.baseline import judge_run
from edgemeter.provisioning.inventory.fleet_file import WatchedFleetFile
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.formatting import plain
from edgemeter.provisioning.registry import canary_runs, devices
from edgemeter.provisioning.registry.certificates import active_bans, end_ban
from edgemeter.provisioning.registry.devices import DeviceReport, HealthState
from edgemeter.provisioning.registry.jobs import last_serial
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetPublish

logger = logging.getLogger(__name__)

CANARY_POLL_S = 5.0
RULES_POLL_S = 60.0
MOST_JOBS = 500
MOST_REPORTS = 5000
MOST_CHANGES = 20_000
DEFAULT_HOURS = 24.0
_ENDED = """SELECT serial, device, job, state, reason, ended_ns, figures FROM executions
WHERE serial > ? AND serial <= ? AND ended_ns IS NOT NULL AND substr(job, 1, 7) = 'golden-' ORDER BY serial"""


def clear_device(registry: Registry, device: str, fleet: str, now_ns: int, *, new_band: bool, is_dry_run: bool = False) -> str | None:
    """Trust a device again, end its ban, have it run its canary next; return what was done, None where there was nothing to do.

    A dry run writes nothing and returns the same.
    """
    before = devices.find_health_state(registry, device)
    was_suspect, is_banned = before is not None and before.state == "suspect", device in active_bans(registry, now_ns)
    if not was_suspect and not new_band and not is_banned:
        return None
    if not is_dry_run:
        with registry.transaction() as connection:
            end_ban(connection, device)
            devices.put_health_state(connection, HealthState(device, "good", "cleared by hand", now_ns))
            if new_band:
                canary_runs.restart_baseline(connection, device)
            canary_runs.plan_canary_now(connection, device, fleet, now_ns)
    outcomes = ["good", "its baseline restarts" if new_band else "its baseline is kept"]
    if is_banned:
        outcomes.append("its ban is ended")
    return f"{', '.join(outcomes)}; its canary run is next"


class FleetHealthHandler:
    """Keeps reports and judges canary runs; `serve/handler.py` documents how it is called."""

    topics = (EVERY_HEALTH, EVERY_STATE, EVERY_BIRTH, EVERY_ACTIVITY)

    def __init__(self, folder: FleetFolder, registry: Registry, publish: FleetPublish) -> None:  # noqa: ARG002 - a handler's signature
        self._file = WatchedFleetFile(folder)
        self._registry = registry
        # The last of each kind; a state is followed by that of another session. Late ones are bounded, also while nothing can be written.
        self._reports: OrderedDict[tuple[str, type, int | None], DeviceReport] = OrderedDict()
        self._refused: dict[str, int] = {}
        self._canary_ns = 0
        self._rules_ns = 0
        self._every_ns = int(DEFAULT_HOURS * 3600) * NS_PER_S

    def received(self, message: Message) -> None:
        """Take a device's state, birth, health or activity; an emptied topic and the server's own `revoked` are ignored."""
        if not message.payload:
            return
        topic = parse_topic(message.topic)
        if topic.kind == "state":
            report: messages.DeviceState | messages.Birth | messages.Activity | Health = messages.decode_state(message.payload)
        elif topic.kind == "activity":
            report = messages.decode_activity(message.payload)
        else:
            decode = decode_health if topic.kind == "health" else messages.decode_birth
            named = report = decode(message.payload)
            if (named.fleet, named.device) != (topic.fleet, topic.device):
                raise ConfigError(
                    f"the {topic.kind} names device {named.device!r} of fleet {named.fleet!r}, but its topic is {message.topic!r}"
                )
            if isinstance(report, Health):
                self._log_refused(topic.device, report)
        if not (isinstance(report, messages.DeviceState) and report.state == "revoked"):
            session = report.session if isinstance(report, messages.DeviceState) else None
            key = (topic.device, type(report), session)
            self._reports[key] = DeviceReport(topic.device, topic.fleet, report, time.time_ns())
            self._reports.move_to_end(key)

    def _log_refused(self, device: str, health: Health) -> None:
        refused = health.refused_orders
        if refused and self._refused.get(device) != refused.count:
            self._refused[device] = refused.count
            logger.warning(
                "%s has refused %d orders, the last because: %s", device, refused.count, plain(refused.reason), extra=about(device)
            )

    def poll(self, now_ns: int) -> None:
        """Write the reports, judge canary runs that ended, order those that are due."""
        self._check_rules(now_ns)
        if self._reports:
            self._keep(now_ns)
        if now_ns >= self._canary_ns:
            self._canary_ns = now_ns + int(CANARY_POLL_S * NS_PER_S)
            self._judge(now_ns)
            with self._registry.transaction() as connection:
                canary_runs.order_due_canaries(connection, now_ns, self._every_ns, MOST_JOBS)

    def close(self) -> None:
        """Write the last reports."""
        while self._reports:
            self._keep(time.time_ns())

    def _check_rules(self, now_ns: int) -> None:
        if now_ns < self._rules_ns:
            return
        self._rules_ns = now_ns + int(RULES_POLL_S * NS_PER_S)
        try:
            written = self._file.read()
        except EdgemeterError as error:
            logger.warning("canary runs continue as before: %s", error)
            return
        every_ns = int((written.health.golden_hours if written else DEFAULT_HOURS) * 3600) * NS_PER_S
        if every_ns != self._every_ns:
            with self._registry.transaction() as connection:
                canary_runs.replan_canaries(connection, now_ns, every_ns)
            self._every_ns = every_ns

    def _keep(self, now_ns: int) -> None:
        # This many take less than half a second; the rest waits for the next poll.
        reports = dict(itertools.islice(self._reports.items(), MOST_REPORTS))
        with self._registry.transaction() as connection:
            devices.put_reports(connection, reports.values())
            devices.put_revoked_offline(connection, now_ns)
            for report in reports.values():
                if isinstance(report.message, Health) and self._every_ns:
                    canary_runs.plan_canary(connection, report.message, now_ns)
        for key in reports:
            del self._reports[key]

    def _judge(self, now_ns: int) -> None:
        (after,) = self._registry.query("SELECT serial FROM health_position")[0]
        last = last_serial(self._registry)
        last = min(last, after + MOST_CHANGES)
        if last <= after:
            return
        ended = self._registry.query(_ENDED, after, last)
        with self._registry.transaction() as connection:
            for row in ended:
                self._take(connection, row, now_ns)
            connection.execute("UPDATE health_position SET serial = ?", (last,))

    def _take(self, connection: Statements, row: Any, now_ns: int) -> None:
        device, figures = row["device"], msgspec.json.decode(row["figures"], type=dict[str, float])
        failed = canary_runs.count_canary_failures(connection, device)
        if row["state"] != "done" or not figures:
            # It was cancelled, or could not be done: that is no evidence about the board's speed.
            if row["state"] != "cancelled":
                canary_runs.plan_canary_soon(connection, device, now_ns, failed)
            return
        earlier = canary_runs.read_canary_runs(self._registry, device)
        heard = devices.find_presence(self._registry, device)
        health = heard.health if heard else None
        run, fault = judge_run(row["job"], device, row["ended_ns"], figures, earlier, health, row["reason"])
        canary_runs.put_canary_run(connection, run)
        before = devices.find_health_state(self._registry, device)
        now = devices.next_health_state(before, device, fault, now_ns)
        devices.put_health_state(connection, now)
        if now.state == "suspect" or run.doubted:
            canary_runs.plan_canary_soon(connection, device, now_ns, failed if fault else 0)
        else:
            canary_runs.reset_canary_failures(connection, device)
        if before is None or before.state != now.state:
            logger.log(logging.WARNING if fault else logging.INFO, "%s is %s%s", device, now.state, f": {now.reason}" if now.reason else "")
