"""Makes the running broker apply the registry: refused certificates, and sessions to end now."""

import logging
import resource
import shlex
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.mqtt_session import MqttSession, SessionEvents, SessionProfile
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.tls import tls_context
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import Topic
from edgemeter.provisioning.identity import broker_files
from edgemeter.provisioning.identity.authority import Authority
from edgemeter.provisioning.inventory.fleet_file import fleet_broker_address
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetHandler, FleetPublish

logger = logging.getLogger(__name__)

CONNECT_S = 5.0
# A ticket comes right after the handshake of TLS 1.3.
TICKET_S = 1.0
PROGRAM = "mosquitto"
# A broker that did not answer is retried after a second, two, four, ..., at most this.
BROKER_RETRY_S = 30.0
# 1,100 silent connections of strangers exhaust the usual limit of open files, 1,024.
FEWEST = 4096
_REMEDY = (
    "start it by its systemd unit (sudo systemctl start edgemeter-fleet.target), or after "
    "`ulimit -n 65536`"
)
ELSEWHERE = (
    "no broker of this folder runs on this machine: one elsewhere refuses a device once it has "
    "`revoked.crl` and `broker/revoked`"
)


def broker_process(folder: FleetFolder, proc: Path = Path("/proc")) -> int | None:
    """Return the process id of the broker.

    It is None if the broker's pid file names no mosquitto on this machine.
    """
    try:
        number = int((folder.broker / "mosquitto.pid").read_text().strip())
        return (
            number
            if number > 1 and (proc / str(number) / "comm").read_text().strip() == PROGRAM
            else None
        )
    except (OSError, ValueError):
        return None


def raise_limit() -> None:
    """Raise this process's limit of open files to the system's maximum."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def process_issues(folder: FleetFolder) -> list[str]:
    """Return the issues of the processes of service and broker, with the remedy.

    They may open too few files, or the broker may run elsewhere.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    issues = (
        [f"the service may open {limit:,} files only: {_REMEDY}"] if 0 <= limit < FEWEST else []
    )
    broker = broker_process(folder)
    if broker is None:
        return [*issues, ELSEWHERE]
    # It may have ended by now, or be another user's.
    with suppress(OSError):
        connections, _ = resource.prlimit(broker, resource.RLIMIT_NOFILE)
        if 0 <= connections < FEWEST:
            issues.append(
                f"the broker may hold {connections:,} connections only, so a stranger can take "
                f"them all: {_REMEDY}"
            )
    return issues


def resumption_issues(folder: FleetFolder, address: BrokerAddress) -> list[str]:
    """Return the issue that the broker resumes TLS sessions, with the remedy.

    A client that resumes one shows no certificate, so no list excludes it. Each version is tried
    with two connections; a broker that does not answer resumes nothing.
    """
    if address.scheme != "mqtts":
        return []
    context = tls_context(address.tls)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, version
        session = None
        for _ in range(2):
            with (
                suppress(OSError),
                socket.create_connection((address.host, address.port), CONNECT_S) as plain,
                context.wrap_socket(
                    plain, server_hostname=address.host, session=session
                ) as connection,
            ):
                if connection.session_reused:
                    settings = str(folder.broker.absolute() / "openssl.cnf")
                    remedy = (
                        "start it by its systemd unit, or with "
                        f"OPENSSL_CONF={shlex.quote(settings)}"
                    )
                    return [
                        (
                            f"the broker at {address} resumes TLS sessions, by which a revoked "
                            f"device comes back for two hours: {remedy}"
                        )
                    ]
                connection.settimeout(TICKET_S)
                with suppress(TimeoutError):
                    connection.recv(1)
                session = connection.session
    return []


class _Operator(SessionEvents):
    """The operator receives nothing."""


def end_session(address: BrokerAddress, client_id: str, state: tuple[str, bytes] | None) -> None:
    """End the session with that client id at the broker, by taking it over.

    Publish the retained `state` (topic, payload) instead.

    Raises:
        UnavailableError: no broker answers.
        ConfigError: it refuses the operator.
    """
    session = MqttSession(address, SessionProfile(client_id), _Operator())
    session.connect(CONNECT_S)
    try:
        if state is not None:
            session.publish(*state, lasting="retained")
            session.flush(CONNECT_S)
    finally:
        session.close()


class Enforcement:
    """Keeps one fleet's broker up to date."""

    def __init__(
        self,
        folder: FleetFolder,
        registry: Registry,
        signing: Authority,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._registry = registry
        self._signing = signing
        self._refused: set[str] | None = None
        self._failures = 0
        self._not_before_s = 0.0

    def enforce(self, now: datetime) -> bool:
        """Apply what is possible now; return whether sessions remain to be ended.

        They remain because the broker does not answer.

        Raises:
            ConfigError: a file of the fleet is damaged, or the broker refuses the operator.
            UnavailableError: a file cannot be written.
        """
        # Read before the list: a session that is ended before its device is on the list reconnects.
        pending = certificates.pending_disconnects(self._registry)
        refused = certificates.refused(self._registry, int(now.timestamp() * NS_PER_S))
        if refused != self._refused:
            broker_files.renew_list(self._folder, self._registry, self._signing, now)
            self._refused = refused
        if pending and self._clock() < self._not_before_s:
            return True
        self._not_before_s = self._clock() + min(BROKER_RETRY_S, 2.0 ** min(self._failures, 10))
        self._failures += 1
        try:
            for device in pending:
                self._disconnect(device)
        except UnavailableError as error:
            if self._failures == 1:
                logger.warning("cannot end the sessions of %s now: %s", ", ".join(pending), error)
            return True
        self._failures, self._not_before_s = 0, 0.0
        return False

    def _disconnect(self, device: str) -> None:
        address = fleet_broker_address(self._folder, client="operator")
        state = self._state_after(device)
        for client_id in certificates.client_ids(self._registry, device):
            end_session(address, client_id, state)
        logger.info("device %r disconnected", device)
        with self._registry.transaction() as statements:
            certificates.delete_pending_disconnect(statements, device)
            devices.put_offline(statements, device, time.time_ns())

    def _state_after(self, device: str) -> tuple[str, bytes] | None:
        """Return the state to retain for a device: revoked or banned.

        The device's own state is too late. It is None for a device that may reconnect.
        """
        registered, heard = (
            devices.find(self._registry, device),
            devices.find_presence(self._registry, device),
        )
        fleet = heard.fleet if heard else registered.fleet if registered else None
        is_revoked = registered is not None and registered.trust == "revoked"
        if fleet is None or not (
            is_revoked or device in certificates.active_bans(self._registry, time.time_ns())
        ):
            return None
        session = heard.session if heard and heard.session is not None else 0
        state = messages.DeviceState(state="revoked" if is_revoked else "offline", session=session)
        return str(Topic(fleet, device, "state")), messages.encode_message(state)


class AccessHandler(FleetHandler):
    """Keeps the broker up to date (see `FleetHandler`)."""

    topics = ()

    def __init__(self, folder: FleetFolder, registry: Registry, _publish: FleetPublish) -> None:
        self._enforcement = Enforcement(folder, registry, broker_files.authority(folder))

    def poll(self, now_ns: int) -> None:
        self._enforcement.enforce(datetime.fromtimestamp(now_ns / NS_PER_S, timezone.utc))
