"""Which execution may start now: a pure function of the candidate, of what is measuring, and of the rules in fleet.toml.

Rules hold for measurements (measure, canary); other work starts at once. In one fleet at one moment:
- one execution is in flight on a device, whatever it is;
- a `suspect` device runs only its canary;
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
from edgemeter.provisioning.inventory.fleet_file import read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.selection import read_devices
from edgemeter.provisioning.registry import campaigns
from edgemeter.provisioning.registry.devices import suspects
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
    is_golden: bool = False
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
    """From fleet.toml, health and campaigns: limits of circuits (W), quiet hours, suspects with the reason, revoked devices."""

    circuits_w: Mapping[str, float] = field(default_factory=dict)
    quiet: tuple[str, ...] = ()
    places: Mapping[str, DevicePlace] = field(default_factory=dict)
    suspects: Mapping[str, str] = field(default_factory=dict)
    most_in_flight: Mapping[str, int] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()


class InFlight:
    """The work in flight, counted by circuit, tag and campaign; `begin` and `end` keep it up to date."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Candidate, DevicePlace]] = {}
        self._watts: dict[str, float] = defaultdict(float)
        self._alone: Counter[str] = Counter()
        self._on_circuit: Counter[str] = Counter()
        self._tags: Counter[str] = Counter()
        self._exclusive: Counter[str] = Counter()
        self._campaigns: Counter[str] = Counter()
        self.last_end_ns: dict[str, int] = {}

    def begin(self, candidate: Candidate, supply: DevicePlace) -> None:
        """Count an execution as in flight."""
        self._held[candidate.device] = (candidate, supply)
        self._count(candidate, supply, 1)

    def end(self, device: str, now_ns: int) -> None:
        """Stop counting what is in flight on a device, and note when it ended; an idle device stays idle."""
        candidate = self.withdraw(device)
        if candidate is not None and candidate.measures:
            self.last_end_ns[device] = now_ns

    def withdraw(self, device: str) -> Candidate | None:
        """Stop counting what is in flight on a device, as if it had never started; return it."""
        candidate, supply = self._held.pop(device, (None, DevicePlace()))
        if candidate is not None:
            self._count(candidate, supply, -1)
        return candidate

    def __contains__(self, device: str) -> bool:
        return device in self._held

    def watts(self, circuit: str) -> float:
        """Return what the devices with a `power_w` draw on a circuit."""
        return self._watts[circuit] if self._on_circuit[circuit] else 0.0

    def why_not(self, candidate: Candidate, rules: StartRules, now_ns: int) -> str | None:
        """Return why an execution may not start at `now_ns` (UTC), None when it may."""
        if candidate.device in self._held:
            return "its device is busy"
        if candidate.due_ns > now_ns:
            return f"retry in {(candidate.due_ns - now_ns) / NS_PER_S:.0f} s"
        if candidate.campaign is not None and self._campaigns[candidate.campaign] >= rules.most_in_flight.get(candidate.campaign, 1 << 30):
            return f"its campaign has {self._campaigns[candidate.campaign]} executions in flight, its limit"
        return self._why_not_measure(candidate, rules, now_ns) if candidate.measures else None

    def _why_not_measure(self, candidate: Candidate, rules: StartRules, now_ns: int) -> str | None:
        if not candidate.is_golden and candidate.device in rules.suspects:
            return f"suspect: {rules.suspects[candidate.device]}"
        if window := quiet_window(rules.quiet, now_ns):
            return f"quiet hours {window}"
        cool_ns = self.last_end_ns.get(candidate.device, 0) + int(candidate.cool_down_s * NS_PER_S)
        if candidate.cool_down_s and cool_ns > now_ns:
            return f"cooling down for {(cool_ns - now_ns) / NS_PER_S:.0f} s"
        supply = rules.places.get(candidate.device, DevicePlace())
        for tag in supply.tags:
            if (tag in candidate.exclusive and self._tags[tag]) or self._exclusive[tag]:
                return f"another of {tag!r} is measuring"
        return self._why_no_power(supply, rules)

    def _why_no_power(self, supply: DevicePlace, rules: StartRules) -> str | None:
        limit_w = None if supply.circuit is None else rules.circuits_w.get(supply.circuit)
        if supply.circuit is None or limit_w is None:
            return None
        if why := why_never(supply, rules):
            return why
        draws_w = limit_w if supply.power_w is None else supply.power_w
        if self._alone[supply.circuit]:
            return f"circuit {supply.circuit!r} is taken by a device without power_w"
        in_use_w = self.watts(supply.circuit)
        if self._on_circuit[supply.circuit] and in_use_w + draws_w > limit_w + _EPSILON_W:
            unsaid = ", and this device has no power_w" if supply.power_w is None else ""
            return f"circuit {supply.circuit!r}: {in_use_w:g} of {limit_w:g} W are in use{unsaid}"
        return None

    def _count(self, candidate: Candidate, supply: DevicePlace, by: int) -> None:
        if candidate.campaign is not None:
            self._campaigns[candidate.campaign] += by
        if not candidate.measures:
            return
        for tag in supply.tags:
            self._tags[tag] += by
            if tag in candidate.exclusive:
                self._exclusive[tag] += by
        if supply.circuit is not None:
            self._on_circuit[supply.circuit] += by
            if supply.power_w is None:
                self._alone[supply.circuit] += by
            else:
                self._watts[supply.circuit] += by * supply.power_w


def why_never(supply: DevicePlace, rules: StartRules) -> str | None:
    """Return why a device can never measure under these rules (it draws more than its circuit gives), None when it can."""
    limit_w = None if supply.circuit is None else rules.circuits_w.get(supply.circuit)
    if limit_w is None or supply.power_w is None or supply.power_w <= limit_w + _EPSILON_W:
        return None
    return f"it draws {supply.power_w:g} W, but its circuit {supply.circuit!r} gives {limit_w:g} W"


def choose(
    candidates: Iterable[Candidate], busy: InFlight, rules: StartRules, now_ns: int, limit: int
) -> tuple[list[Candidate], dict[int, str]]:
    """Return up to `limit` executions to start now, in the order given, and why the others that were checked wait.

    Afterwards `busy` counts those as in flight.
    """
    starting: list[Candidate] = []
    waiting: dict[int, str] = {}
    for candidate in candidates:
        why = busy.why_not(candidate, rules, now_ns)
        if why is not None:
            waiting[candidate.execution] = why
            continue
        busy.begin(candidate, rules.places.get(candidate.device, DevicePlace()))
        starting.append(candidate)
        if len(starting) >= limit:
            break
    return starting, waiting


class WatchedRules:
    """The rules as they are now, read again when they changed; an invalid fleet.toml leaves them as they were, and is logged once."""

    def __init__(self, folder: FleetFolder, registry: Registry) -> None:
        self._folder = folder
        self._registry = registry
        self._seen: Any = None
        self._due_ns = 0
        self.rules = StartRules()

    def poll(self, now_ns: int) -> bool:
        """Return whether the rules changed; checks every two seconds at most."""
        if now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + int(RULES_POLL_S * NS_PER_S)
        signs = self._signs()
        if signs == self._seen:
            return False
        self._seen = signs
        try:
            fresh = read_rules(self._folder, self._registry)
        except EdgemeterError as error:
            logger.warning("the previous rules stay in force: %s", error)
            return False
        is_changed, self.rules = fresh != self.rules, fresh
        return is_changed

    def _signs(self) -> tuple[Any, ...]:
        try:
            file = self._folder.fleet_file.stat()
            written: tuple[int, int] | None = (file.st_mtime_ns, file.st_size)
        except OSError:
            written = None
        devices = self._registry.query("SELECT COUNT(*), MAX(changed_ns) FROM devices")[0]
        running = [(campaign.campaign, campaign.rules.max_in_flight) for campaign in campaigns.read_open(self._registry)]
        return written, tuple(devices), running, suspects(self._registry)


def read_rules(folder: FleetFolder, registry: Registry) -> StartRules:
    """Return the rules as they are now; raises ConfigError if fleet.toml has a wrong or unknown key."""
    written = read_if_present(folder)
    devices = read_devices(folder, registry)
    return StartRules(
        circuits_w={name: circuit.limit_w for name, circuit in written.circuit.items()} if written else {},
        quiet=written.quiet if written else (),
        places={device.device: DevicePlace(device.circuit, device.power_w, device.tags) for device in devices},
        suspects=suspects(registry),
        most_in_flight={
            campaign.campaign: campaign.rules.max_in_flight
            for campaign in campaigns.read_open(registry)
            if campaign.rules.max_in_flight is not None
        },
        revoked=frozenset(device.device for device in devices if device.trust == "revoked"),
    )
