"""The doctor's finding about the bounds of this machine, which it measures once in a process of its own.

A runtime that ends its process must not end the doctor, who imports neither a runtime nor numpy.
"""

import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import EdgemeterError, UnavailableError, one_line
from edgemeter.agent.base.figures import plain_digits
from edgemeter.agent.base.file_lock import RunLock
from edgemeter.agent.contract.record_conditions import MachineBounds
from edgemeter.agent.doctor.checks import Finding
from edgemeter.agent.machine import fingerprint
from edgemeter.agent.machine.bounds import DISTURBED, find_bounds, keep_bounds

LONGEST_S = 120.0
MEASURING = "edgemeter.agent.doctor.measure_bounds"


def check_bounds(home: Path, *, measures: bool) -> Finding:
    """Return the finding about the bounds of this machine; with `measures` they are measured once, unless another run is in progress."""
    environment = fingerprint.read()
    bounds = find_bounds(environment, home)
    if bounds is None and measures:
        lock = RunLock(home)
        try:
            if lock.take("edgemeter doctor"):
                bounds = measure_in_child()
                # Kept, they would never be measured again.
                if disturbed := "; ".join(reason for reason in bounds.reasons if DISTURBED in reason):
                    return Finding("machine", "bounds", "warn", disturbed, "`edgemeter doctor` again, with nothing else running")
                keep_bounds(bounds, environment, home)
        except EdgemeterError as error:
            return Finding("machine", "bounds", "warn", str(error))
        finally:
            lock.release()
    if bounds is None:
        text = "not measured for this kernel, processor and power mode: rates that this machine cannot reach go unnoticed"
        return Finding("machine", "bounds", "absent", text, "`edgemeter doctor` here, while no run is in progress")
    speeds = ((bounds.memory_gbyte_per_s, "GB/s from memory"), (bounds.float32_gop_per_s, "Gop/s float32"), (bounds.int8_gop_per_s, "int8"))
    fastest = ", ".join([*(f"{plain_digits(speed, 3)} {unit}" for speed, unit in speeds if speed is not None), *bounds.reasons])
    day = datetime.fromtimestamp(bounds.measured_at_ns / 1e9, timezone.utc).date()
    return Finding("machine", "bounds", "ok", f"at most {fastest} (measured on {day}, in {bounds.took_s:.1f} s)")


def measure_in_child() -> MachineBounds:
    """Return the bounds, measured in a child process.

    Raises:
        UnavailableError: the process ended without them.
    """
    try:
        child = subprocess.run([sys.executable, "-m", MEASURING], capture_output=True, check=True, timeout=LONGEST_S)
        return msgspec.json.decode(child.stdout, type=MachineBounds)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise UnavailableError(f"the bounds of this machine could not be measured ({one_line(error)}): try again") from error
