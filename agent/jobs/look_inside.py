"""What a device tells of itself when it is asked: the doctor's findings, and the last lines of its log."""

import re
import subprocess
from pathlib import Path

from edgemeter.agent.doctor import examination
from edgemeter.agent.jobs import contract
from edgemeter.agent.jobs.carry_out import Here, Outcome

UNIT = "edgemeter-agent.service"
PATIENCE_S = 30.0
# What a log may hold by accident: what stands after such a word, keys in PEM, user and password in an address, and anything long that
# looks like a token.
_SECRETS = (
    re.compile(r"-----BEGIN [^-]*PRIVATE KEY-----.*?(-----END [^-]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?i)\b(authorization\s*[:=]\s*)?\b(bearer|basic)\s+\S+"),
    re.compile(
        r"(?i)\b(pass(word|wd|phrase)?|secret|token|psk|api[-_]?key|authorization|bearer)\b(\s*[=:]\s*|\s+)(\"[^\"]*\"|'[^']*'|\S+)"
    ),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(r"\b[A-Za-z0-9_-]{43,}={0,2}(?![A-Za-z0-9_-])"),
)
_HEX = re.compile(r"[0-9a-f]{64}\Z")


def doctor(here: Here) -> Outcome:
    """Examine this device, as `edgemeter doctor --json` does."""
    settings = here.settings
    findings = examination.examine(broker=settings.broker, home=Path(here.task.home), settings=settings, sensors=settings.sensors)
    return Outcome(text=examination.as_json(findings))


def logs(here: Here) -> Outcome:
    """Return the last lines of the agent's log: systemd's journal where it may be read, else what the agent kept in memory."""
    work = here.task.order.work
    if not isinstance(work, contract.Logs):
        raise TypeError(work)
    lines, where = _of_systemd(work.lines), f"journal of {UNIT}"
    if not lines:
        lines, where = list(here.task.log[-work.lines :]), "kept by the agent since its start"
    return Outcome(reason=f"{len(lines)} lines, {where}", text=redacted("\n".join(lines)))


def redacted(text: str) -> str:
    """Return the text without what looks like a secret; a sha256 is none."""
    for pattern in _SECRETS:
        text = pattern.sub(lambda found: found[0] if _HEX.match(found[0]) else "[redacted]", text)
    return text


def _of_systemd(lines: int) -> list[str]:
    command = ["journalctl", "--unit", UNIT, "--lines", str(lines), "--output", "short-iso", "--no-pager", "--quiet"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.decode(errors="replace").splitlines()
