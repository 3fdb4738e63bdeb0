"""The command `edgemeter fleet power`."""

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

if TYPE_CHECKING:
    from edgemeter.provisioning.inventory.fleet_file import FleetFile
    from edgemeter.provisioning.registry.registry import Registry
    from edgemeter.provisioning.rescue import PowerSwitch
    from edgemeter.provisioning.rescue.wiring import Wiring

# A device tells what it does every few seconds while it measures, but for the timed part of a run.
STILL_MEASURING_S = 900.0


@click.command()
@click.argument("device")
@click.argument("action", type=click.Choice(["on", "off", "cycle", "status"]))
@click.option("--force", is_flag=True, help="Cut the power though a run may be in progress: that run is lost.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def power(device: str, action: str, folder: FleetFolder, *, force: bool, dry_run: bool, as_json: bool) -> None:
    """Switch the power of a device on or off, cut it for a moment, or ask its switch.

    Example: edgemeter fleet power pi5-01 cycle
    """
    from contextlib import closing

    from edgemeter.agent.errors import ConfigError
    from edgemeter.provisioning.inventory import fleet_file
    from edgemeter.provisioning.registry.registry import Registry
    from edgemeter.provisioning.rescue import wiring

    said = fleet_file.read(folder.fleet_file)
    wired = wiring.wiring(device, said, folder)
    if wired is None:
        message = f"device {device!r} has no switch: set switch in [device.{device}] of {str(folder.fleet_file)!r} to {wiring.WRITTEN}"
        raise ConfigError(message)
    switch = wiring.open_switch(wired)
    with closing(Registry(folder.registry)) as registry:
        if action in {"off", "cycle"} and not force:
            _check(wired, said, registry)
        if dry_run:
            click.echo(f"{device}: would {action} {wired.text}")
            return
        outcome = "" if action == "status" else _do(registry, wired, switch, action, said.rescue.off_s)
    found = switch.state()
    if as_json:
        click.echo(json.dumps({"device": device, "switch": wired.text, "is_on": found.is_on, "warnings": list(found.warnings)}))
    else:
        click.echo(f"{device}: {outcome}{ {True: 'on', False: 'off', None: 'not told'}[found.is_on] }")
        for warning in found.warnings:
            click.echo(f"edgemeter: {wired.text}: {warning}", err=True)
    sys.exit(0)


def _check(wired: "Wiring", said: "FleetFile", registry: "Registry") -> None:
    from edgemeter.agent.errors import UnavailableError
    from edgemeter.provisioning.jobs import executions
    from edgemeter.provisioning.rescue import measuring, rules
    from edgemeter.provisioning.rescue.neighbours import Neighbours

    others = Neighbours(said, wired.folder).of(wired, registry)
    in_flight = {one: found.job for one in (wired.device, *others) if (found := executions.in_flight_of(registry, one)) is not None}
    heard = rules.Heard(in_flight, measuring.read(registry))
    # Somebody looks on: a device that went on after it was heard would be heard again.
    why = rules.why_not(wired.device, others, heard, STILL_MEASURING_S, time.time_ns())
    if why is not None:
        message = f"the power of {wired.device!r} is not cut: {why}; wait, or give --force and lose the run"
        raise UnavailableError(message)


def _do(registry: "Registry", wired: "Wiring", switch: "PowerSwitch", action: str, off_s: float) -> str:
    from edgemeter.agent.errors import EdgemeterError
    from edgemeter.provisioning.rescue import attempts

    with registry.transaction() as connection:
        number = attempts.begin(connection, wired.device, wired.text, action, "hand", time.time_ns())
    outcome = "interrupted"
    try:
        if action == "cycle":
            click.echo(f"{wired.device}: power off for {off_s:g} s ...", err=True)
            switch.cycle(off_s)
        elif action == "on":
            switch.on()
        else:
            switch.off()
        outcome = "done"
    except EdgemeterError as error:
        outcome = str(error)
        raise
    finally:
        with registry.transaction() as connection:
            attempts.end(connection, number, outcome, time.time_ns())
    return f"{action} done, power is "
