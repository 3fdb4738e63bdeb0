"""Orders that begin or end a schedule on devices; a schedule is theirs from then on, this server need not be there."""

from pathlib import Path

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.jobs import cron as cron_times
from edgemeter.agent.jobs.contract import Golden, JobId, Schedule
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs import ordering


def check(name: str, cron: str | None, suite: Path | None, *, is_end: bool, is_golden: bool) -> None:
    """Find what is wrong with a wish for a schedule.

    Raises:
        ConfigError: the name or the times cannot be read, or what is said does not go together.
    """
    try:
        msgspec.convert(name, JobId)
    except msgspec.ValidationError as error:
        message = f"{name!r} cannot be the name of a schedule: small letters, digits and dashes, at most 64"
        raise ConfigError(message) from error
    if is_end:
        if cron is not None or suite is not None or is_golden:
            message = "--end takes a name and --on, and nothing to measure"
            raise ConfigError(message)
        return
    if cron is None or (suite is None) != is_golden:
        message = "a schedule needs --cron 'MINUTE HOUR DAY MONTH WEEKDAY' and either a suite or --golden; --end ends one"
        raise ConfigError(message)
    cron_times.parse(cron)


def work(
    folder: FleetFolder, name: str, cron: str | None, suite: Path | None, *, is_rehearsal: bool = False
) -> tuple[Schedule, tuple[str, ...]]:
    """Return the order, and what somebody should know about it; without `cron` it ends the schedule.

    Raises:
        EdgemeterError: as `packing.pack_file`.
    """
    if suite is None:
        return Schedule(name=name, cron=cron or "", work=Golden()), ()
    packed = ordering.pack(folder, suite, is_rehearsal=is_rehearsal)
    return Schedule(name=name, cron=cron or "", work=packed.work), packed.notes
