"""The constants of the comparison: what ships in `constants.toml`, overridden by a file of the user's, entry by entry."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_toml
from edgemeter.agent.contract.record_figures import Scope

SHIPPED = Path(__file__).with_name("constants.toml")

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Percent = Annotated[float, msgspec.Meta(gt=0, le=100)]


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A constant; none is without its source and year."""

    source: Annotated[str, msgspec.Meta(min_length=1)]
    year: Annotated[int, msgspec.Meta(ge=1990, le=2100)]


class Pue(_Entry, frozen=True, kw_only=True):
    """Power usage effectiveness: what a datacenter draws for each watt that its computers draw."""

    low: Annotated[float, msgspec.Meta(ge=1)]
    high: Annotated[float, msgspec.Meta(ge=1)]


class Utilisation(_Entry, frozen=True, kw_only=True):
    """At which shares of the server's full load the sides are compared."""

    percent: Annotated[tuple[Percent, ...], msgspec.Meta(min_length=1)]


class DataSize(_Entry, frozen=True, kw_only=True):
    """The size of what is sent to the datacenter: for each inference, or for each token of a language model as text."""

    bytes: NotNegative


class Network(_Entry, frozen=True, kw_only=True):
    """One estimate of a network's energy: `average` shares all of it out over the bytes, `marginal` counts what one more byte adds."""

    kind: Literal["average", "marginal"]
    access: Literal["fixed", "mobile"]
    kwh_per_gb: Positive | None = None
    w_per_mbit_per_s: Positive | None = None


class Grid(_Entry, frozen=True, kw_only=True):
    """Carbon of a country's electricity."""

    g_per_kwh: Positive


class Tariff(_Entry, frozen=True, kw_only=True):
    """The price of a kilowatt hour."""

    per_kwh: Positive
    currency: str


class Hardware(_Entry, frozen=True, kw_only=True):
    """The price of a machine, and the time that it is used."""

    price: Positive
    life_years: Positive


class Link(_Entry, frozen=True, kw_only=True):
    """The way to the datacenter: uplink, and the round trip from best to worst."""

    uplink_mbit_per_s: Positive
    rtt_ms: tuple[NotNegative, NotNegative]


class StatedTokens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to a language model as stated; `concurrency` is the number of requests in progress at full load."""

    prompt_tokens: Annotated[int, msgspec.Meta(ge=1)]
    output_tokens: Annotated[int, msgspec.Meta(ge=1)]
    precision: Annotated[str, msgspec.Meta(min_length=1)]
    concurrency: Annotated[int, msgspec.Meta(ge=1)]


class _StatedSide(_Entry, frozen=True, kw_only=True):
    """A side by stated numbers, without a measurement; `latency_ms` is of a whole `batch`, which it begins when it is full."""

    idle_w: NotNegative
    rate_per_s: Positive
    scope: Scope
    latency_ms: Positive | None = None
    batch: Annotated[int, msgspec.Meta(ge=1)] = 1
    tokens: StatedTokens | None = None


class StatedEdge(_StatedSide, frozen=True, kw_only=True):
    """An edge device by stated numbers."""

    net_mj: Positive


class StatedDatacenter(_StatedSide, frozen=True, kw_only=True):
    """A server by stated numbers."""

    max_w: Positive


class Sided(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tariffs of both sides."""

    edge: Tariff
    datacenter: Tariff


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hardware of either side, where it is known."""

    edge: Hardware | None = None
    datacenter: Hardware | None = None


class Stated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sides by stated numbers."""

    edge: StatedEdge | None = None
    datacenter: StatedDatacenter | None = None


class Constants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is assumed."""

    pue: Pue
    utilisation: Utilisation
    request: DataSize
    text_token: DataSize
    network: dict[str, Network]
    grid: dict[str, Grid]
    tariff: Sided
    hardware: Prices = Prices()
    link: Link | None = None
    stated: Stated = Stated()


def read_constants(override: Path | None = None) -> Constants:
    """Return the constants that ship, with the entries of `override` in their place.

    Raises:
        ConfigError: the file cannot be read, an entry is not known, or it has no source and year.
    """
    tables = _table(SHIPPED)
    for name, section in _table(override).items() if override else ():
        # Networks and grids are tables of entries, the rest entries themselves: an entry is replaced as a whole.
        is_table = isinstance(section, dict) and all(isinstance(entry, dict) for entry in section.values())
        tables[name] = {**tables.get(name, {}), **section} if is_table else section
    path = str(override or SHIPPED)
    try:
        constants = msgspec.convert(tables, Constants)
    except msgspec.ValidationError as error:
        raise ConfigError(f"constants {path!r}: {error}: every entry is one of {SHIPPED.name} and has its source and year") from error
    if why := _fault(constants):
        raise ConfigError(f"constants {path!r}: {why}")
    return constants


def _table(path: Path) -> dict[str, Any]:
    try:
        return decode_toml(path.read_bytes(), dict[str, Any])
    except OSError as error:
        raise ConfigError(f"cannot read the constants {str(path)!r}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"constants {str(path)!r} are not valid TOML: {error}") from error


def _fault(constants: Constants) -> str | None:
    if constants.pue.low > constants.pue.high:
        return f"pue.low {constants.pue.low:g} is above pue.high {constants.pue.high:g}"
    if constants.link and constants.link.rtt_ms[0] > constants.link.rtt_ms[1]:
        return f"link.rtt_ms {constants.link.rtt_ms} goes from worst to best: give the best first"
    for name, network in constants.network.items():
        has = (network.kwh_per_gb is not None, network.w_per_mbit_per_s is not None)
        required = "kwh_per_gb" if network.kind == "average" else "w_per_mbit_per_s"
        if has != (required == "kwh_per_gb", required == "w_per_mbit_per_s"):
            return f"network.{name} is {network.kind}: give {required} and nothing else"
    server = constants.stated.datacenter
    if server and server.idle_w > server.max_w:
        return f"stated.datacenter idles at {server.idle_w:g} W, above its {server.max_w:g} W at full load"
    return None
