"""The campaign file: models x devices x modes as people write them; `sample_campaign.toml` beside this file shows every key."""

from pathlib import Path
from typing import Annotated

import msgspec

from edgemeter.agent.engine.suites import Settings
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.jobs.contract import JobId
from edgemeter.agent.records import Name
from edgemeter.provisioning.inventory.fleet_file import Tag

Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Devices = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=604_800)]


class Mode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to measure: the keys of a suite's case, and the power mode that a device has to be in (it says so in fleet.toml)."""

    name: Name
    power_mode: str | None = None
    # Devices that it is for, by a selection; others count as impossible.
    on: str | None = None
    case: Settings = Settings()


class Abort(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The campaign stops when at least `min_executed` have ended, and the share of those that failed so exceeds its limit."""

    min_executed: Annotated[int, msgspec.Meta(ge=1)] = 3
    failed_ratio: Share = 0.2
    rejected_ratio: Share = 0.2
    timed_out_ratio: Share = 0.2


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How it goes on: a canary group first (so many devices, or that share of them), then groups of `group`.

    The next group begins when `success_ratio` of this one is done; a group that can no longer reach it aborts the campaign.
    """

    canary: Devices | None = None
    canary_ratio: Share | None = None
    group: Devices | None = None
    success_ratio: Share = 0.8
    max_in_flight: Devices | None = None
    abort: Abort = Abort()


class CampaignFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; the modes left out: one, `quick`."""

    name: JobId
    on: str
    models: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    modes: tuple[Mode, ...] = (Mode(name="quick"),)
    timeout_s: Seconds = 3600.0
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 1
    cool_down_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    exclusive: tuple[Tag, ...] = ()
    rules: Rules = Rules()


def read(path: Path) -> CampaignFile:
    """Return what stands in `path`.

    Raises:
        ConfigError: it cannot be read, has a wrong or unknown key, two modes have one name, or the canary is said twice.
    """
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=CampaignFile)
    except OSError as error:
        message = f"cannot read the campaign file {str(path)!r}: {error.strerror}: give the path of a TOML file"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"campaign file {str(path)!r}: {error}: correct the key or value"
        raise ConfigError(message) from error
    names = [mode.name for mode in found.modes]
    if not names:
        message = f"campaign file {str(path)!r}: `modes` is empty: leave it out, or add [[modes]] with a name"
        raise ConfigError(message)
    for name in names:
        if names.count(name) > 1:
            message = f"campaign file {str(path)!r}: two modes are named {name!r}: rename one"
            raise ConfigError(message)
    if found.rules.canary is not None and found.rules.canary_ratio is not None:
        message = f"campaign file {str(path)!r}: canary and canary_ratio say the same twice: leave one out"
        raise ConfigError(message)
    return found
