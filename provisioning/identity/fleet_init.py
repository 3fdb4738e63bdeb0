"""The work of `edgemeter fleet init`: it creates whatever is missing of a fleet's files."""

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from edgemeter.agent.base import config, durable_file
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.plugins import require_extra
from edgemeter.agent.base.toml import toml_document
from edgemeter.provisioning.identity import authority, broker_files, fleet_units
from edgemeter.provisioning.identity.authority import KeyPair
from edgemeter.provisioning.identity.broker_files import COLLECTOR_USER, OPERATOR_USER, SERVICE_USER
from edgemeter.provisioning.identity.enforcement import broker_process, run_reload_command
from edgemeter.provisioning.identity.passphrase import is_encrypted, read_passphrase
from edgemeter.provisioning.identity.release_keys import first_keys, read_keys
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import FleetFile, ServerEntry, open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices

SERVICE_CERTIFICATES = {"collector": COLLECTOR_USER, "fleet": SERVICE_USER, "operator": OPERATOR_USER}

_RELEASE_KEY_HERE = (
    "for a trial only: anyone who can read {path!r} can install code on every device. For a fleet, keep a key pair on a machine that stays "
    "offline and bring its public half: `{command} release keys --rotate --public-key release.pub`"
)


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The options of the command: None means that of fleet.toml, `names` are further names and addresses of broker and service."""

    broker: str | None
    names: tuple[str, ...]
    fleet: str | None
    port: int | None
    service: str | None
    https_port: int | None
    release_public_key: Path | None = None
    ca_passphrase_file: Path | None = None


@dataclass(frozen=True, slots=True)
class InitStep:
    """One thing to make: its file, why, and how."""

    path: Path
    why: str
    make: Callable[[], object]


def init_steps(folder: FleetFolder, options: InitOptions, now: datetime) -> Iterator[InitStep]:
    """Yield the steps for what is missing, in order; each is computed when the one before was done.

    Raises:
        ConfigError: one file of a pair is missing, existing files contradict `options`, or no broker is named.
        UnavailableError: the library of certificates is not installed.
    """
    require_extra("sign", "a fleet's certificates need the library cryptography", "cryptography")
    text = None if folder.fleet_file.exists() else _fleet_toml(options)
    inventory = _agreed(folder, options) if text is None else _checked(text, options)
    server = inventory.server or ServerEntry(broker="")
    if options.release_public_key is not None:
        # A file without a key is refused before anything is made.
        first_keys(options.release_public_key)
    for path, why in ((folder.path, "the fleet's folder"), (config.home(), "for the collector's ledger")):
        if not path.exists():
            yield _folder(path, why)
    yield from _authority(folder, inventory.fleet, options, now)
    yield from _broker_certificate(folder, options, server, now)
    for name, common_name in SERVICE_CERTIFICATES.items():
        certificate, key = folder.certificate(name), folder.key(name)
        if not certificate.exists() or not key.exists():
            pair = broker_files.authority(folder).issue_client(common_name, now)
            yield InitStep(certificate, f"the certificate of {common_name}", partial(_write_pair, pair, certificate, key))
    yield from _release_key(folder, options.release_public_key)
    if text is not None:
        yield _file(folder.fleet_file, text, "the inventory")
    yield from _broker_configuration(folder, inventory.fleet, server, now)


def after_init(folder: FleetFolder, steps: Sequence[InitStep]) -> list[str]:
    """Bring new files to a broker elsewhere, by fleet.toml's command; return what is left to people. Raises if that command fails."""
    server = fleet_file.read(folder.fleet_file).server or ServerEntry(broker="")
    notes = []
    if any(step.path.is_relative_to(folder.broker) for step in steps):
        run_reload_command(server)
        if broker_process(folder, server) is not None:
            notes.append("restart the broker: it runs with its previous files (sudo systemctl restart edgemeter-broker); nothing is lost")
    if folder.release_key.exists() and folder.release_public_key in {step.path for step in steps}:
        notes.append(_RELEASE_KEY_HERE.format(path=str(folder.release_key), command=folder.command))
    return notes


def _agreed(folder: FleetFolder, options: InitOptions) -> FleetFile:
    written_file = fleet_file.read(folder.fleet_file)
    server = written_file.server
    if server is None:
        raise ConfigError(f"{str(folder.fleet_file)!r} names no broker: add [server] broker = ...")
    for key, written, option in (
        ("broker", server.broker, options.broker),
        ("fleet", written_file.fleet, options.fleet),
        ("broker_port", server.broker_port, options.port),
        ("service", server.service, options.service),
        ("https_port", server.https_port, options.https_port),
    ):
        if option not in {None, written}:
            raise ConfigError(
                f"{str(folder.fleet_file)!r} sets {key} = {written!r}, not {option!r}: change it there, or leave out the option"
            )
    return written_file


def _fleet_toml(options: InitOptions) -> str:
    if options.broker is None:
        raise ConfigError("a new fleet needs its broker: give --broker HOST, as devices reach it")
    server = {
        "broker": options.broker,
        "broker_port": options.port,
        "service": options.service,
        "https_port": options.https_port,
        "names": options.names,
    }
    return toml_document({"fleet": options.fleet or "default", "server": server})


def _checked(text: str, options: InitOptions) -> FleetFile:
    try:
        return msgspec.toml.decode(text, type=FleetFile)
    except msgspec.ValidationError as error:
        raise ConfigError(f"cannot make a fleet {options.fleet!r} with the broker {options.broker!r}: {error}") from error


def _folder(path: Path, why: str) -> InitStep:
    def make() -> None:
        with os_error_as(ConfigError, f"cannot make the folder {str(path)!r}", "name another with --folder"):
            path.mkdir(parents=True, mode=0o700)

    return InitStep(path, why, make)


def _file(path: Path, text: str, why: str, mode: int = 0o600) -> InitStep:
    return InitStep(path, why, lambda: durable_file.write(path, text.encode(), mode))


def _write_pair(pair: KeyPair, certificate: Path, key: Path) -> None:
    # The key first: a certificate without its key would look complete.
    durable_file.write(key, pair.key)
    durable_file.write(certificate, pair.certificate, 0o644)


def _authority(folder: FleetFolder, fleet: str, options: InitOptions, now: datetime) -> Iterator[InitStep]:
    present = [path for path in (folder.ca_certificate, folder.ca_key) if path.exists()]
    # The key is written first: where nothing was issued yet, a key alone is left by an interrupted command.
    is_interrupted = present == [folder.ca_key] and not (folder.broker / "broker.crt").exists()
    if len(present) == 1 and not is_interrupted:
        raise ConfigError(f"of ca.crt and ca.key in {str(folder.path)!r} only {present[0].name} is left: restore the other from a backup")
    if len(present) < 2:
        pair = authority.make_authority(f"edgemeter fleet {fleet}"[: authority.LONGEST_NAME], now)
        yield InitStep(folder.ca_certificate, "the fleet's authority", lambda: _write_pair(pair, folder.ca_certificate, folder.ca_key))
    key = folder.ca_key.read_bytes()
    if options.ca_passphrase_file is not None and not is_encrypted(key):
        protected = authority.encrypted(key, read_passphrase(options.ca_passphrase_file)).decode()
        yield _file(folder.ca_key, protected, "the authority's key, protected by the passphrase")


def _broker_certificate(folder: FleetFolder, options: InitOptions, server: ServerEntry, now: datetime) -> Iterator[InitStep]:
    certificate, key = folder.broker / "broker.crt", folder.broker / "broker.key"
    names = {_normal_name(name) for name in (server.broker, server.service_host, *server.names, *options.names)}
    certified = authority.names_of(certificate.read_bytes()) if certificate.exists() and key.exists() else set()
    if names <= certified:
        return
    why = "the certificate of broker and service" + (f", with {', '.join(sorted(names - certified))}" if certified else "")
    pair = broker_files.authority(folder).issue_server(server.broker, names | certified, now)
    yield InitStep(certificate, why, lambda: _write_pair(pair, certificate, key))


def _normal_name(name: str) -> str:
    """Return a host name or address as a certificate holds it: one way of writing each."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(name))
    return name.lower()


def _broker_configuration(folder: FleetFolder, fleet: str, server: ServerEntry, now: datetime) -> Iterator[InitStep]:
    for path in (folder.broker / "conf.d", folder.broker / "data", folder.revoked_lists):
        if not path.exists():
            yield _folder(path, "for the broker")
    if not folder.registry.exists() or not folder.revoked.exists():
        yield InitStep(folder.registry, "the registry, and the list of revoked certificates", lambda: _begin_registry(folder, now))
    with open_registry(folder, read_only=True) as registry:
        # After a fleet was renamed, some devices still have its previous name.
        fleets = {fleet, *(device.fleet for device in devices.read(registry))}
    for path, text, why in (
        (folder.broker / "mosquitto.conf", broker_files.configuration(folder, server), "the broker's configuration"),
        (folder.broker / "openssl.cnf", broker_files.OPENSSL_CONFIGURATION, "the broker's TLS settings"),
        (folder.broker / "acl", broker_files.access_rules(fleets), "the broker's rules"),
        *((folder.path / name, text, "for systemd") for name, text in fleet_units.unit_texts(folder).items()),
    ):
        if not path.exists() or path.read_bytes() != text.encode():
            yield _file(path, text, why)


def _begin_registry(folder: FleetFolder, now: datetime) -> None:
    with open_registry(folder) as registry:
        folder.registry.chmod(0o600)
        broker_files.renew_list(folder, registry, broker_files.authority(folder), now)


def _release_key(folder: FleetFolder, public_key: Path | None) -> Iterator[InitStep]:
    """Yield the step that makes the pair, or takes the public key of a pair whose private key stays elsewhere."""
    path = folder.release_public_key
    if path.exists():
        if public_key is not None and first_keys(public_key) not in read_keys(path).keys:
            raise ConfigError(
                f"the fleet has another release key already: replace it with `{folder.command} release keys --rotate --public-key FILE`"
            )
    elif public_key is not None:
        yield _file(path, first_keys(public_key).decode(), "the public key of releases, which are signed elsewhere", 0o644)
    else:
        yield InitStep(path, "the key pair that signs releases", lambda: _make_release_key(folder))


def _make_release_key(folder: FleetFolder) -> None:
    if not folder.release_key.exists():
        durable_file.write(folder.release_key, authority.make_release_key()[0])
    durable_file.write(folder.release_public_key, authority.public_of(folder.release_key.read_bytes()), 0o644)
