from edgemeter.agent.base.outstanding import OutstandingPublishes


def test_an_acknowledgement_removes_a_publish_whichever_comes_first():
    """paho-mqtt may report from its own thread before `publish` has returned."""
    outstanding = OutstandingPublishes()
    outstanding.published(1, qos=1)
    assert len(outstanding) == 1
    assert 1 in outstanding
    assert outstanding.reported(1)
    assert 1 not in outstanding
    assert outstanding.reported(2)
    outstanding.published(2, qos=1)
    assert len(outstanding) == 0


def test_a_message_of_qos_0_never_counts():
    """Its report is no answer of the broker."""
    outstanding = OutstandingPublishes()
    outstanding.published(1, qos=1)
    outstanding.published(2, qos=0)
    assert not outstanding.reported(2)
    outstanding.reported(3)
    outstanding.published(3, qos=0)
    assert len(outstanding) == 1


def test_qos_0_that_went_with_a_connection_is_not_waited_for():
    """Its id may be used again for QoS 1."""
    outstanding = OutstandingPublishes()
    outstanding.published(1, qos=0)
    outstanding.reconnected()
    outstanding.published(1, qos=1)
    assert outstanding.reported(1)
    assert len(outstanding) == 0


def test_an_unacknowledged_publish_goes_with_the_connection():
    """Its id may be used again, and no acknowledgement for it comes any more."""
    outstanding = OutstandingPublishes()
    outstanding.published(1, qos=1)
    outstanding.reconnected()
    assert len(outstanding) == 0
