"""Takes a device out of suspicion, or out of the list of those that need a hand, because somebody says so."""

from edgemeter.provisioning.health import golden, standing
from edgemeter.provisioning.health.standing import Standing
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.rescue import attempts


def clear(registry: Registry, device: str, fleet: str, now_ns: int, *, new_band: bool, is_rehearsal: bool = False) -> str | None:
    """Make a device good, forget its rescue, have it measure its golden model next; return what was done, None where it was well.

    A rehearsal writes nothing and returns the same.
    """
    before, rescue = standing.find(registry, device), attempts.read(registry).get(device)
    was_suspect = before is not None and before.state == "suspect"
    if not was_suspect and rescue is None and not new_band:
        return None
    if not is_rehearsal:
        with registry.transaction() as connection:
            attempts.clear(connection, device)
            standing.put(connection, Standing(device, "good", "somebody cleared it", now_ns))
            if new_band:
                golden.new_band(connection, device)
            golden.at_once(connection, device, fleet, now_ns)
    done = ["good", "its band begins anew" if new_band else "its band holds"]
    if rescue is not None:
        done.append(f"its rescue is forgotten ({rescue.attempts} times cut)")
    return f"{', '.join(done)}; its golden job is next"
