"""The constants of the comparison are in `constants.toml`.

The user's file overrides them, entry by entry.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.foreign_text import decode_toml
from edgemeter.agent.contract.record_figures import Scope

SHIPPED = Path(__file__).with_name("constants.toml")

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A constant with its source and year."""

    source: Annotated[str, msgspec.Meta(min_length=1)]
    year: Annotated[int, msgspec.Meta(ge=1990, le=2100)]


class Pue(_Entry, frozen=True, kw_only=True):
    """Power usage effectiveness: the power of a datacenter per watt of its computers."""

    low: Annotated[float, msgspec.Meta(ge=1)]
    high: Annotated[float, msgspec.Meta(ge=1)]

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")


class Utilisation(_Entry, frozen=True, kw_only=True):
    """The shares of the server's full load at which the sides are compared."""

    percent: Annotated[
        tuple[Annotated[float, msgspec.Meta(gt=0, le=100)], ...], msgspec.Meta(min_length=1)
    ]


class RequestSize(_Entry, frozen=True, kw_only=True):
    """The size of the request to the datacenter for each inference."""

    bytes: NotNegative


class Network(_Entry, frozen=True, kw_only=True):
    """One estimate of a network's energy.

    It is either all of it divided by the bytes, or the marginal energy of one more byte.
    """

    access: Literal["fixed", "mobile"]
    kwh_per_gb: Positive | None = None
    w_per_mbit_per_s: Positive | None = None

    def __post_init__(self) -> None:
        if (self.kwh_per_gb is None) == (self.w_per_mbit_per_s is None):
            raise ValueError("a network has either kwh_per_gb or w_per_mbit_per_s")

    @property
    def mj_per_byte(self) -> float:
        """The energy of a byte.

        A GB is 10^9 bytes, a kWh 3.6 x 10^6 J, and a byte 8 x 10^-6 Mbit.
        """
        return (
            self.kwh_per_gb * 3.6
            if self.kwh_per_gb is not None
            else 8e-3 * (self.w_per_mbit_per_s or 0.0)
        )


class Grid(_Entry, frozen=True, kw_only=True):
    """Carbon intensity of a country's electricity."""

    g_per_kwh: Positive


class StatedServer(_Entry, frozen=True, kw_only=True):
    """A server by stated numbers, without a measurement: idle, and at full load."""

    idle_w: NotNegative
    max_w: Positive
    rate_per_s: Positive
    scope: Scope

    def __post_init__(self) -> None:
        if self.idle_w > self.max_w:
            raise ValueError(
                f"it idles at {self.idle_w:g} W, above its {self.max_w:g} W at full load"
            )


class Constants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All assumptions."""

    pue: Pue
    utilisation: Utilisation
    request: RequestSize
    network: dict[str, Network]
    grid: dict[str, Grid]
    stated_server: StatedServer | None = None


def read_constants(override: Path | None = None) -> Constants:
    """Return the shipped constants, overridden by the entries of `override`.

    It raises ConfigError for an entry that is not valid.
    """
    path = str(override or SHIPPED)
    try:
        with os_error_as(ConfigError, f"cannot read the constants {path!r}"):
            tables, *overrides = [
                decode_toml(file.read_bytes(), dict[str, Any])
                for file in (SHIPPED, override)
                if file
            ]
        for name, section in overrides[0].items() if overrides else ():
            # Networks and grids are tables of entries, the others are entries: an entry is replaced
            # as a whole.
            is_table = isinstance(section, dict) and all(
                isinstance(entry, dict) for entry in section.values()
            )
            tables[name] = {**tables.get(name, {}), **section} if is_table else section
        return msgspec.convert(tables, Constants)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"constants {path!r}: {error}: every entry is one of {SHIPPED.name} and has its "
            "source and year"
        ) from error
