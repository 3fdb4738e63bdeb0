"""Until when the device's certificate is good, as `openssl` on the board reads it."""

import ssl
from pathlib import Path

from edgemeter.agent.config import Config
from edgemeter.agent.machine.machine import Machine

SAYS = "notAfter="


def place(settings: Config, home: Path) -> Path:
    """Return where the device's certificate lies: as its configuration says, else where joining a fleet puts it."""
    named = settings.broker_certificate_file
    return Path(named).expanduser() if named is not None else home / "identity" / "device.crt"


def not_after_ns(path: Path, machine: Machine) -> int | None:
    """Return the end of the certificate at `path` (UTC, ns), None where there is none or nothing here reads it."""
    if not path.is_file():
        return None
    told = machine.output(["openssl", "x509", "-noout", "-enddate", "-in", str(path)]) or ""
    for line in told.splitlines():
        if line.startswith(SAYS):
            try:
                return ssl.cert_time_to_seconds(line.removeprefix(SAYS).strip()) * 1_000_000_000
            except ValueError:
                return None
    return None
