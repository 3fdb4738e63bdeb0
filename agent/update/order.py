"""Carries out the order to go to a release: checks what can be checked here, then asks the supervisor, which does it.

The agent that is running then will not see the end of it; the one that runs afterwards reads what came of it (`came_of`).
"""

import os
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent import durable_file
from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.jobs import run_lock
from edgemeter.agent.jobs.contract import Order, Update
from edgemeter.agent.update import bundle_head, place, told, version_order
from edgemeter.agent.update.place import Release

WISH = "wanted.json"


def check(update: Update, home: Path, release: Release | None = place.HERE) -> None:
    """Find out whether the order can be carried out, before anything is fetched.

    Raises:
        ConfigError: the version is older than the one that runs, or failed here before, and the order does not say that it may be.
        UnavailableError: nobody is here to switch releases.
    """
    here = _supervised(home, release)
    if (
        update.version != here.version
        and version_order.key(update.version) < version_order.key(here.version)
        and "older" not in update.even_if
    ):
        message = f"version {update.version} is older than {here.version}, which runs: it is gone to only with `--even-if older`"
        raise ConfigError(message)
    why = told.bad_versions(home).get(update.version)
    if why is not None and "bad" not in update.even_if:
        message = f"version {update.version} failed here before ({why}): it is tried again only with `--even-if bad`"
        raise ConfigError(message)


def carry_out(order: Order, bundle: Path, home: Path, release: Release | None = place.HERE) -> None:
    """Hand the update over to the supervisor; may be called again for the same order. `bundle` is its content, whole, in `home`.

    Raises:
        ConfigError: as `check`; it is no order to update, or the bundle is not signed by the fleet, is for another device or version.
        UnavailableError: nobody is here to switch releases, or the wish cannot be written.
    """
    update = order.work
    if not isinstance(update, Update):
        message = f"the job {order.job!r} is no update"
        raise ConfigError(message)
    if came_of(order, home) is not None:
        return
    check(update, home, release)
    here = _supervised(home, release)
    manifest = bundle_head.read(bundle, here)
    if manifest.version != update.version:
        message = f"the bundle holds version {manifest.version}, ordered is {update.version}: order that one"
        raise ConfigError(message)
    bundle_head.refuse_unfit(manifest, here.root)
    _ask(order, update, home)


def came_of(order: Order, home: Path) -> tuple[Literal["done", "failed"], str] | None:
    """Return how the update of this order ended, and why; None while it goes on."""
    found = told.outcome(home)
    if found is None or (found.job, found.attempt) != (order.job, order.attempt):
        return None
    return found.state, found.reason


def withdraw(order: Order, home: Path) -> None:
    """Take the wish back where the supervisor has not taken it yet."""
    path = home / told.FOLDER / WISH
    try:
        said = msgspec.json.decode(path.read_bytes(), type=dict[str, str | int])
        if (said.get("job"), said.get("attempt")) == (order.job, order.attempt):
            path.unlink()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return


def _supervised(home: Path, release: Release | None) -> Release:
    if release is None:
        message = "this agent is no release below /opt/edgemeter: update it in the way in which it was installed"
        raise UnavailableError(message)
    if not run_lock.is_locked(release.lock) or not (home / told.FOLDER).is_dir():
        message = f"no supervisor runs for {str(release.root)!r}: start edgemeter-supervisor.service on the device"
        raise UnavailableError(message)
    return release


def _ask(order: Order, update: Update, home: Path) -> None:
    wish = {
        "job": order.job,
        "attempt": order.attempt,
        "version": update.version,
        "sha256": update.bundle.sha256,
        "size_bytes": update.bundle.size_bytes,
        "timeout_s": max(1, int(order.timeout_s)),
        "even_if": ",".join(sorted(set(update.even_if))),
    }
    path = home / told.FOLDER / WISH
    part = path.with_name(f".{WISH}")
    try:
        with part.open("wb") as file:
            file.write(msgspec.json.encode(wish))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        durable_file.sync_folder(path.parent)
    except OSError as error:
        message = f"cannot ask the supervisor at {str(path)!r}: {error.strerror}"
        raise UnavailableError(message) from error
