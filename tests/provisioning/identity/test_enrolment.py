"""Tests of the rules of enrolment, without a network.

The rules say who gets a certificate, of which name, for which key, and for how long the offer
holds.
"""

import time
from dataclasses import replace
from datetime import datetime, timezone

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import identity
from edgemeter.agent.contract.identity import CertificateRequest
from edgemeter.agent.contract.orders import Content, Measure
from edgemeter.provisioning.identity import admission, authority
from edgemeter.provisioning.identity.authority import Authority
from edgemeter.provisioning.identity.enrolment import MOST_A_DAY, RENEWED_GRACE_NS, Enrolment
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile, ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices, jobs
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.jobs import NewJob, Target
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.rows import table_row
from tests.provisioning.identity.lab import open_tokens

S, DAY_NS = 1_000_000_000, 86_400 * 1_000_000_000
BEGIN_NS = 1_700_000_000 * S


@pytest.fixture(scope="module")
def pair():
    return authority.make_authority(
        "edgemeter fleet lab", datetime(2023, 1, 1, tzinfo=timezone.utc)
    )


class Fleet:
    """A registry, an authority, and boards with keys that ask; the test moves the clock."""

    def __init__(self, path, pair):
        self.folder = FleetFolder(path)
        self.folder.ca_certificate.write_bytes(pair.certificate)
        self.registry = Registry(self.folder.registry)
        self.signing = Authority(pair)
        self.file = FleetFile(fleet="lab", server=ServerEntry(broker="broker.example"))
        self.now_ns = BEGIN_NS
        self.keys = {}

    @property
    def rules(self):
        return Enrolment(self.registry, self.signing, self.file)

    def token(self, device="pi-1", hours=1.0):
        with self.registry.transaction() as statements:
            return admission.invite(
                self.folder, self.registry, statements, self.file, device, hours, self.now_ns
            )[0].token

    def request(self, key, serial, common_name, source="device-tree"):
        private = self.keys.setdefault(key, ec.generate_private_key(ec.SECP256R1()))
        subject = (
            [x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, common_name)] if common_name else []
        )
        signed = (
            x509.CertificateSigningRequestBuilder()
            .subject_name(x509.Name(subject))
            .sign(private, hashes.SHA256())
        )
        text = signed.public_bytes(serialization.Encoding.PEM).decode()
        return CertificateRequest(csr=text, serial=serial, serial_source=source, board="A Board")

    def asks(self, token, key="key 1", serial="1", common_name=None, source="device-tree"):
        asking = msgspec.structs.replace(
            self.request(key, serial, common_name, source), token=token
        )
        return self.rules.with_token(asking, self.now_ns)

    def joins(self, device="pi-1", key="key 1", serial="1"):
        answer = self.asks(self.token(device), key, serial)
        assert (answer.state, answer.device) == ("accepted", device)
        return answer

    def renews(self, device="pi-1", key="key 1", serial="1", common_name=None):
        """Return the answer to a board that came with the certificate of `device`."""
        return self.rules.with_certificate(
            device, self.request(key, serial, common_name or device), self.now_ns
        )

    def confirms(self, number, device="pi-1"):
        self.rules.confirmed(device, number, self.now_ns)

    def decides(self, decide, *arguments):
        with self.registry.transaction() as statements:
            decide(self.registry, statements, *arguments)

    def valid(self, device="pi-1"):
        return [
            each.number
            for each in certificates.of_device(self.registry, device)
            if each.revoked_ns is None
        ]


@pytest.fixture
def fleet(tmp_path, pair):
    fleet = Fleet(tmp_path, pair)
    yield fleet
    fleet.registry.close()


def test_a_token_is_enough_to_join(fleet):
    """A valid token suffices to join: the certificate has the token's name.

    The device is accepted with what is known of its board, and the answer states all of it.
    """
    answer = fleet.joins()
    device = devices.find(fleet.registry, "pi-1")
    assert (device.trust, device.fleet, device.serial, device.board) == (
        "accepted",
        "lab",
        "1",
        "A Board",
    )
    certificate = x509.load_pem_x509_certificate(answer.certificate.encode())
    assert certificate.subject.rfc4514_string() == "CN=pi-1"
    assert (f"{certificate.serial_number:x}", answer.fleet, answer.now_ns) == (
        answer.number,
        "lab",
        BEGIN_NS,
    )
    assert answer.not_after_ns == BEGIN_NS + 730 * DAY_NS


def test_a_token_holds_until_its_time_and_not_a_nanosecond_longer(fleet):
    """A token expires by the server's clock, and a token that nobody made is never valid."""
    for late_ns, state in ((-1, "accepted"), (0, "refused")):
        with table_row(late_ns):
            token = fleet.token(f"pi{late_ns}", hours=2.0)
            fleet.now_ns += 7200 * S + late_ns
            assert fleet.asks(token, f"key {late_ns}", f"serial{late_ns}").state == state
    assert fleet.asks("0" * 32, "key 3", "3").state == "refused"


def test_a_token_serves_one_key_and_ends_when_its_device_has_the_certificate(fleet):
    """A token serves one key: a repeated request, after a lost answer, gives the same certificate.

    Another key gets nothing, and after the first use of the certificate nobody does. A new token
    ends the one that the device had before.
    """
    lost, token = fleet.token(), fleet.token()
    assert fleet.asks(lost).state == "refused"
    first = fleet.asks(token)
    assert fleet.asks(token).number == first.number
    assert fleet.asks(token, "key 2").state == "refused"
    assert fleet.asks(token, "key 2", "2").state == "refused"
    assert fleet.asks(token, "key 1", "2").state == "again"
    other = fleet.joins("pi-2", "key 2", "2")
    fleet.confirms(other.number)
    fleet.confirms("00")
    assert fleet.asks(token).number == first.number
    fleet.confirms(first.number)
    assert fleet.asks(token).state == "refused"
    assert fleet.valid() == [first.number]


def test_a_token_gives_its_own_name_alone(fleet):
    """A board may leave out the token's name, but not ask for another one."""
    token = fleet.token()
    assert fleet.asks(token, common_name="pi-2").state == "refused"
    assert fleet.asks(token, common_name="edgemeter-operator").state == "refused"
    assert fleet.asks(token, common_name="pi-1").device == "pi-1"


def test_the_key_of_another_board_is_to_be_made_anew(fleet):
    """A board with a copied key is told to make a new one, even with a token for another name.

    The key was copied with the card.
    """
    fleet.joins()
    token = fleet.token("pi-2")
    assert fleet.asks(token, "key 1", "2").state == "again"
    assert fleet.asks(token, "key 1", "1").state == "again"
    assert fleet.asks(token, "key 2", "2").device == "pi-2"
    assert len(fleet.valid()) == 1


def test_a_board_has_one_name(fleet):
    """A token for a second name of a board is refused, with the remedy for copied system images.

    The name of a board that was revoked is free.
    """
    fleet.joins()
    token = fleet.token("pi-2")
    refused = fleet.asks(token, "key 2", "1", source="installation")
    assert refused.state == "refused"
    assert "systemd-machine-id-setup" in refused.reason
    assert "systemd-machine-id-setup" not in fleet.asks(token, "key 2", "1").reason
    fleet.decides(admission.revoke, "pi-1", "sold", "lab")
    assert fleet.asks(token, "key 2", "1").device == "pi-2"
    assert (
        devices.find(fleet.registry, "pi-1").serial,
        devices.find(fleet.registry, "pi-2").serial,
    ) == (None, "1")


def test_a_revoked_device_joins_when_it_was_admitted_again(fleet):
    """A revoked device gets its name back once it was admitted again.

    Its certificates and tokens end with the revocation, and it gets no token before.
    """
    answer, token = fleet.joins(), fleet.token()
    fleet.decides(admission.revoke, "pi-1", "stolen", "lab")
    assert fleet.asks(token, "key 2").state == "refused"
    assert (fleet.valid(), certificates.refused(fleet.registry, time.time_ns())) == (
        [],
        {answer.number},
    )
    assert certificates.pending_disconnects(fleet.registry) == ["pi-1"]
    assert fleet.renews().state == "refused"
    with pytest.raises(ConfigError, match="fleet accept"):
        fleet.token()
    # One that another process made a moment before.
    open_token = fleet.token("pi-2")
    with fleet.registry.transaction() as statements:
        devices.put(statements, Device("pi-2", "lab", trust="revoked"))
    assert fleet.asks(open_token, "key 3", "3").state == "refused"
    fleet.decides(admission.accept, "pi-1", None)
    assert certificates.pending_disconnects(fleet.registry) == []
    assert fleet.asks(fleet.token(), "key 2").state == "accepted"


def test_a_name_of_another_board_waits_for_a_person(fleet):
    """Once a person approves a name's second board, the first is disconnected.

    Its certificate ends.
    """
    first, token = fleet.joins(), fleet.token()
    assert fleet.asks(token, "key 2", "2").state == "pending"
    assert fleet.asks(token, "key 2", "2").state == "pending"
    (waiting,) = certificates.undecided_requests(fleet.registry)
    assert (waiting.device, waiting.serial, waiting.token_id) == (
        "pi-1",
        "2",
        identity.token_id(token),
    )
    assert fleet.valid() == [first.number]
    fleet.decides(admission.accept, "pi-1", None)
    # Another key of the same board was not what the person saw.
    assert fleet.asks(token, "key 3", "2").state == "pending"
    assert fleet.asks(token, "key 3", "2").state == "pending"
    fleet.decides(admission.accept, "pi-1", None)
    answer = fleet.asks(token, "key 3", "2")
    assert (answer.state, answer.device, fleet.valid()) == ("accepted", "pi-1", [answer.number])
    assert fleet.asks(token, "key 3", "2").number == answer.number
    assert fleet.asks(token, "key 2", "2").state == "refused"
    assert certificates.pending_disconnects(fleet.registry) == ["pi-1"]
    assert certificates.refused(fleet.registry, time.time_ns()) == {first.number}
    assert devices.find(fleet.registry, "pi-1").serial == "2"


def test_a_rejected_board_is_refused_and_its_token_ends(fleet):
    """A rejected board is refused and its token ends; the board that has the name keeps it."""
    first, token = fleet.joins(), fleet.token()
    fleet.asks(token, "key 2", "2")
    (waiting,) = certificates.undecided_requests(fleet.registry)
    fleet.decides(admission.revoke, waiting.request[:12], "why", "lab")
    assert fleet.asks(token, "key 2", "2").state == "refused"
    assert open_tokens(fleet.registry) == {}
    assert fleet.asks(fleet.token(), "key 2", "2").state == "pending"
    assert fleet.valid() == [first.number]


def test_the_inventory_decides_who_waits_for_a_person(fleet):
    """A person decides on a serial number that differs from the one in fleet.toml.

    Where the inventory says so, a person decides on every board.
    """
    token = fleet.token()
    fleet.file = FleetFile(
        fleet="lab",
        server=ServerEntry(broker="b"),
        device={"pi-1": DeviceEntry(serial="7", board="pi5", tags=("coral",))},
    )
    assert fleet.asks(token, serial="1").state == "pending"
    assert fleet.asks(token, serial="7").state == "accepted"
    device = devices.find(fleet.registry, "pi-1")
    assert (device.board, device.tags) == ("pi5", ("coral",))
    fleet.file = FleetFile(fleet="lab", server=ServerEntry(broker="b", accept="hand"))
    token = fleet.token("pi-2")
    assert fleet.asks(token, "key 2", "2").state == "pending"
    fleet.decides(admission.revoke, "pi-2", "why", "lab")
    assert fleet.asks(token, "key 2", "2").state == "refused"
    assert devices.find(fleet.registry, "pi-2").trust == "expected"


def test_a_board_that_was_flashed_anew_keeps_its_name(fleet):
    """A board with the same serial number and a new key keeps its name.

    Its old certificate is revoked, and no session is ended for that.
    """
    first = fleet.joins()
    second = fleet.joins(key="key 2")
    assert (certificates.refused(fleet.registry, time.time_ns()), fleet.valid()) == (
        {first.number},
        [second.number],
    )
    assert certificates.pending_disconnects(fleet.registry) == []


def test_a_board_that_was_flashed_anew_is_ordered_again_what_it_repeated(fleet):
    """A board that was flashed anew is ordered again what it repeated, as its journal is lost.

    After a lost answer or a renewal nothing is ordered again.
    """
    fleet.joins()
    work = Measure(suite=Content(sha256="0" * 64, size_bytes=1, name="suite.toml"), every_s=3600)
    with fleet.registry.transaction() as statements:
        job = jobs.add(statements, NewJob((work,), "t", 1.0), [Target("pi-1", "lab")], fleet.now_ns)
        (execution,) = jobs.select_executions(fleet.registry, "WHERE ended_ns IS NULL")
        jobs.write_executions(statements, [replace(execution, state="repeating", attempt=1)])
    token = fleet.token()
    for ask, state in ((fleet.renews, "repeating"), (lambda: fleet.asks(token, "key 2"), "queued")):
        assert ask().state == "accepted"
        (execution,) = jobs.executions_of_job(fleet.registry, job)
        assert execution.state == state
    with fleet.registry.transaction() as statements:
        jobs.write_executions(statements, [replace(execution, state="repeating", attempt=2)])
    fleet.asks(token, "key 2")
    assert [
        each.state for each in jobs.select_executions(fleet.registry, "WHERE ended_ns IS NULL")
    ] == ["repeating"]


def test_a_device_renews_its_own_name_while_it_is_accepted(fleet):
    """An accepted device may renew its own name only.

    A device that the registry does not know, or that waits for a decision, renews nothing.
    """
    fleet.joins()
    fleet.joins("pi-2", "key 2", "2")
    for wished in ("pi-2", "edgemeter-operator"):
        assert fleet.renews(common_name=wished).state == "refused"
    assert (
        fleet.rules.with_certificate("pi-1", fleet.request("key 1", "1", None), BEGIN_NS).state
        == "refused"
    )
    assert fleet.renews("pi-3").state == "refused"
    with fleet.registry.transaction() as statements:
        devices.put(statements, replace(devices.find(fleet.registry, "pi-2"), trust="pending"))
    assert fleet.renews("pi-2", "key 2", "2").state == "refused"
    assert len(fleet.valid("pi-2")) == 1


def test_a_certificate_is_renewed_after_half_of_its_life(fleet):
    """A certificate is renewed only after half of its life.

    A request before that repeats the last answer, as it may have been lost; another key is another
    request.
    """
    first = fleet.joins()
    fleet.now_ns += 365 * DAY_NS
    assert fleet.renews().number == first.number
    fleet.now_ns += 1
    second = fleet.renews()
    assert second.number != first.number
    assert fleet.renews().number == second.number
    assert fleet.renews(key="key 2").number not in {first.number, second.number}
    assert certificates.refused(fleet.registry, time.time_ns()) == set()


def test_the_certificates_before_end_when_the_new_one_is_in_use(fleet):
    """The old certificates end a week after the new one came into use, as a card may be set back.

    A number that is no certificate of this device ends nothing.
    """
    first = fleet.joins()
    fleet.now_ns += 400 * DAY_NS
    second = fleet.renews()
    other = fleet.joins("pi-2", "key 2", "2")
    fleet.confirms(other.number)
    fleet.confirms(first.number)
    assert fleet.valid() == [second.number, first.number]
    fleet.confirms(second.number)
    fleet.confirms(second.number)
    end_ns = fleet.now_ns + RENEWED_GRACE_NS
    assert certificates.refused(fleet.registry, end_ns - 1) == set()
    assert certificates.refused(fleet.registry, end_ns) == {first.number}


def test_a_board_that_asks_in_a_loop_gets_ten_certificates_a_day(fleet):
    """A board gets at most ten certificates a day, though it asks with a new key each time."""
    fleet.joins()
    answers = [fleet.renews(key=f"key {number}").state for number in range(2, MOST_A_DAY + 2)]
    assert answers == ["accepted"] * (MOST_A_DAY - 1) + ["refused"]
    fleet.now_ns += DAY_NS - 1
    assert fleet.renews(key="late").state == "refused"
    fleet.now_ns += 1
    assert fleet.renews(key="late").state == "accepted"


def test_a_copied_card_makes_a_key_and_waits_for_a_name_of_its_own(fleet):
    """A copied card's board makes its own key and waits for a name that differs from the first's.

    The first board keeps its certificate. A repeated request gets the same name.
    """
    first = fleet.joins()
    assert fleet.renews(serial="2").state == "again"
    assert fleet.renews(key="key 2", serial="2").state == "pending"
    with pytest.raises(ConfigError, match="--as NAME"):
        fleet.decides(admission.accept, "pi-1", None)
    fleet.decides(admission.accept, "pi-1", "pi-2")
    answer = fleet.renews(key="key 2", serial="2")
    assert answer.device == "pi-2"
    repeated = fleet.renews(key="key 2", serial="2")
    assert (repeated.number, repeated.device, repeated.fleet) == (answer.number, "pi-2", "lab")
    assert fleet.valid() == [first.number]
    assert certificates.pending_disconnects(fleet.registry) == []
    assert (
        devices.find(fleet.registry, "pi-1").serial,
        devices.find(fleet.registry, "pi-2").serial,
    ) == ("1", "2")


def test_a_request_is_named_by_its_device_or_by_itself(fleet):
    """A request is found by its device's name, if only that one has it, or by its own id.

    Several matching requests have to be told apart by their ids; an unknown one is an error.
    """
    fleet.joins()
    for number in (2, 3):
        fleet.renews(key=f"key {number}", serial=str(number))
    with pytest.raises(ConfigError, match="2 pending requests match 'pi-1'"):
        fleet.decides(admission.accept, "pi-1", "pi-2")
    _, second = certificates.undecided_requests(fleet.registry)
    fleet.decides(admission.accept, second.request[:12], "pi-2")
    assert fleet.renews(key=f"key {second.serial}", serial=second.serial).device == "pi-2"
    with pytest.raises(ConfigError, match="pi-9"):
        fleet.decides(admission.accept, "pi-9", None)


def test_a_name_that_no_device_may_have_gets_no_token(fleet):
    """Names of services, and those that no topic, certificate or file can hold, get no token."""
    for name in (
        "edgemeter-operator",
        "edgemeter-",
        "a/b",
        "+",
        "#",
        "",
        " x",
        "x" * 65,
        "a\nb",
        "../x",
        "a;b",
    ):
        with table_row(name):
            with pytest.raises(ConfigError) as error:
                fleet.token(name)
            assert "\n" not in str(error.value)
            with pytest.raises(ConfigError):
                fleet.decides(admission.revoke, name, "why", "lab")
    assert open_tokens(fleet.registry) == {}
    assert fleet.token("x" * 64)
