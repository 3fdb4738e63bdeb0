"""Facts about `edgemeter.agent.identity.enrolment_client`, at a service that is an object."""

import pytest

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract.identity import CertificateRequest, EnrolmentAnswer, encode_identity, request_id
from edgemeter.agent.identity import joining
from edgemeter.agent.identity.enrolment_client import EnrolmentClient
from edgemeter.agent.identity.identity import IdentityFiles
from tests.fixtures.plain_signature import PlainSignature
from tests.fixtures.sealing import sealed_payload

QUESTION = CertificateRequest(csr="CSR", serial="1", serial_source="made")
ANSWER = EnrolmentAnswer(request=request_id("CSR"), state="accepted", now_ns=1, device="pi-1", fleet="lab")


class Service:
    """The session of a client, with the service at its other end: it answers the next question with what `answers` holds."""

    def __init__(self, _address, _profile, events):
        self.events = events
        self.asked = []
        self.answers = []

    def connect(self):
        """Connect at once."""
        self.events.connected()

    def subscribe(self, topics):
        """Hear the answers."""
        self.topics = topics

    def publish(self, topic, payload):
        """Take a question."""
        self.asked.append((topic, payload))
        for answer in self.answers.pop(0) if self.answers else ():
            self.say(answer)

    def say(self, answer, signature=b"by the service"):
        """Answer."""
        payload = sealed_payload(encode_identity(answer), signature)
        self.events.received(Message("answer", payload))

    def close(self):
        """End."""


class Client(EnrolmentClient):
    """A client of that service; `alive` is what happens while it waits."""

    make_session = Service

    def __init__(self, alive=lambda: None):
        super().__init__(BrokerAddress("broker.example", 8883), "claim", ("request", "answer"), PlainSignature(), alive)


def changed(**fields):
    """Return the answer with other fields."""
    return EnrolmentAnswer(**{"request": ANSWER.request, "state": ANSWER.state, "now_ns": 1, "device": "pi-1", "fleet": "lab", **fields})


def test_the_decision_is_what_the_service_has_signed_for_this_question(caplog):
    """Forged ones, and those to another's question, are none; a decision that takes a person comes while the client waits."""
    service = lambda: client._session  # noqa: E731 - it is made with the client

    def first():
        service().say(ANSWER, b"by somebody")
        service().say(changed(request="00", state="refused"))
        service().say(changed(state="pending", reason="needs approval"))

    def then():
        service().say(ANSWER)

    steps = iter((first, then))

    def alive():
        next(steps)()

    client = Client(alive)
    with client:
        assert client.request(QUESTION, 3600.0) == ANSWER
    assert client._session.asked == [("request", encode_identity(QUESTION))]
    assert list(client._session.topics) == ["answer"]
    assert caplog.text.count("ignored a message") == 1


def test_a_question_is_asked_again_when_the_line_was_down():
    """What was asked before is lost then."""
    client = Client(lambda: client.connected())  # noqa: PLW0108 - as above
    with client:
        client._connect(1e12)
        client._session.answers = [[], [changed(state="refused", reason="unknown")]]
        assert client.request(QUESTION, 3600.0).state == "refused"
        assert len(client._session.asked) == 2
        with pytest.raises(TransientError, match="try again later"):
            client.request(QUESTION, 0.0)


def test_a_key_that_came_with_a_copied_card_is_made_anew(tmp_path, monkeypatch):
    """As often as the service says `again`, and at most three times."""
    files = IdentityFiles(tmp_path)
    files.folder.mkdir()
    keys = iter("abcd")
    monkeypatch.setattr(joining, "make_key", lambda path: path.write_text(next(keys)))
    monkeypatch.setattr(joining, "certificate_request", lambda path, name: f"{path.read_text()} {name}")
    for states, requests in ((("accepted",), ["a pi-1"]), (("again", "again", "again"), ["a pi-1", "b pi-1", "c pi-1"])):
        requests_made, answers = [], iter(states)

        def ask(request, requests_made=requests_made, answers=answers):
            requests_made.append(request.csr)
            return changed(state=next(answers))

        assert joining.ask_certificate(files, QUESTION, "pi-1", ask).state == states[-1]
        assert requests_made == requests
