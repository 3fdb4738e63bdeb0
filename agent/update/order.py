"""Carries out an update order: checks what it allows, then asks the supervisor.

The supervisor verifies the release.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.file_lock import is_locked
from edgemeter.agent.base.number_text import count
from edgemeter.agent.contract.orders import Order, Update, version_key
from edgemeter.agent.update.release import (
    RUNNING_RELEASE,
    UPDATE_FOLDER,
    InstalledRelease,
    read_journal,
)

logger = logging.getLogger(__name__)

REQUEST_FILE, WITHDRAWN_FILE = "wanted.json", "withdrawn.json"


def check(update: Update, release: InstalledRelease | None = RUNNING_RELEASE) -> None:
    """Check that the order can be carried out, before anything is downloaded.

    Raises:
        ConfigError: the version is older than the running one, or failed here before, and the order
            does not allow that.
        UnavailableError: no supervisor runs to switch releases.
    """
    if release is None:
        raise UnavailableError(
            "this agent is not a release below /opt/edgemeter: update it the way it was installed"
        )
    if not release.journal.is_file():
        raise UnavailableError(
            f"no supervisor ever ran for {str(release.root)!r}: start "
            "edgemeter-supervisor.service on the device"
        )
    if (
        update.version != release.version
        and version_key(update.version) < version_key(release.version)
        and "older" not in update.even_if
    ):
        raise ConfigError(
            f"version {update.version} is older than the running {release.version}: allow it "
            "with `--even-if older`"
        )
    why = read_journal(release).bad_versions.get(update.version)
    if why is not None and "bad" not in update.even_if:
        raise ConfigError(
            f"version {update.version} failed here before ({why}): try it again "
            "with `--even-if bad`"
        )


def carry_out(order: Order, home: Path, release: InstalledRelease | None = RUNNING_RELEASE) -> None:
    """Pass the update to the supervisor; may be called again for the same order.

    Its content is complete, in `home`.

    Raises:
        ConfigError: as `check`, or it is not an update.
        UnavailableError: there is no supervisor to switch releases, or the update request cannot be
            written.
    """
    update = order.work
    if not isinstance(update, Update):
        raise ConfigError(f"the job {order.job!r} is not an update")
    if came_of(order, release) is not None:
        return
    check(update, release)
    request = {
        "job": order.job,
        "attempt": order.attempt,
        "version": update.version,
        "sha256": update.bundle.sha256,
        "size_bytes": update.bundle.size_bytes,
        "timeout_s": max(1, int(order.timeout_s)),
        "even_if": "older" if "older" in update.even_if else "",
    }
    _ask(home / UPDATE_FOLDER / REQUEST_FILE, request)


def _ask(path: Path, request: Mapping[str, object]) -> None:
    try:
        with durable_file.replacing(path, 0o644) as file:
            file.write(msgspec.json.encode(request))
    except OSError as error:
        raise UnavailableError(
            f"cannot write the update request {str(path)!r}: {error.strerror}"
        ) from error


def came_of(
    order: Order, release: InstalledRelease | None = RUNNING_RELEASE
) -> tuple[Literal["done", "failed"], str] | None:
    """Return how the update of this order ended, and why; None while it is in progress."""
    outcome = read_journal(release).outcome
    if outcome is None or (outcome.job, outcome.attempt) != (order.job, order.attempt):
        return None
    return outcome.state, outcome.reason


def withdraw(order: Order, home: Path, release: InstalledRelease | None = RUNNING_RELEASE) -> None:
    """Withdraw the update request.

    The supervisor ends the update, unless it is already trying the release.
    """
    if came_of(order, release) is None:
        try:
            _ask(
                home / UPDATE_FOLDER / WITHDRAWN_FILE, {"job": order.job, "attempt": order.attempt}
            )
        except UnavailableError as error:
            logger.warning(
                "the update of job %s goes on, because it cannot be withdrawn: %s", order.job, error
            )


def why_waiting(order: Order, release: InstalledRelease | None = RUNNING_RELEASE) -> str | None:
    """Return why an update takes long, or None.

    The reason is that no supervisor runs, or that its installation was interrupted.
    """
    if release is None or not is_locked(release.lock):
        return "waiting for edgemeter-supervisor.service, which does not run"
    update = read_journal(release).update
    if (
        update is None
        or not update.interrupted
        or (update.order.get("job"), update.order.get("attempt")) != (order.job, str(order.attempt))
    ):
        return None
    return f"interrupted {count(update.interrupted, 'time')}, resuming"
