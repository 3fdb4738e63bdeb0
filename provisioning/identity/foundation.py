"""What `edgemeter fleet init` makes: whatever of a fleet's files is missing, and nothing that is there."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from edgemeter.agent import durable_file
from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.identity import acl, authority, broker_files, broker_process
from edgemeter.provisioning.identity.authority import SERVER_DAYS, Pair
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import FleetFile, Server
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve import unit

SERVICES = {"collector": acl.COLLECTOR, "fleet": acl.SERVICE, "operator": acl.OPERATOR}
# A certificate of the server's with less of its life left than that is made anew.
RENEW_BELOW_RATIO = 1 / 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command says; None means that of fleet.toml, `names` are further names and addresses of the broker."""

    broker: str | None
    names: tuple[str, ...]
    fleet: str | None
    port: int | None
    enrol_port: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to make: its file, why, and how."""

    path: Path
    why: str
    make: Callable[[], None]


def described(folder: FleetFolder, wanted: Wanted) -> FleetFile:
    """Return the fleet as fleet.toml has it, or as it is to be written there.

    Raises:
        ConfigError: no broker is named, fleet.toml is wrong, or it says something else than the command.
    """
    if folder.fleet_file.exists():
        return _agreed(folder, wanted)
    if wanted.broker is None:
        message = "a new fleet needs its broker's name: give --broker HOST, as devices are to reach it"
        raise ConfigError(message)
    text = _fleet_toml(wanted)
    try:
        return msgspec.toml.decode(text, type=FleetFile)
    except msgspec.ValidationError as error:
        message = f"cannot call a fleet {wanted.fleet!r} with the broker {wanted.broker!r}: {error}"
        raise ConfigError(message) from error


def steps(folder: FleetFolder, wanted: Wanted, now: datetime) -> Iterator[Step]:
    """Return what is missing, in the order in which it has to be made; each step is asked for when the one before is made or skipped.

    Raises:
        ConfigError: half of a pair is gone, or what is there contradicts `wanted`.
    """
    described_as = described(folder, wanted)
    server = described_as.server or Server(broker=wanted.broker or "")
    if not folder.path.exists():
        yield Step(folder.path, "the fleet's folder", lambda: _make_folder(folder.path))
    if not _has_authority(folder):
        name = f"edgemeter fleet {described_as.fleet}"[: authority.LONGEST_NAME]
        yield Step(
            folder.ca_certificate,
            "the fleet's authority",
            lambda: _write_pair(authority.make_authority(name, now), folder.ca_certificate, folder.ca_key),
        )
    yield from _broker_certificate(folder, wanted, server, now)
    for file, common_name in SERVICES.items():
        yield from _service_certificate(folder, file, common_name, now)
    if not folder.release_public_key.exists():
        yield Step(folder.release_public_key, "the key pair that signs releases", lambda: _make_release_key(folder))
    if not folder.fleet_file.exists():
        text = _fleet_toml(wanted)
        yield Step(folder.fleet_file, "the inventory", lambda: durable_file.write(folder.fleet_file, text.encode()))
    yield from _broker_configuration(folder, server, now)


def tell_broker(folder: FleetFolder) -> None:
    """Have a running broker take what was made.

    Raises:
        ConfigError: fleet.toml is wrong.
        UnavailableError: the broker cannot be told.
    """
    server = fleet_file.read(folder.fleet_file).server
    if server is not None:
        broker_process.reload(folder, server)


def _agreed(folder: FleetFolder, wanted: Wanted) -> FleetFile:
    found = fleet_file.read(folder.fleet_file)
    if found.server is None:
        message = f"{str(folder.fleet_file)!r} names no broker: add [server] broker = ..."
        raise ConfigError(message)
    server = found.server
    for what, said, wished in (
        ("broker", server.broker, wanted.broker),
        ("fleet", found.fleet, wanted.fleet),
        ("broker_port", server.broker_port, wanted.port),
        ("enrol_port", server.enrol_port, wanted.enrol_port),
    ):
        if wished not in {None, said}:
            message = f"{str(folder.fleet_file)!r} says {what} {said!r}, not {wished!r}: change it there, or leave it out"
            raise ConfigError(message)
    return found


def _fleet_toml(wanted: Wanted) -> str:
    def quoted(text: str) -> str:
        return msgspec.json.encode(text).decode()

    lines = [f"fleet = {quoted(wanted.fleet or 'default')}", "", "[server]", f"broker = {quoted(wanted.broker or '')}"]
    defaults = Server(broker="")
    if wanted.port not in {None, defaults.broker_port}:
        lines.append(f"broker_port = {wanted.port}")
    if wanted.enrol_port not in {None, defaults.enrol_port}:
        lines.append(f"enrol_port = {wanted.enrol_port}")
    if wanted.names:
        lines.append(f"names = [{', '.join(quoted(name) for name in wanted.names)}]")
    return "\n".join([*lines, ""])


def _has_authority(folder: FleetFolder) -> bool:
    there = [path for path in (folder.ca_certificate, folder.ca_key) if path.exists()]
    # The key is written first: alone, in a folder where nothing was issued yet, it is what an interrupted command left.
    if there == [folder.ca_key] and not (folder.broker / "broker.crt").exists():
        return False
    if len(there) == 1:
        message = f"of ca.crt and ca.key in {str(folder.path)!r} only {there[0].name} is left: bring the other back from a copy"
        raise ConfigError(message)
    return bool(there)


def _broker_certificate(folder: FleetFolder, wanted: Wanted, server: Server, now: datetime) -> Iterator[Step]:
    certificate, key = folder.broker / "broker.crt", folder.broker / "broker.key"
    names = {authority.normal_name(name) for name in (server.broker, *server.names, *wanted.names)}
    why = "the broker's certificate"
    if certificate.exists() and key.exists():
        held = certificate.read_bytes()
        kept = authority.names_of(held)
        if names <= kept and authority.left_ratio(held, now, SERVER_DAYS) >= RENEW_BELOW_RATIO:
            return
        why = f"{why}, anew: {', '.join(sorted(names - kept)) or 'the old one runs out'}"
        names |= kept
    issue = broker_files.authority
    yield Step(certificate, why, lambda: _write_pair(issue(folder).issue_server(server.broker, names, now), certificate, key))


def _service_certificate(folder: FleetFolder, file: str, common_name: str, now: datetime) -> Iterator[Step]:
    certificate, key = folder.certificate(file), folder.key(file)
    is_there = certificate.exists() and key.exists()
    if not is_there or authority.left_ratio(certificate.read_bytes(), now, SERVER_DAYS) < RENEW_BELOW_RATIO:
        issue = broker_files.authority
        yield Step(
            certificate,
            f"the certificate of {common_name}",
            lambda: _write_pair(issue(folder).issue_client(common_name, now), certificate, key),
        )


def _broker_configuration(folder: FleetFolder, server: Server, now: datetime) -> Iterator[Step]:
    for path in (folder.broker / "conf.d", folder.broker / "data"):
        if not path.exists():
            yield Step(path, "for the broker", lambda path=path: _make_folder(path))  # type: ignore[misc]
    for path, text, why in (
        (folder.broker / "mosquitto.conf", broker_files.configuration(folder, server), "the broker's configuration"),
        (folder.path / unit.NAME, unit.text(folder), "the service as a systemd unit; how to install it stands in it"),
    ):
        if not broker_files.holds(path, text.encode()):
            yield Step(path, why, lambda path=path, text=text: durable_file.write(path, text.encode()))  # type: ignore[misc]
    own = [folder.broker / "acl", folder.broker / "enrol.acl", folder.broker / "passwords", folder.revoked]
    if not folder.registry.exists() or not all(path.exists() for path in own):
        yield Step(
            folder.registry, "the registry; the broker's rules, tokens and list of revoked certificates", lambda: _renew(folder, now)
        )


def _renew(folder: FleetFolder, now: datetime) -> None:
    registry = Registry(folder.registry)
    try:
        folder.registry.chmod(0o600)
        broker_files.renew(folder, registry, broker_files.authority(folder), now)
    finally:
        registry.close()


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, mode=0o700)
    except OSError as error:
        message = f"cannot make the folder {str(path)!r} ({error.strerror}): name another with --folder"
        raise ConfigError(message) from error


def _make_release_key(folder: FleetFolder) -> None:
    if folder.release_key.exists():
        public = authority.public_of(folder.release_key.read_bytes())
    else:
        private, public = authority.make_release_key()
        durable_file.write(folder.release_key, private)
    durable_file.write(folder.release_public_key, public, 0o644)


def _write_pair(pair: Pair, certificate: Path, key: Path) -> None:
    # The key first: a certificate without its key would look complete.
    durable_file.write(key, pair.key)
    durable_file.write(certificate, pair.certificate, 0o644)
