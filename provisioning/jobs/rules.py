"""Which execution may start now: a pure function of the candidate, of what is in flight, and of the rules.

In one fleet at one moment:
- one execution is in flight on a device, whatever it is;
- of the devices that share a tag which a job calls exclusive, one measures; other work starts at once;
- a campaign has at most its own limit in flight.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
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
RULES_POLL_S = 2.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """One execution that could start."""

    execution: int
    device: str
    due_ns: int
    measures: bool = True
    exclusive: tuple[str, ...] = ()
    campaign: str | None = None


@dataclass(frozen=True, slots=True)
class StartRules:
    """From fleet.toml and campaigns: the tags of devices, the limits of campaigns, and revoked devices."""

    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    most_in_flight: Mapping[str, int] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()


class InFlight:
    """The work in flight under these rules, counted by device, tag and campaign."""

    def __init__(self, rules: StartRules, candidates: Iterable[Candidate] = ()) -> None:
        self._rules = rules
        self._devices: set[str] = set()
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
            tags = self._rules.tags.get(candidate.device, ())
            self._tags.update(tags)
            self._exclusive.update(tag for tag in tags if tag in candidate.exclusive)

    def why_not(self, candidate: Candidate, now_ns: int) -> str | None:
        """Return why an execution may not start at `now_ns` (UTC), None when it may."""
        if candidate.device in self._devices:
            return "its device is busy"
        if candidate.due_ns > now_ns:
            return f"retry in {(candidate.due_ns - now_ns) / NS_PER_S:.0f} s"
        limit = None if candidate.campaign is None else self._rules.most_in_flight.get(candidate.campaign)
        if limit is not None and self._campaigns[candidate.campaign] >= limit:
            return f"its campaign has {self._campaigns[candidate.campaign]} executions in flight, its limit"
        for tag in self._rules.tags.get(candidate.device, ()) if candidate.measures else ():
            if (tag in candidate.exclusive and self._tags[tag]) or self._exclusive[tag]:
                return f"another of {tag!r} is measuring"
        return None


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
        tags={device.device: device.tags for device in merged},
        most_in_flight=_most_in_flight(registry),
        revoked=frozenset(device.device for device in merged if device.trust == "revoked"),
    )


def _most_in_flight(registry: Registry) -> dict[str, int]:
    limits = ((campaign.campaign, campaign.rules.max_in_flight) for campaign in campaigns.read_open(registry))
    return {name: limit for name, limit in limits if limit is not None}
