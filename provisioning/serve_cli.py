"""The command `edgemeter fleet serve`."""

import logging
import signal
import sys
import threading
from types import FrameType

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option


@click.command()
@folder_option
@click.option("--broker", envvar="EDGEMETER_BROKER", help="HOST[:PORT], mqtt://..., mqtts://... Default: that of fleet.toml.")
def serve(folder: FleetFolder, broker: str | None) -> None:
    """Serve the fleet until stopped (Ctrl-C, SIGTERM): enrolment, jobs, updates, content, health.

    Example: edgemeter fleet serve
    """
    from edgemeter.agent.errors import UnavailableError
    from edgemeter.provisioning.serve import fleet_broker
    from edgemeter.provisioning.serve.service import Service

    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    service = Service(folder, fleet_broker.address(folder, broker))
    try:
        service.start()
        click.echo(f"serving the fleet in {str(folder.path)!r} at the broker {service.address}", err=True)
        while not ended.wait(1.0):
            if not service.is_alive():
                message = "the service has stopped: look at what it logged, and start it again"
                raise UnavailableError(message)
    finally:
        service.stop()
