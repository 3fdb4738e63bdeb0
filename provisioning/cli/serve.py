"""The command `edgemeter fleet serve`."""

import logging
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from edgemeter.agent.base import log_limit
from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.base.file_lock import DeviceLock
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.service_manager import ServiceManager
from edgemeter.agent.base.terminal import until_stopped
from edgemeter.provisioning.cli.options import folder_option
from edgemeter.provisioning.identity.backup import restore_question
from edgemeter.provisioning.identity.enforcement import low_limits, raise_limit
from edgemeter.provisioning.inventory.fleet_file import fleet_broker_address, open_registry, read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import LEASE_S, RENEW_S, ServiceLease
from edgemeter.provisioning.serve.service import CLIENT_ID, FleetService

if TYPE_CHECKING:
    from edgemeter.provisioning.content.content_server import ContentServer

# After a power cut the broker may start later than the service.
RETRY_S = 3.0
SWITCH_S = 0.0005
_Result = TypeVar("_Result")
logger = logging.getLogger(__name__)


@click.command()
@folder_option
@click.option("--broker", envvar="EDGEMETER_BROKER", help="Broker: HOST[:PORT], mqtt://... or mqtts://... Default: that of fleet.toml.")
def serve(folder: FleetFolder, broker: str | None) -> None:
    """Run the fleet's service until stopped (Ctrl-C, SIGTERM): enrolment, jobs, updates, content, health.

    Content goes over MQTT; with content_url in fleet.toml the service also serves it there, over HTTPS. Of several services on one registry
    in PostgreSQL one is active; another takes over when that one is silent.

    Example: edgemeter fleet serve
    """
    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    log_limit.apply()
    folder = replace(folder, broker_address=broker or folder.broker_address)
    # What is wrong with the folder shows before anybody waits.
    fleet_broker_address(folder)
    raise_limit()
    lock = DeviceLock(folder.registry, CLIENT_ID)
    if not lock.take():
        raise UnavailableError(
            f"another service is running for the fleet in {str(folder.path)!r}: stop that one first, "
            "because two would disconnect each other from the broker"
        )
    # The network's thread waits so long for the other after each message: by default it reads 200 a second while that one is busy.
    sys.setswitchinterval(SWITCH_S)
    manager = ServiceManager()
    try:
        with until_stopped() as stopped, ExitStack() as stack:
            manager.ready()
            if (question := restore_question(folder)) is not None:
                click.echo(f"edgemeter: {question}", err=True)
            lease = _retried(lambda: stack.enter_context(closing(ServiceLease(open_registry(folder), _owner(folder)))), stopped, manager)
            if lease is not None and _await_lease(lease, stopped, manager):
                _serve(folder, lease, stopped, manager)
    finally:
        lock.release()


def _owner(folder: FleetFolder) -> str:
    """Return a name that no other service has, and that this one has again when it is started again: it need not wait for itself."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()}:{folder.path.resolve()} (boot {boot[:13]})"


def _await_lease(lease: ServiceLease, stopped: threading.Event, manager: ServiceManager) -> bool:
    """Return True when this service is the active one, False when stopped before."""
    reported = ""
    while not stopped.is_set():
        if _retried(lease.take, stopped, manager):
            return True
        if lease.holder != reported:
            click.echo(f"{lease.holder} serves this fleet: waiting, to take over when it is silent for {LEASE_S:.0f} s", err=True)
        reported = lease.holder
        manager.alive()
        stopped.wait(RENEW_S)
    return False


def _serve(folder: FleetFolder, lease: ServiceLease, stopped: threading.Event, manager: ServiceManager) -> None:
    from edgemeter.provisioning.content.content_server import ContentServer

    inventory = read_if_present(folder)
    url = inventory.server.content_url if inventory and inventory.server else None
    with ExitStack() as stack:
        content = ContentServer(folder, url) if url else None
        if content is not None:
            stack.callback(content.stop)
        service = FleetService(folder, fleet_broker_address(folder), lease.owner)
        stack.callback(service.stop)

        def start() -> bool:
            is_active = _is_active(lease)
            if is_active:
                service.start()
            return is_active

        is_active = _retried(start, stopped, manager)
        if is_active:
            _announce(folder, service, content)
        while is_active and not stopped.wait(RENEW_S):
            if not service.is_alive():
                raise UnavailableError("the service has stopped: check its log, and start it again")
            if not service.is_stalled():
                manager.alive()
                is_active = _is_active(lease)
        if is_active is False:
            raise UnavailableError(f"{lease.holder} serves this fleet now: this one ends; started again, it waits")


def _announce(folder: FleetFolder, service: FleetService, content: "ContentServer | None") -> None:
    """Report what is served, and what limits it; begin to serve content."""
    inventory = read_if_present(folder)
    for issue in low_limits(folder, inventory.server) if inventory and inventory.server else ():
        click.echo(f"edgemeter: {issue}", err=True)
    click.echo(f"serving the fleet in {str(folder.path)!r} at the broker {service.address}", err=True)
    if content is not None:
        content.start()
        click.echo(f"content at {content.url}", err=True)


def _is_active(lease: ServiceLease) -> bool:
    """Keep the lease; return False where another service has it. Nobody takes it while the registry does not answer."""
    try:
        return lease.take()
    except (UnavailableError, TransientError) as error:
        logger.warning("the lease is not prolonged: %s", error, extra=about("lease"))
        return True


def _retried(attempt: Callable[[], _Result], stopped: threading.Event, manager: ServiceManager) -> _Result | None:
    """Return what `attempt` returns, None when stopped before; a broker or database that does not answer yet is waited for."""
    is_reported = False
    while not stopped.is_set():
        try:
            return attempt()
        except (UnavailableError, TransientError) as error:
            if not is_reported:
                click.echo(f"edgemeter: {error}; retrying until it answers (Ctrl-C stops)", err=True)
            is_reported = True
            manager.alive()
            stopped.wait(RETRY_S)
    return None
