from edgemeter.agent.base.variables import set_variables, unknown_variables


def test_what_is_set_is_shown_but_no_secret():
    """An unknown variable with our prefix is reported as a typo."""
    environ = {
        "EDGEMETER_DEVICE": "pi",
        "EDGEMETER_MQTT_PASSWORD": "hunter2",
        "EDGEMETER_BROKR": "x",
        "PATH": "/bin",
    }
    assert set_variables(environ) == {
        "EDGEMETER_DEVICE": "pi",
        "EDGEMETER_MQTT_PASSWORD": "(secret)",
    }
    assert unknown_variables(environ) == ["EDGEMETER_BROKR"]
