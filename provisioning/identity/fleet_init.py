"""`edgemeter fleet init`: creates the missing files of a fleet."""

import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from edgemeter.agent.base import config, durable_file
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.plugins import require_extra
from edgemeter.agent.base.toml import toml_document
from edgemeter.provisioning.identity import authority, broker_files, fleet_units
from edgemeter.provisioning.identity.authority import KeyPair
from edgemeter.provisioning.identity.broker_files import COLLECTOR_USER, OPERATOR_USER, SERVICE_USER
from edgemeter.provisioning.identity.enforcement import broker_process
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import FleetFile, ServerEntry, open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.release.install import public_keys

SERVICE_CERTIFICATES = {
    "collector": COLLECTOR_USER,
    "fleet": SERVICE_USER,
    "operator": OPERATOR_USER,
}

_RELEASE_KEY_HERE = (
    "for a trial only: anyone who can read {path!r} can install code on every device. For a "
    "fleet, keep the key pair on a machine that "
    "stays offline, and only its public half here (--release-public-key, "
    "docs/tasks/fleet-security.md)"
)


@dataclass
class FleetInit:
    """Creates the missing files in `folder`; `made` are the files, with the reason for each.

    An option of None means the value in fleet.toml; `names` are further names and addresses of
    broker and service, `server` the other keys of that table.
    """

    folder: FleetFolder
    now: datetime
    fleet: str | None
    names: tuple[str, ...]
    release_public_key: Path | None
    server: Mapping[str, object]
    made: dict[Path, str] = field(default_factory=dict)

    def run(self) -> list[str]:
        """Create everything; return the remaining manual steps.

        Raises:
            ConfigError: one file of a pair is missing, existing files contradict the options, or no
                broker is named.
            UnavailableError: the library of certificates is not installed.
        """
        require_extra(
            "sign", "a fleet's certificates need the library cryptography", "cryptography"
        )
        folder = self.folder
        inventory = self._inventory()
        # A file without a key is refused before anything is created.
        release_keys = _checked_keys(self.release_public_key) if self.release_public_key else None
        self._make_folder(folder.path, "the fleet's folder")
        self._make_folder(config.home(), "for the collector's ledger")
        self._make_authority(inventory.fleet)
        self._make_broker_certificate(inventory.server)
        for name, common_name in SERVICE_CERTIFICATES.items():
            certificate, key = folder.certificate(name), folder.key(name)
            if not certificate.exists() or not key.exists():
                pair = broker_files.authority(folder).issue(common_name, self.now)
                self._write_pair(pair, certificate, key, f"the certificate of {common_name}")
        self._make_release_key(release_keys)
        if not folder.fleet_file.exists():
            self._write(
                folder.fleet_file,
                toml_document(msgspec.to_builtins(inventory)).encode(),
                "the inventory",
            )
        self._configure_broker(inventory)
        notes = []
        if (
            any(path.is_relative_to(folder.broker) for path in self.made)
            and broker_process(folder) is not None
        ):
            notes.append(
                "restart the broker: it runs with its previous files (sudo systemctl restart "
                "edgemeter-broker); nothing is lost"
            )
        if folder.release_key.exists() and folder.release_public_key in self.made:
            notes.append(_RELEASE_KEY_HERE.format(path=str(folder.release_key)))
        return notes

    def _write(self, path: Path, content: bytes, why: str, mode: int = 0o600) -> None:
        durable_file.write(path, content, mode)
        self.made[path] = why

    def _write_pair(self, pair: KeyPair, certificate: Path, key: Path, why: str) -> None:
        # The key first: a certificate without its key would look complete.
        durable_file.write(key, pair.key)
        self._write(certificate, pair.certificate, why, 0o644)

    def _make_folder(self, path: Path, why: str) -> None:
        if not path.exists():
            with os_error_as(
                ConfigError, f"cannot make the folder {str(path)!r}", "name another with --folder"
            ):
                path.mkdir(parents=True, mode=0o700)
            self.made[path] = why

    def _make_authority(self, fleet: str) -> None:
        folder = self.folder
        present = [path for path in (folder.ca_certificate, folder.ca_key) if path.exists()]
        # The key is written first: if nothing was issued yet, a key alone is left by an interrupted
        # command.
        if len(present) == 1 and (
            present != [folder.ca_key] or (folder.broker / "broker.crt").exists()
        ):
            raise ConfigError(
                f"of ca.crt and ca.key in {str(folder.path)!r} only {present[0].name} is left: "
                "restore the other from a backup"
            )
        if len(present) < 2:
            pair = authority.make_authority(
                f"edgemeter fleet {fleet}"[: authority.LONGEST_NAME], self.now
            )
            self._write_pair(pair, folder.ca_certificate, folder.ca_key, "the fleet's authority")

    def _make_broker_certificate(self, server: ServerEntry) -> None:
        certificate, key = self.folder.broker / "broker.crt", self.folder.broker / "broker.key"
        names = {
            _normal_name(name)
            for name in (server.broker, server.service_host, *server.names, *self.names)
        }
        certified = (
            authority.names_of(certificate.read_bytes())
            if certificate.exists() and key.exists()
            else set()
        )
        if not names <= certified:
            pair = broker_files.authority(self.folder).issue(
                server.broker, self.now, names | certified
            )
            added = f", with {', '.join(sorted(names - certified))}" if certified else ""
            self._write_pair(
                pair, certificate, key, f"the certificate of broker and service{added}"
            )

    def _make_release_key(self, given_keys: bytes | None) -> None:
        """Create the pair, or use the public key of a pair whose private key is elsewhere."""
        folder, path = self.folder, self.folder.release_public_key
        if path.exists():
            if given_keys is not None and given_keys not in path.read_bytes():
                raise ConfigError(
                    f"the fleet has another release key in {str(path)!r}: "
                    "docs/tasks/fleet-security.md tells how to rotate it"
                )
        elif given_keys is not None:
            self._write(
                path, given_keys, "the public key of releases, which are signed elsewhere", 0o644
            )
        else:
            if not folder.release_key.exists():
                durable_file.write(folder.release_key, authority.make_key())
            self._write(
                path,
                authority.public_of(folder.release_key.read_bytes()),
                "the key pair that signs releases",
                0o644,
            )

    def _configure_broker(self, inventory: FleetFile) -> None:
        folder = self.folder
        for path in (folder.broker / "conf.d", folder.broker / "data", folder.revoked_lists):
            self._make_folder(path, "for the broker")
        if not folder.registry.exists() or not folder.revoked.exists():
            with open_registry(folder) as registry:
                folder.registry.chmod(0o600)
                broker_files.renew_list(folder, registry, broker_files.authority(folder), self.now)
            self.made[folder.registry] = "the registry, and the list of revoked certificates"
        with open_registry(folder, read_only=True) as registry:
            # After a fleet was renamed, some devices still have its previous name.
            fleets = {inventory.fleet, *(device.fleet for device in devices.read(registry))}
        for path, text, why in (
            (
                folder.broker / "mosquitto.conf",
                broker_files.configuration(folder, inventory.server),
                "the broker's configuration",
            ),
            (
                folder.broker / "openssl.cnf",
                broker_files.template("openssl.cnf"),
                "the broker's TLS settings",
            ),
            (folder.broker / "acl", broker_files.access_rules(fleets), "the broker's rules"),
            *(
                (folder.path / name, text, "for systemd")
                for name, text in fleet_units.unit_texts(folder).items()
            ),
        ):
            if not path.exists() or path.read_bytes() != text.encode():
                self._write(path, text.encode(), why)

    def _inventory(self) -> FleetFile:
        """Return fleet.toml, which no option may contradict.

        If it is absent, a new one with the options is returned.
        """
        path = self.folder.fleet_file
        options = {key: value for key, value in self.server.items() if value is not None}
        if not path.exists():
            if "broker" not in options:
                raise ConfigError(
                    "a new fleet needs its broker: give --broker HOST, as devices reach it"
                )
            try:
                return msgspec.convert(
                    {"fleet": self.fleet or "default", "server": {**options, "names": self.names}},
                    FleetFile,
                )
            except msgspec.ValidationError as error:
                raise ConfigError(
                    f"cannot make a fleet {self.fleet!r} with the "
                    f"broker {options['broker']!r}: {error}"
                ) from error
        inventory = fleet_file.read(path)
        written = {"fleet": inventory.fleet, **msgspec.structs.asdict(inventory.server)}
        for key, option in {"fleet": self.fleet or inventory.fleet, **options}.items():
            if option != written[key]:
                raise ConfigError(
                    f"{str(path)!r} sets {key} = {written[key]!r}, not {option!r}: change it "
                    "there, or leave out the option"
                )
        return inventory


def _checked_keys(path: Path) -> bytes:
    with os_error_as(
        ConfigError, f"cannot read the release key {str(path)!r}", "give a public key in PEM"
    ):
        text = path.read_bytes()
    return b"".join(authority.checked_public(pem, path) for pem in public_keys(text) or [text])


def _normal_name(name: str) -> str:
    """Return a host name or address in its normal form for a certificate."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(name))
    return name.lower()
