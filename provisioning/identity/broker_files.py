"""The broker's files: mosquitto's configuration, access rules and the lists of revoked certificates.

The rules below `edgemeter/v1` are those of a single lab's broker (`edgemeter collector deploy-files`); a test holds the two together.
Devices without a certificate connect to another port with a token; there they may request a certificate and nothing else.
"""

import hashlib
import os
import platform
import pwd
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.contract.identity import ENROL
from edgemeter.agent.contract.messages import EVERY_COLLECTOR_STATE, EVERY_JOB_STATE, TOPIC_ROOT
from edgemeter.agent.contract.sealed import SERVICE_NAME
from edgemeter.provisioning.identity.authority import Authority, KeyPair, revoked_numbers
from edgemeter.provisioning.identity.passphrase import ask_passphrase, is_encrypted
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.certificates import open_tokens
from edgemeter.provisioning.registry.registry import Registry

PLUGIN = "mosquitto_dynamic_security.so"
PLUGIN_PLACES = (
    f"usr/local/lib/{PLUGIN}",
    f"usr/lib/*/{PLUGIN}",
    f"usr/lib/{PLUGIN}",
    f"usr/lib64/{PLUGIN}",
    f"usr/lib/mosquitto/{PLUGIN}",
)

# Versions that ended in our test of reloads while sessions that expire come and go.
DIES_OF_RELOADS = frozenset({"2.0.11"})
VERSION_S = 10.0

ITERATIONS = 101
SALT_BYTES = 12
COLLECTOR_USER, SERVICE_USER, OPERATOR_USER = "edgemeter-collector", SERVICE_NAME, "edgemeter-operator"
DEVICE_WRITES = ("birth", "state", "result", "activity", "progress", "job", "health", "want", "renew")
DEVICE_READS = ("state", "receipt", "command", "content", "certificate")
SERVICE_RULES: Mapping[str, tuple[tuple[Literal["read", "write"], str], ...]] = {
    COLLECTOR_USER: (
        *(("read", f"{TOPIC_ROOT}/+/+/{kind}") for kind in ("result", "birth", "state", "health", "activity")),
        ("read", EVERY_JOB_STATE),
        ("write", f"{TOPIC_ROOT}/+/+/receipt"),
        ("write", EVERY_COLLECTOR_STATE),
    ),
    SERVICE_USER: (
        *(("read", f"{TOPIC_ROOT}/+/+/{kind}") for kind in DEVICE_WRITES if kind != "result"),
        *(("write", f"{TOPIC_ROOT}/+/+/{kind}") for kind in ("command", "content", "certificate")),
        ("read", EVERY_COLLECTOR_STATE),
        ("write", EVERY_JOB_STATE),
        ("read", f"{ENROL}/+/request"),
        ("write", f"{ENROL}/+/answer"),
        # What the broker writes of its clients' coming and going: who took whose session.
        ("read", "$SYS/broker/log/#"),
    ),
    # A revoked device cannot publish its state: the operator, who takes over its session, does.
    OPERATOR_USER: (("read", f"{TOPIC_ROOT}/#"), ("write", f"{TOPIC_ROOT}/+/+/command"), ("write", f"{TOPIC_ROOT}/+/+/state")),
}
# A board holds a connection to the port for tokens for seconds, and tries again for minutes; a fleet with more devices has more brokers.
MOST_TOKENS, MOST_CLIENTS = 250, 50_000
_CONFIGURATION = Path(__file__).with_name("mosquitto.conf.in")


def hash_password(password: str, salt: bytes | None = None) -> str:
    """Return `password` as the file holds it."""
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    return f"$7${ITERATIONS}${b64encode(salt).decode()}${b64encode(digest).decode()}"


def access_rules(fleets: Iterable[str]) -> str:
    """Return the ACL: devices in these `fleets`, tokens and services."""
    lines = []
    for fleet in sorted(fleets):
        lines += [f"pattern write {TOPIC_ROOT}/{fleet}/%u/{kind}" for kind in DEVICE_WRITES]
        lines += [f"pattern read {TOPIC_ROOT}/{fleet}/%u/{kind}" for kind in DEVICE_READS]
    lines += [f"pattern write {ENROL}/%u/request", f"pattern read {ENROL}/%u/answer"]
    for user, rules in SERVICE_RULES.items():
        lines += ["", f"user {user}", *(f"topic {access} {topic}" for access, topic in rules)]
    return "\n".join(lines) + "\n"


def authority(folder: FleetFolder) -> Authority:
    """Return the fleet's authority; the passphrase of its key, if it has one, is read from a file or asked for.

    Raises:
        ConfigError: its files are not there, or damaged; the passphrase is wrong, or cannot be asked for.
        UnavailableError: the library for certificates is not installed.
    """
    pair = KeyPair(_read(folder.ca_certificate), _read(folder.ca_key))
    return Authority(pair, ask_passphrase() if is_encrypted(pair.key) else None)


def configuration(folder: FleetFolder, server: ServerEntry) -> str:
    """Return mosquitto's configuration; raises ConfigError if the folder has a name that mosquitto's configuration cannot hold."""
    broker = str(folder.broker.absolute())
    if "\n" in broker or broker != broker.strip():
        raise ConfigError(f"the fleet's folder {broker!r} has a line break, or a space at the end, in its name: rename it")
    return _CONFIGURATION.read_text(encoding="utf-8").format(
        broker=broker,
        user=_user(),
        port=server.broker_port,
        enrol_port=server.enrol_port,
        most_clients=MOST_CLIENTS,
        most_tokens=MOST_TOKENS,
        ca=folder.ca_certificate.absolute(),
        crl=folder.revoked.absolute(),
        plugin=plugin_path(),
    )


def installed_version() -> str | None:
    """Return the version of the mosquitto that is installed here, None where there is none."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        return None
    try:
        # It ends with status 3 after its help.
        text = subprocess.run([program, "-h"], capture_output=True, text=True, timeout=VERSION_S, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"mosquitto version (\d+(?:\.\d+)+)", text)
    return match[1] if match else None


def plugin_path() -> Path:
    """Return where mosquitto's dynamic-security plug-in is, or where Debian has it if it is not installed here."""
    paths = (path for pattern in PLUGIN_PLACES for path in sorted(Path("/").glob(pattern)))
    return next(paths, Path(f"/usr/lib/{platform.machine()}-linux-gnu/{PLUGIN}"))


def renew(folder: FleetFolder, registry: Registry, signing: Authority, now: datetime) -> list[Path]:
    """Write the broker's files from the registry at `now`; return the changed. Raises ConfigError for a damaged file, or as `write`."""
    with registry.transaction():
        # In a transaction, so that of two processes the later one writes the latest state.
        # After a fleet was renamed, some devices still have its previous name.
        tokens = open_tokens(registry, int(now.timestamp() * NS_PER_S))
        fleets = {*(device.fleet for device in devices.read(registry)), *(token.fleet for token in tokens)}
        rules = access_rules({fleet_file.read(folder.fleet_file).fleet, *fleets}).encode()
        changed = []
        if not holds(folder.broker / "acl", rules):
            durable_file.write(folder.broker / "acl", rules)
            changed.append(folder.broker / "acl")
        if _renew_list(folder, registry, signing, now):
            changed.append(folder.revoked)
    return changed


def _renew_list(folder: FleetFolder, registry: Registry, signing: Authority, now: datetime) -> bool:
    previous = folder.revoked.read_bytes() if folder.revoked.exists() else None
    listed = revoked_numbers(previous) if previous is not None else set()
    # A revoked certificate stays revoked, even if the registry was lost and recreated.
    revoked = certificates.revoked(registry, int(now.timestamp() * NS_PER_S)) | listed
    if previous is not None and revoked == listed:
        return False
    durable_file.write(folder.revoked, signing.revoked_list(revoked, now, previous))
    _announce_list(folder, signing)
    return True


def _announce_list(folder: FleetFolder, signing: Authority) -> None:
    """Give the list one more name in the folder where OpenSSL looks for lists that it has not read yet: HASH.r0, HASH.r1, ..."""
    name, number = signing.name_hash(), 0
    with os_error_as(UnavailableError, f"cannot announce the list of revoked certificates in {str(folder.revoked_lists)!r}"):
        while (link := folder.revoked_lists / f"{name}.r{number}").is_symlink():
            number += 1
        link.symlink_to(Path("..", "..", folder.revoked.name))


def holds(path: Path, content: bytes) -> bool:
    """Return whether the file has exactly this content."""
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _read(path: Path) -> bytes:
    with os_error_as(ConfigError, f"cannot read {str(path)!r}", "`edgemeter fleet init` makes it; name the fleet's folder with --folder"):
        return path.read_bytes()


def _user() -> str:
    # After a reload mosquitto reads its files as the user it became, who has to own them.
    try:
        return f"user {pwd.getpwuid(os.getuid()).pw_name}\n"
    except KeyError:
        return ""
