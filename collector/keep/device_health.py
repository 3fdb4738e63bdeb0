"""What a device's health says that somebody should look at, and how its parts are worded."""

from collections.abc import Iterator

from edgemeter.agent.health.contract import Health

NS_PER_DAY = 86_400_000_000_000
CERTIFICATE_DAYS = 30.0
LITTLE_DISK_RATIO = 0.1
CALIBRATION_DAYS = 365.0
BAD_ENDS = frozenset({"crash", "oom", "power-loss"})


def look_at(health: Health, now_ns: int) -> list[str]:
    """Return what about a device somebody should look at, in words."""
    return list(_concerns(health, now_ns))


def certificate_days(health: Health, now_ns: int) -> float | None:
    """Return how many days the device's certificate is good for, below 0 when it has ended."""
    end_ns = health.certificate_not_after_ns
    return None if end_ns is None else (end_ns - now_ns) / NS_PER_DAY


def calibration_days(health: Health) -> float | None:
    """Return the age of the oldest calibration of its sensors, days."""
    return max((age for one in health.sensors if (age := one.calibration_age_days) is not None), default=None)


def clock(health: Health) -> str:
    """Return the state of its clock in a word or two."""
    if health.clock.is_behind_floor:
        return "set back"
    return {True: "right", False: "not set", None: "not told"}[health.clock.is_synchronised]


def sensors(health: Health) -> str | None:
    """Return its sensors with the age of their calibrations."""
    told = []
    for one in health.sensors:
        age = one.calibration_age_days
        told.append(f"{one.name}, {'never calibrated' if age is None else f'calibrated {age:.0f} days ago'}")
    return "; ".join(told) or None


def last_words(health: Health) -> str:
    """Return how the agent before this one ended."""
    words = health.last_words
    return f"{words.kind}: {words.text}" if words.text else words.kind


def _concerns(health: Health, now_ns: int) -> Iterator[str]:
    days = certificate_days(health, now_ns)
    if days is not None and days < CERTIFICATE_DAYS:
        yield "its certificate has ended" if days < 0 else f"its certificate ends in {days:.0f} days"
    disk = health.disk
    if disk.free_bytes is not None and disk.size_bytes and disk.free_bytes < LITTLE_DISK_RATIO * disk.size_bytes:
        yield f"{disk.free_bytes / disk.size_bytes:.0%} of its disk is free"
    if disk.is_worn_out:
        yield "its flash is worn out"
    if health.clock.is_behind_floor or health.clock.is_synchronised is False:
        yield f"its clock is {clock(health)}"
    age = calibration_days(health)
    if age is not None and age > CALIBRATION_DAYS:
        yield f"a sensor was calibrated {age:.0f} days ago"
    if health.dropped_records:
        yield f"{health.dropped_records} results were dropped"
    if health.last_words.kind in BAD_ENDS:
        yield f"ended by {health.last_words.kind}"
