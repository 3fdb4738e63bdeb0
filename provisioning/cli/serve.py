"""The command `edgemeter fleet serve`."""

import logging
import sys
import threading
from contextlib import ExitStack

import click

from edgemeter.agent.base import log_limit
from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.base.file_lock import DeviceLock
from edgemeter.agent.base.service_manager import ServiceManager
from edgemeter.agent.base.threads import until_stopped
from edgemeter.provisioning.cli.options import in_folder, print_notes
from edgemeter.provisioning.identity.enforcement import (
    process_issues,
    raise_limit,
    resumption_issues,
)
from edgemeter.provisioning.identity.fleet_server import FleetServer
from edgemeter.provisioning.inventory.fleet_file import fleet_broker_address, read
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.serve.service import CLIENT_ID, FleetService

# After a power cut the broker may start later than the service.
RETRY_S = 3.0
ALIVE_S = 2.0
SWITCH_S = 0.0005


@click.command()
@in_folder
@click.option(
    "--broker",
    envvar="EDGEMETER_BROKER",
    help="Broker: HOST[:PORT], mqtt://... or mqtts://... Default: that of fleet.toml.",
)
def serve(folder: FleetFolder, broker: str | None) -> None:
    """Run the fleet's service.

    It serves enrolment, jobs, updates, content and health until Ctrl-C or SIGTERM.

    Boards get certificates and content over HTTPS, at https_port of fleet.toml.

    Example: edgemeter fleet serve
    """
    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    log_limit.apply()
    folder.broker_address = broker or folder.broker_address
    raise_limit()
    lock = DeviceLock(folder.registry, CLIENT_ID)
    if not lock.take():
        raise UnavailableError(
            f"another service is running for the fleet in {str(folder.path)!r}: stop "
            "that one first, "
            "because two would disconnect each other from the broker"
        )
    # The pause of the network thread after each message: by default it reads 200 a second while the
    # other thread is busy.
    sys.setswitchinterval(SWITCH_S)
    manager = ServiceManager()
    with ExitStack() as stack:
        stack.callback(lock.release)
        stopped = stack.enter_context(until_stopped())
        manager.ready()
        server = FleetServer(folder, read(folder.fleet_file).server)
        stack.callback(server.stop)
        service = FleetService(folder, fleet_broker_address(folder))
        stack.callback(service.stop)
        # Boards join, and renew their certificates, without a broker too.
        server.start()
        if not _is_started(service, stopped, manager):
            return
        print_notes([*process_issues(folder), *resumption_issues(folder, service.address)])
        where = f"at the broker {service.address}, and boards at {server.url}"
        click.echo(f"serving the fleet in {str(folder.path)!r} {where}", err=True)
        while not stopped.wait(ALIVE_S):
            if not service.is_alive():
                raise UnavailableError("the service has stopped: check its log, and start it again")
            if not service.is_stalled():
                manager.alive()


def _is_started(service: FleetService, stopped: threading.Event, manager: ServiceManager) -> bool:
    """Start the service once the broker answers; return False if stopped before."""
    is_reported = False
    while not stopped.is_set():
        try:
            service.start()
        except (UnavailableError, TransientError) as error:
            if not is_reported:
                click.echo(
                    f"edgemeter: {error}; retrying until it answers (Ctrl-C stops)", err=True
                )
            is_reported = True
            manager.alive()
            stopped.wait(RETRY_S)
        else:
            return True
    return False
