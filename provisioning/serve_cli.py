"""The command `edgemeter fleet serve`."""

import logging
import signal
import sys
import threading
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

if TYPE_CHECKING:
    from edgemeter.provisioning.serve.service import Service

# After a power cut the broker may come up later than we do.
RETRY_S = 3.0


@click.command()
@folder_option
@click.option("--broker", envvar="EDGEMETER_BROKER", help="HOST[:PORT], mqtt://..., mqtts://... Default: that of fleet.toml.")
@click.option(
    "--content-port",
    envvar="EDGEMETER_CONTENT_PORT",
    type=click.IntRange(0, 65535),
    help="Serve content over HTTPS too, at that port (0: a free one); content_url in fleet.toml tells devices.",
)
@click.option(
    "--content-listen",
    envvar="EDGEMETER_CONTENT_LISTEN",
    default="127.0.0.1",
    show_default=True,
    help="The address for that; 0.0.0.0 or :: for every one.",
)
def serve(folder: FleetFolder, broker: str | None, content_port: int | None, content_listen: str) -> None:
    """Serve the fleet until stopped (Ctrl-C, SIGTERM): enrolment, jobs, updates, content, health.

    Example: edgemeter fleet serve
    """
    from edgemeter.agent.delivery import log_limit
    from edgemeter.agent.delivery.device_claim import DeviceClaim
    from edgemeter.agent.errors import UnavailableError
    from edgemeter.provisioning.content.content_server import ContentServer
    from edgemeter.provisioning.serve import fleet_broker
    from edgemeter.provisioning.serve.service import CLIENT_ID, Service

    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    log_limit.apply()
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    folder = replace(folder, broker_address=broker or folder.broker_address)
    address = fleet_broker.address(folder)
    claim = DeviceClaim(folder.registry, CLIENT_ID)
    if not claim.take():
        message = (
            f"another service serves the fleet in {str(folder.path)!r}: two would throw each other out of the broker; stop that one first"
        )
        raise UnavailableError(message)
    content = None if content_port is None else ContentServer(folder, content_listen, content_port)
    service = Service(folder, address)
    try:
        if not _start(service, ended):
            return
        click.echo(f"serving the fleet in {str(folder.path)!r} at the broker {service.address}", err=True)
        if content is not None:
            content.start()
            click.echo(f"content at {content.url}", err=True)
        while not ended.wait(1.0):
            if not service.is_alive():
                message = "the service has stopped: look at what it logged, and start it again"
                raise UnavailableError(message)
    finally:
        service.stop()
        if content is not None:
            content.stop()
        claim.release()


def _start(service: "Service", ended: threading.Event) -> bool:
    """Return when the broker has accepted the service, False when it is to end before; a broker that is not there yet is waited for."""
    from edgemeter.agent.errors import UnavailableError

    is_told = False
    while not ended.is_set():
        try:
            service.start()
        except UnavailableError as error:
            if not is_told:
                click.echo(f"edgemeter: {error}; trying again until it is there (Ctrl-C ends it)", err=True)
            is_told = True
            ended.wait(RETRY_S)
        else:
            return True
    return False
