"""A device obeys only orders that its fleet's service signed and that answer its challenge.

The test moves the clock; signatures with keys are made by the real openssl.
"""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.orders import Logs, Order, encode_order
from edgemeter.agent.daemon.handler import HandlerContext
from edgemeter.agent.identity.identity import IdentityFiles
from edgemeter.agent.identity.service_signature import read_refused_orders
from edgemeter.agent.jobs.order_check import CHALLENGE_S, GRACE_S, MOST_WRONG, NOTE_S, OrderCheck
from tests.fixtures.fleet_key import OrderSigner, give_board, other_keys
from tests.fixtures.plain_signature import PlainSignature, PlainSigner

with_openssl = pytest.mark.needs("openssl")
ORDER = encode_order(Order(job="job-1", attempt=1, version=1, work=Logs(), timeout_s=9.0))


class Checked:
    """A device that checks orders, together with the fleet's service.

    `signer` seals with a word in place of a signature, or with real keys.
    """

    def __init__(self, path, signer=None):
        self.path = path
        self.home = path / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.now_s = 0.0
        self.is_connected = True
        self.reports = 0
        self.signature = None if signer else PlainSignature()
        self.signer = signer or PlainSigner()
        self.start()

    def start(self):
        context = HandlerContext(
            device="pi-1",
            fleet="lab",
            session=1,
            settings=None,
            home=self.home,
            config=None,
            publish=lambda *_values, **_options: True,
            report_challenge=self.report,
            is_connected=lambda: self.is_connected,
            wake=lambda: None,
            restart=lambda: None,
            log=list,
        )
        self.check = OrderCheck(context, lambda: self.now_s, self.signature)
        self.check.connected()

    def report(self, challenge):
        self.reports += self.signer.challenged(challenge)

    def pass_by(self, seconds):
        self.now_s += seconds
        self.check.poll()

    def obeys(self, payload):
        try:
            return self.check.command(payload) == ORDER
        except ConfigError:
            return False


@pytest.fixture
def device(tmp_path):
    return Checked(tmp_path)


@pytest.fixture
def keyed(tmp_path):
    give_board(tmp_path / "home")
    return Checked(tmp_path, OrderSigner(tmp_path / "fleet", "lab", "pi-1"))


@with_openssl
def test_an_order_of_the_service_is_obeyed_and_one_byte_more_or_less_is_not(keyed):
    """A changed byte in the order, the signature or the certificate is refused.

    So are keys of a device, of the broker and of another fleet.
    """
    payload = keyed.signer.sealed(ORDER)
    assert keyed.obeys(payload)
    for old, new in (
        (b'"logs"', b'"doctor"'),
        (b'"version":1', b'"version":2'),
        (b'"signature":"M', b'"signature":"N'),
        (b"BEGIN", b"END"),
    ):
        assert not keyed.obeys(payload.replace(old, new, 1)), old
    assert keyed.obeys(payload)
    for pair in other_keys():
        keyed.signer.use(pair)
        assert not keyed.obeys(keyed.signer.sealed(ORDER))


def test_an_order_for_another_board_or_fleet_is_refused(device):
    """The order is refused although the true service signed it."""
    for name, fleet in (("pi-2", "lab"), ("pi-1", "field"), ("pi-10", "lab")):
        signer = PlainSigner(fleet, name)
        signer.challenged(device.signer.challenge)
        with pytest.raises(ConfigError, match=f"'{name}' of fleet '{fleet}'"):
            device.check.command(signer.sealed(ORDER))


def test_a_recorded_order_is_refused_after_a_restart_and_after_two_hours(device):
    """The check needs no clock and no file.

    The board may come back with last year's image of its card.
    """
    recorded = device.signer.sealed(ORDER)
    device.pass_by(CHALLENGE_S)
    assert device.obeys(recorded)
    device.pass_by(GRACE_S - 1.0)
    assert device.obeys(recorded)
    device.pass_by(1.0)
    assert not device.obeys(recorded)
    recorded = device.signer.sealed(ORDER)
    device.start()
    assert not device.obeys(recorded)
    assert device.obeys(device.signer.sealed(ORDER))


def refused_count(device):
    device.pass_by(NOTE_S)
    noted = read_refused_orders(device.home)
    return noted.count if noted else 0


@pytest.mark.parametrize("restarts", [1, 2])
def test_an_order_that_was_on_its_way_while_the_agent_restarted_is_no_refusal(device, restarts):
    """An order kept by the broker is not obeyed, but the service gets the new challenge.

    The service then sends the order again.
    """
    on_its_way = device.signer.sealed(ORDER)
    for _ in range(restarts):
        device.pass_by(1.0)
        device.start()
    reports = device.reports
    assert not device.obeys(on_its_way)
    assert device.reports == reports + 1
    assert refused_count(device) == 0
    assert device.obeys(device.signer.sealed(ORDER))


@pytest.mark.parametrize("offline_s", [CHALLENGE_S, 2 * CHALLENGE_S])
def test_an_order_from_before_the_line_was_cut_is_not_obeyed_and_is_no_refusal(device, offline_s):
    """Whoever holds an order back can also cut the line.

    The service may have published it before it knew that the board was offline for hours.
    """
    waiting = device.signer.sealed(ORDER)
    device.is_connected = False
    device.pass_by(offline_s)
    device.is_connected = True
    device.check.connected()
    assert not device.obeys(waiting)
    assert refused_count(device) == 0
    assert device.obeys(device.signer.sealed(ORDER))


def test_a_replay_is_counted_after_a_restart_too(device):
    """A replay counts once the service has had a minute to learn the new challenge.

    Cutting the line does not change this. A forged order, or one of another fleet, counts at once.
    """
    recorded = device.signer.sealed(ORDER)
    true_signature, device.signer.signature = device.signer.signature, b"by somebody"
    forged = device.signer.sealed(ORDER)
    device.signer.signature, device.signer.challenge = true_signature, "00"
    foreign = device.signer.sealed(ORDER)
    device.start()
    assert not device.obeys(forged)
    assert not device.obeys(foreign)
    assert refused_count(device) == 2
    device.pass_by(GRACE_S)
    device.check.connected()
    assert not device.obeys(recorded)
    assert refused_count(device) == 3
    assert "somebody replays it" in read_refused_orders(device.home).reason


def test_a_service_without_the_challenge_gets_it_again_and_a_flood_of_requests_brings_it_once(
    device,
):
    """A request without a challenge is not refused but answered with the present one.

    An order that answers an earlier challenge brings the present one too.
    """
    device.signer.challenge = None
    request = device.signer.sealed(b"{}")
    for _ in range(5):
        assert device.check.command(request) is None
    assert device.reports == 2
    assert read_refused_orders(device.home) is None
    assert device.obeys(device.signer.sealed(ORDER))
    device.pass_by(NOTE_S)
    device.signer.challenge = "00"
    assert not device.obeys(device.signer.sealed(ORDER))
    assert device.obeys(device.signer.sealed(ORDER))


@with_openssl
def test_an_earlier_key_of_the_service_ends_with_the_first_order_of_the_next(keyed):
    """The earlier key stays invalid after a restart; a device of no fleet obeys nobody."""
    assert keyed.obeys(keyed.signer.sealed(ORDER))
    before = OrderSigner(keyed.path / "fleet", "lab", "pi-1")
    before.sealed(ORDER)
    keyed.signer.renew(days=1)
    assert keyed.obeys(keyed.signer.sealed(ORDER))
    keyed.start()
    before.challenge = keyed.signer.challenge
    with pytest.raises(ConfigError, match="an earlier key"):
        keyed.check.command(before.sealed(ORDER))
    IdentityFiles(keyed.home).ca.unlink()
    with pytest.raises(ConfigError, match="has joined no fleet"):
        keyed.check.command(keyed.signer.sealed(ORDER))


def test_a_flood_of_wrong_signatures_is_checked_slowly_and_noted_once(device):
    """`fleet list` gets their count and the last reason.

    True orders are obeyed again a second later.
    """
    payload = device.signer.sealed(ORDER)
    device.signer.signature = b"by somebody"
    wrong = device.signer.sealed(ORDER)
    for _ in range(MOST_WRONG + 5):
        assert not device.obeys(wrong)
    assert not device.obeys(payload)
    device.pass_by(NOTE_S)
    assert device.obeys(payload)
    noted = read_refused_orders(device.home)
    assert noted.count == MOST_WRONG + 6
    assert "unsigned" in noted.reason
    device.start()
    assert not device.obeys(wrong)
    device.pass_by(NOTE_S)
    assert read_refused_orders(device.home).count == MOST_WRONG + 7
