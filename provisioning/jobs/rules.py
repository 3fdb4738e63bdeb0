"""Who may start now: one pure function of what is asked for, of what is measuring, and of the rules in fleet.toml.

Rules hold for measurements (measure, golden); other work goes out at once. In one fleet at one moment:
- one execution is in flight on a device, whatever it is;
- a `suspect` device measures nothing but its golden job;
- nothing is started in quiet hours, nor within the cool-down after a device's last run;
- what measures on a circuit draws its limit at most. A device on a circuit that does not say its `power_w` counts as the whole circuit:
  it measures alone there. One that draws more than the limit never starts;
- of the devices that share a tag which a job calls exclusive, one measures;
- of a campaign so many are in flight as it says.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgemeter.provisioning.jobs import quiet

# Sums of watts are compared as people write them.
_EPSILON_W = 1e-9


@dataclass(frozen=True, slots=True)
class Asked:
    """One execution that wants to start."""

    execution: int
    device: str
    due_ns: int
    measures: bool = True
    is_golden: bool = False
    cool_down_s: float = 0.0
    exclusive: tuple[str, ...] = ()
    campaign: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of a device's power and tags."""

    circuit: str | None = None
    power_w: float | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What fleet.toml, health and the campaigns say: limits of circuits (W), suspects with the reason, who is out for good."""

    circuits_w: Mapping[str, float] = field(default_factory=dict)
    quiet: tuple[str, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    suspects: Mapping[str, str] = field(default_factory=dict)
    most_in_flight: Mapping[str, int] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()


class Busy:
    """What is in flight now; `begin` and `end` keep it up to date, so that nobody has to count it anew."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Asked, Place]] = {}
        self._watts: dict[str, float] = defaultdict(float)
        self._alone: Counter[str] = Counter()
        self._on_circuit: Counter[str] = Counter()
        self._tags: Counter[str] = Counter()
        self._exclusive: Counter[str] = Counter()
        self._campaigns: Counter[str] = Counter()
        self.last_end_ns: dict[str, int] = {}

    def begin(self, asked: Asked, place: Place) -> None:
        """Count an execution as in flight."""
        self._held[asked.device] = (asked, place)
        self._count(asked, place, 1)

    def end(self, device: str, now_ns: int) -> None:
        """Count what is in flight on a device no more, and when it ended; one that is idle stays so."""
        asked = self.withdraw(device)
        if asked is not None and asked.measures:
            self.last_end_ns[device] = now_ns

    def withdraw(self, device: str) -> Asked | None:
        """Count what is in flight on a device no more, as if it had not been there; return it."""
        asked, place = self._held.pop(device, (None, Place()))
        if asked is not None:
            self._count(asked, place, -1)
        return asked

    def __contains__(self, device: str) -> bool:
        return device in self._held

    def watts(self, circuit: str) -> float:
        """Return what is drawn on a circuit by those that say how much."""
        return self._watts[circuit] if self._on_circuit[circuit] else 0.0

    def why_not(self, asked: Asked, rules: Rules, now_ns: int) -> str | None:
        """Return why an execution may not start at `now_ns` (UTC), None when it may."""
        if asked.device in self._held:
            return "its device is busy"
        if asked.due_ns > now_ns:
            return f"again in {(asked.due_ns - now_ns) / quiet.NS_PER_S:.0f} s"
        if asked.campaign is not None and self._campaigns[asked.campaign] >= rules.most_in_flight.get(asked.campaign, 1 << 30):
            return f"{self._campaigns[asked.campaign]} of its campaign are in flight, that is the most"
        return self._why_not_measure(asked, rules, now_ns) if asked.measures else None

    def _why_not_measure(self, asked: Asked, rules: Rules, now_ns: int) -> str | None:
        if not asked.is_golden and asked.device in rules.suspects:
            return f"suspect: {rules.suspects[asked.device]}"
        if window := quiet.is_quiet(rules.quiet, now_ns):
            return f"quiet hours {window}"
        cool_ns = self.last_end_ns.get(asked.device, 0) + int(asked.cool_down_s * quiet.NS_PER_S)
        if asked.cool_down_s and cool_ns > now_ns:
            return f"cools down for {(cool_ns - now_ns) / quiet.NS_PER_S:.0f} s"
        place = rules.places.get(asked.device, Place())
        for tag in place.tags:
            if (tag in asked.exclusive and self._tags[tag]) or self._exclusive[tag]:
                return f"another of {tag!r} measures"
        return self._why_no_power(place, rules)

    def _why_no_power(self, place: Place, rules: Rules) -> str | None:
        limit_w = None if place.circuit is None else rules.circuits_w.get(place.circuit)
        if place.circuit is None or limit_w is None:
            return None
        if why := why_never(place, rules):
            return why
        draws_w = limit_w if place.power_w is None else place.power_w
        if self._alone[place.circuit]:
            return f"circuit {place.circuit!r} is held by a device that does not say what it draws (power_w)"
        in_use_w = self.watts(place.circuit)
        if self._on_circuit[place.circuit] and in_use_w + draws_w > limit_w + _EPSILON_W:
            unsaid = ", and what this device draws is not said (power_w)" if place.power_w is None else ""
            return f"circuit {place.circuit!r}: {in_use_w:g} of {limit_w:g} W are in use{unsaid}"
        return None

    def _count(self, asked: Asked, place: Place, by: int) -> None:
        if asked.campaign is not None:
            self._campaigns[asked.campaign] += by
        if not asked.measures:
            return
        for tag in place.tags:
            self._tags[tag] += by
            if tag in asked.exclusive:
                self._exclusive[tag] += by
        if place.circuit is not None:
            self._on_circuit[place.circuit] += by
            if place.power_w is None:
                self._alone[place.circuit] += by
            else:
                self._watts[place.circuit] += by * place.power_w


def why_never(place: Place, rules: Rules) -> str | None:
    """Return why a device may never measure, as the rules are: it draws more than its circuit gives; None when it may."""
    limit_w = None if place.circuit is None else rules.circuits_w.get(place.circuit)
    if limit_w is None or place.power_w is None or place.power_w <= limit_w + _EPSILON_W:
        return None
    return f"it draws {place.power_w:g} W, its circuit {place.circuit!r} gives {limit_w:g} W"


def choose(asked: Iterable[Asked], busy: Busy, rules: Rules, now_ns: int, most: int) -> tuple[list[Asked], dict[int, str]]:
    """Return up to `most` executions that start now, in the order in which they ask, and why the others that were looked at wait.

    Those that start are in flight in `busy` afterwards.
    """
    starting: list[Asked] = []
    waiting: dict[int, str] = {}
    for one in asked:
        why = busy.why_not(one, rules, now_ns)
        if why is not None:
            waiting[one.execution] = why
            continue
        busy.begin(one, rules.places.get(one.device, Place()))
        starting.append(one)
        if len(starting) >= most:
            break
    return starting, waiting
