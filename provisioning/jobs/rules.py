"""Which execution may start now: a pure function of the candidate, of what is measuring, and of the rules in fleet.toml.

Rules hold for measurements; other work starts at once. In one fleet at one moment:
- one execution is in flight on a device, whatever it is;
- nothing starts in quiet hours, nor within the cool-down after a device's last run;
- measurements on a circuit draw at most its limit. A device on a circuit without `power_w` counts as the whole circuit: it measures
  alone there. One that draws more than the limit never starts;
- of the devices that share a tag which a job calls exclusive, one measures;
- a campaign has at most its own limit in flight.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.provisioning.inventory.fleet_file import FleetFile, WatchedFleetFile, read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.selection import merge_devices
from edgemeter.provisioning.registry import campaigns, devices
from edgemeter.provisioning.registry.registry import Registry

logger = logging.getLogger(__name__)
# Sums of watts are compared as people write them.
_EPSILON_W = 1e-9
RULES_POLL_S = 2.0


def quiet_window(windows: Sequence[str], now_ns: int) -> str | None:
    """Return the window (`22:00-06:00`) that `now_ns` (UTC) lies in by this machine's local time, None outside of all.

    A window includes its first minute and not its last; one whose end is not later than its beginning goes over midnight.
    """
    now = time.strftime("%H:%M", time.localtime(now_ns // NS_PER_S))
    for window in windows:
        first, _, last = window.partition("-")
        if first <= now < last if first < last else now >= first or now < last:
            return window
    return None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One execution that could start."""

    execution: int
    device: str
    due_ns: int
    measures: bool = True
    cool_down_s: float = 0.0
    exclusive: tuple[str, ...] = ()
    campaign: str | None = None


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """The known power supply and tags of a device."""

    circuit: str | None = None
    power_w: float | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartRules:
    """From fleet.toml and campaigns: limits of circuits (W), quiet hours, revoked devices."""

    circuits_w: Mapping[str, float] = field(default_factory=dict)
    quiet: tuple[str, ...] = ()
    places: Mapping[str, DevicePlace] = field(default_factory=dict)
    most_in_flight: Mapping[str, int] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()


class InFlight:
    """The work in flight under these rules, counted by circuit, tag and campaign; `last_end_ns` is when each device last measured (UTC)."""

    def __init__(self, rules: StartRules, candidates: Iterable[Candidate] = (), last_end_ns: Mapping[str, int] | None = None) -> None:
        self._rules = rules
        self._last_end_ns = last_end_ns or {}
        self._devices: set[str] = set()
        self._powers_w: defaultdict[str, list[float | None]] = defaultdict(list)
        self._tags: Counter[str] = Counter()
        self._exclusive: Counter[str] = Counter()
        self._campaigns: Counter[str | None] = Counter()
        for candidate in candidates:
            self.begin(candidate)

    def begin(self, candidate: Candidate) -> None:
        """Count an execution as in flight."""
        self._devices.add(candidate.device)
        self._campaigns[candidate.campaign] += 1
        if candidate.measures:
            supply = self._rules.places.get(candidate.device, DevicePlace())
            self._tags.update(supply.tags)
            self._exclusive.update(tag for tag in supply.tags if tag in candidate.exclusive)
            if supply.circuit is not None:
                self._powers_w[supply.circuit].append(supply.power_w)

    def why_not(self, candidate: Candidate, now_ns: int) -> str | None:
        """Return why an execution may not start at `now_ns` (UTC), None when it may."""
        if candidate.device in self._devices:
            return "its device is busy"
        if candidate.due_ns > now_ns:
            return f"retry in {(candidate.due_ns - now_ns) / NS_PER_S:.0f} s"
        limit = None if candidate.campaign is None else self._rules.most_in_flight.get(candidate.campaign)
        if limit is not None and self._campaigns[candidate.campaign] >= limit:
            return f"its campaign has {self._campaigns[candidate.campaign]} executions in flight, its limit"
        return self._why_not_measure(candidate, now_ns) if candidate.measures else None

    def _why_not_measure(self, candidate: Candidate, now_ns: int) -> str | None:
        rules = self._rules
        if window := quiet_window(rules.quiet, now_ns):
            return f"quiet hours {window}"
        cool_ns = self._last_end_ns.get(candidate.device, 0) + int(candidate.cool_down_s * NS_PER_S)
        if candidate.cool_down_s and cool_ns > now_ns:
            return f"cooling down for {(cool_ns - now_ns) / NS_PER_S:.0f} s"
        supply = rules.places.get(candidate.device, DevicePlace())
        for tag in supply.tags:
            if (tag in candidate.exclusive and self._tags[tag]) or self._exclusive[tag]:
                return f"another of {tag!r} is measuring"
        return why_never(supply, rules) or self._why_no_power(supply)

    def _why_no_power(self, supply: DevicePlace) -> str | None:
        limit_w = self._rules.circuits_w.get(supply.circuit or "")
        powers_w = self._powers_w.get(supply.circuit or "")
        if limit_w is None or not powers_w:
            return None
        if None in powers_w:
            return f"circuit {supply.circuit!r} is taken by a device without power_w"
        in_use_w = sum(power_w or 0.0 for power_w in powers_w)
        if in_use_w + (limit_w if supply.power_w is None else supply.power_w) > limit_w + _EPSILON_W:
            unsaid = ", and this device has no power_w" if supply.power_w is None else ""
            return f"circuit {supply.circuit!r}: {in_use_w:g} of {limit_w:g} W are in use{unsaid}"
        return None


def why_never(supply: DevicePlace, rules: StartRules) -> str | None:
    """Return why a device can never measure under these rules (it draws more than its circuit gives), None when it can."""
    limit_w = None if supply.circuit is None else rules.circuits_w.get(supply.circuit)
    if limit_w is None or supply.power_w is None or supply.power_w <= limit_w + _EPSILON_W:
        return None
    return f"it draws {supply.power_w:g} W, but its circuit {supply.circuit!r} gives {limit_w:g} W"


def choose(candidates: Iterable[Candidate], busy: InFlight, now_ns: int, limit: int) -> list[Candidate]:
    """Return up to `limit` executions to start now, in the order given; afterwards `busy` counts them as in flight."""
    starting: list[Candidate] = []
    for candidate in candidates:
        if busy.why_not(candidate, now_ns) is None:
            busy.begin(candidate)
            starting.append(candidate)
            if len(starting) >= limit:
                break
    return starting


class WatchedRules:
    """The rules as they are now, read again when they changed; an invalid fleet.toml leaves them as they were, and is logged once."""

    def __init__(self, folder: FleetFolder, registry: Registry) -> None:
        self._file = WatchedFleetFile(folder)
        self._registry = registry
        self._seen: tuple[Any, ...] | None = None
        self._due_ns = 0
        self.rules = StartRules()

    def poll(self, now_ns: int) -> bool:
        """Return whether the rules changed; checks every two seconds at most."""
        if now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + int(RULES_POLL_S * NS_PER_S)
        try:
            written = self._file.read()
        except EdgemeterError as error:
            logger.warning("the previous rules stay in force: %s", error)
            return False
        counts = tuple(self._registry.query("SELECT COUNT(*), MAX(changed_ns) FROM devices")[0])
        present = (written, counts, _most_in_flight(self._registry))
        if present == self._seen:
            return False
        self._seen, before = present, self.rules
        self.rules = _rules(written, self._registry)
        return self.rules != before


def read_rules(folder: FleetFolder, registry: Registry) -> StartRules:
    """Return the rules as they are now; raises ConfigError if fleet.toml has a wrong or unknown key."""
    return _rules(read_if_present(folder), registry)


def _rules(written: FleetFile | None, registry: Registry) -> StartRules:
    merged = merge_devices(devices.read(registry), written)
    return StartRules(
        circuits_w={name: circuit.limit_w for name, circuit in written.circuit.items()} if written else {},
        quiet=written.quiet if written else (),
        places={device.device: DevicePlace(device.circuit, device.power_w, device.tags) for device in merged},
        most_in_flight=_most_in_flight(registry),
        revoked=frozenset(device.device for device in merged if device.trust == "revoked"),
    )


def _most_in_flight(registry: Registry) -> dict[str, int]:
    limits = ((campaign.campaign, campaign.rules.max_in_flight) for campaign in campaigns.read_open(registry))
    return {name: limit for name, limit in limits if limit is not None}
