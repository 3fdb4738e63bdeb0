"""The work of `edgemeter fleet init`: it creates whatever is missing of a fleet's files."""

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from edgemeter.agent.base import config, durable_file
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.plugins import require_extra
from edgemeter.agent.base.toml import toml_document
from edgemeter.provisioning.identity import authority, broker_files, fleet_units
from edgemeter.provisioning.identity.authority import SERVER_DAYS, KeyPair
from edgemeter.provisioning.identity.broker_files import COLLECTOR_USER, OPERATOR_USER, SERVICE_USER
from edgemeter.provisioning.identity.enforcement import broker_process, run_reload_command, write_access
from edgemeter.provisioning.identity.passphrase import is_encrypted, read_passphrase
from edgemeter.provisioning.identity.release_keys import first_keys, read_keys
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import FleetFile, ServerEntry, open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder

SERVICE_CERTIFICATES = {"collector": COLLECTOR_USER, "fleet": SERVICE_USER, "operator": OPERATOR_USER}

_RELEASE_KEY_HERE = (
    "for a trial only: anyone who can read {path!r} can install code on every device. For a fleet, keep a key pair on a machine that stays "
    "offline and bring its public half: `{command} release rotate --public-key release.pub`"
)
# A server certificate with less of its life left than this is renewed.
RENEW_BELOW_RATIO = 1 / 3


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The options of the command: None means that of fleet.toml, `names` are further names and addresses of the broker."""

    broker: str | None
    names: tuple[str, ...]
    fleet: str | None
    port: int | None
    enrol_port: int | None
    release_public_key: Path | None = None
    ca_passphrase_file: Path | None = None


@dataclass(frozen=True, slots=True)
class InitStep:
    """One thing to make: its file, why, and how."""

    path: Path
    why: str
    make: Callable[[], None]


def planned_fleet_file(folder: FleetFolder, options: InitOptions) -> FleetFile:
    """Return fleet.toml as it is, or is to be; raises ConfigError if it is wrong or contradicts the options, or no broker is named."""
    if folder.fleet_file.exists():
        return _agreed(folder, options)
    if options.broker is None:
        raise ConfigError("a new fleet needs its broker: give --broker HOST, as devices reach it")
    text = _fleet_toml(options)
    try:
        return msgspec.toml.decode(text, type=FleetFile)
    except msgspec.ValidationError as error:
        raise ConfigError(f"cannot make a fleet {options.fleet!r} with the broker {options.broker!r}: {error}") from error


def init_steps(folder: FleetFolder, options: InitOptions, now: datetime) -> Iterator[InitStep]:
    """Yield the steps for what is missing, in order; each is computed when the one before was done or skipped.

    Raises:
        ConfigError: one file of a pair is missing, or existing files contradict `options`.
        UnavailableError: the library of certificates is not installed.
    """
    require_extra("sign", "a fleet's certificates need the library cryptography", "cryptography")
    described_as = planned_fleet_file(folder, options)
    server = described_as.server or ServerEntry(broker=options.broker or "")
    if options.release_public_key is not None:
        # A file without a key is refused before anything is made.
        first_keys(options.release_public_key)
    for path, why in ((folder.path, "the fleet's folder"), (config.home(), "for the collector's ledger")):
        if not path.exists():
            yield InitStep(path, why, lambda path=path: _make_folder(path))  # type: ignore[misc]
    if not _has_authority(folder):
        name = f"edgemeter fleet {described_as.fleet}"[: authority.LONGEST_NAME]
        yield InitStep(
            folder.ca_certificate,
            "the fleet's authority",
            lambda: _write_pair(authority.make_authority(name, now), folder.ca_certificate, folder.ca_key),
        )
    if options.ca_passphrase_file is not None and not (folder.ca_key.exists() and is_encrypted(folder.ca_key.read_bytes())):
        passphrase = read_passphrase(options.ca_passphrase_file)
        yield InitStep(
            folder.ca_key,
            "the authority's key, protected by the passphrase",
            lambda: durable_file.write(folder.ca_key, authority.encrypted(folder.ca_key.read_bytes(), passphrase)),
        )
    yield from _broker_certificate(folder, options, server, now)
    for file, common_name in SERVICE_CERTIFICATES.items():
        yield from _service_certificate(folder, file, common_name, now)
    if not folder.release_public_key.exists():
        yield _release_key(folder, options.release_public_key)
    elif options.release_public_key is not None and first_keys(options.release_public_key) not in read_keys(folder.release_public_key).keys:
        raise ConfigError(f"the fleet has another release key already: replace it with `{folder.command} release rotate --public-key FILE`")
    if not folder.fleet_file.exists():
        text = _fleet_toml(options)
        yield InitStep(folder.fleet_file, "the inventory", lambda: durable_file.write(folder.fleet_file, text.encode()))
    yield from _broker_configuration(folder, server, now)


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
    return [*notes, *broker_warnings(server)]


def broker_warnings(server: ServerEntry) -> list[str]:
    """Return what is known to be wrong with the broker that is installed here, as this fleet uses it."""
    version = broker_files.installed_version()
    notes = []
    if version is not None and not broker_files.plugin_path().exists():
        notes.append(
            f"mosquitto {version} has no dynamic-security plug-in here ({broker_files.PLUGIN}): install Debian's mosquitto package"
        )
    if server.broker_reload and version in broker_files.DIES_OF_RELOADS:
        notes.append(
            f"mosquitto {version} may die of a reload (SIGHUP) while sessions that expire come and go: "
            "let broker_reload in fleet.toml copy files only; a changed configuration needs a restart"
        )
    return notes


def _agreed(folder: FleetFolder, options: InitOptions) -> FleetFile:
    written_file = fleet_file.read(folder.fleet_file)
    if written_file.server is None:
        raise ConfigError(f"{str(folder.fleet_file)!r} names no broker: add [server] broker = ...")
    server = written_file.server
    for key, written, option in (
        ("broker", server.broker, options.broker),
        ("fleet", written_file.fleet, options.fleet),
        ("broker_port", server.broker_port, options.port),
        ("enrol_port", server.enrol_port, options.enrol_port),
    ):
        if option not in {None, written}:
            raise ConfigError(
                f"{str(folder.fleet_file)!r} sets {key} = {written!r}, not {option!r}: change it there, or leave out the option"
            )
    return written_file


def _fleet_toml(options: InitOptions) -> str:
    defaults = ServerEntry(broker="")
    server = {
        "broker": options.broker or "",
        "broker_port": None if options.port == defaults.broker_port else options.port,
        "enrol_port": None if options.enrol_port == defaults.enrol_port else options.enrol_port,
        "names": options.names,
    }
    return toml_document({"fleet": options.fleet or "default", "server": server})


def _has_authority(folder: FleetFolder) -> bool:
    present = [path for path in (folder.ca_certificate, folder.ca_key) if path.exists()]
    # The key is written first: where nothing was issued yet, a key alone is left by an interrupted command.
    if present == [folder.ca_key] and not (folder.broker / "broker.crt").exists():
        return False
    if len(present) == 1:
        raise ConfigError(f"of ca.crt and ca.key in {str(folder.path)!r} only {present[0].name} is left: restore the other from a backup")
    return bool(present)


def _broker_certificate(folder: FleetFolder, options: InitOptions, server: ServerEntry, now: datetime) -> Iterator[InitStep]:
    certificate, key = folder.broker / "broker.crt", folder.broker / "broker.key"
    names = {_normal_name(name) for name in (server.broker, *server.names, *options.names)}
    why = "the broker's certificate"
    if certificate.exists() and key.exists():
        content = certificate.read_bytes()
        certified = authority.names_of(content)
        if names <= certified and authority.left_ratio(content, now, SERVER_DAYS) >= RENEW_BELOW_RATIO:
            return
        why = f"{why}, renewed: {', '.join(sorted(names - certified)) or 'the old one expires'}"
        names |= certified
    issue = broker_files.authority
    yield InitStep(certificate, why, lambda: _write_pair(issue(folder).issue_server(server.broker, names, now), certificate, key))


def _normal_name(name: str) -> str:
    """Return a host name or address as a certificate holds it: one way of writing each."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(name))
    return name.lower()


def _service_certificate(folder: FleetFolder, file: str, common_name: str, now: datetime) -> Iterator[InitStep]:
    certificate, key = folder.certificate(file), folder.key(file)
    is_there = certificate.exists() and key.exists()
    if not is_there or authority.left_ratio(certificate.read_bytes(), now, SERVER_DAYS) < RENEW_BELOW_RATIO:
        issue = broker_files.authority
        yield InitStep(
            certificate,
            f"the certificate of {common_name}",
            lambda: _write_pair(issue(folder).issue_client(common_name, now), certificate, key),
        )


def _broker_configuration(folder: FleetFolder, server: ServerEntry, now: datetime) -> Iterator[InitStep]:
    for path in (folder.broker / "conf.d", folder.broker / "data", folder.revoked_lists):
        if not path.exists():
            yield InitStep(path, "for the broker", lambda path=path: _make_folder(path))  # type: ignore[misc]
    for path, text, why in (
        (folder.broker / "mosquitto.conf", broker_files.configuration(folder, server), "the broker's configuration"),
        *((folder.path / name, text, "for systemd") for name, text in fleet_units.unit_texts(folder).items()),
    ):
        if not broker_files.holds(path, text.encode()):
            yield InitStep(path, why, lambda path=path, text=text: durable_file.write(path, text.encode()))  # type: ignore[misc]
    state = (folder.registry, folder.broker / "acl", folder.broker_access, folder.revoked)
    if not all(path.exists() for path in state):
        why = "the registry; the broker's rules, tokens and list of revoked certificates"
        yield InitStep(folder.registry, why, lambda: _renew(folder, now))


def _renew(folder: FleetFolder, now: datetime) -> None:
    with open_registry(folder) as registry:
        folder.registry.chmod(0o600)
        broker_files.renew(folder, registry, broker_files.authority(folder), now)
        if not folder.broker_access.exists():
            write_access(folder, registry, int(now.timestamp() * NS_PER_S))


def _make_folder(path: Path) -> None:
    with os_error_as(ConfigError, f"cannot make the folder {str(path)!r}", "name another with --folder"):
        path.mkdir(parents=True, mode=0o700)


def _release_key(folder: FleetFolder, public_key: Path | None) -> InitStep:
    """Return the step that makes the pair, or takes the public key of a pair whose private key stays elsewhere."""
    path = folder.release_public_key
    if public_key is None:
        return InitStep(path, "the key pair that signs releases", lambda: _make_release_key(folder))
    text = first_keys(public_key)
    return InitStep(path, "the public key of releases, which are signed elsewhere", lambda: durable_file.write(path, text, 0o644))


def _make_release_key(folder: FleetFolder) -> None:
    if folder.release_key.exists():
        public = authority.public_of(folder.release_key.read_bytes())
    else:
        private, public = authority.make_release_key()
        durable_file.write(folder.release_key, private)
    durable_file.write(folder.release_public_key, public, 0o644)


def _write_pair(pair: KeyPair, certificate: Path, key: Path) -> None:
    # The key first: a certificate without its key would look complete.
    durable_file.write(key, pair.key)
    durable_file.write(certificate, pair.certificate, 0o644)
