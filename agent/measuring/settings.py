"""Where a session runs, what observes it, and where its records go.

Each default stands here once.
"""

import os
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

IfNoBroker: TypeAlias = Literal["fail", "keep"]
IF_NO_BROKER: IfNoBroker = "fail"
DELIVERY_TIMEOUT_S = 60.0
# Settings that may come from a variable of the environment.
_OF_ENVIRONMENT = ("device", "fleet", "power", "config", "broker")


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a session; those of a case are `contract.case_settings.Settings`.

    Attributes:
        device: name of this device; None: that of the configuration, else the host name.
        fleet: fleet of this device; None: that of the configuration.
        config: the agent's configuration; None: the usual file, if it is there.
        power: names of power sensors, separated by commas, or `none`; None: the widest scope.
        save: whether this device's ledger keeps the runs.
        bundle: folder that receives each run as a bundle.
        broker: address of the MQTT broker that receives the records; None: the configuration's.
        if_no_broker: whether a session without an answering broker fails, or keeps its records.
        delivery_timeout_s: how long to wait for receipts at the end.
        on: boards, as ssh://USER@HOST, that measure instead of this machine.
        release: release to install on these boards; None: one that is built for the board.
    """

    device: str | None = None
    fleet: str | None = None
    config: Path | None = None
    power: str | None = None
    save: bool = True
    bundle: Path | None = None
    broker: str | None = None
    if_no_broker: IfNoBroker = IF_NO_BROKER
    delivery_timeout_s: float = DELIVERY_TIMEOUT_S
    on: tuple[str, ...] = ()
    release: Path | None = None

    @classmethod
    def of_environment(cls, **settings: Any) -> "SessionSettings":
        """Return the settings of a call from Python; a variable of the environment replaces None.

        Records that no broker takes are kept for later.
        """
        values: dict[str, Any] = {
            name: os.environ.get(f"EDGEMETER_{name.upper()}") or None for name in _OF_ENVIRONMENT
        }
        values |= {name: value for name, value in settings.items() if value not in (None, "")}
        config = values.pop("config")
        return cls(config=Path(config) if config else None, if_no_broker="keep", **values)
