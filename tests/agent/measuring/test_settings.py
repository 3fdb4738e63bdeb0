"""Test which settings of a call from Python come from the environment."""

from pathlib import Path

from edgemeter.agent.measuring.settings import SessionSettings


def test_a_call_from_python_reads_the_variables_that_a_command_reads(monkeypatch):
    """What the call names comes first; records that no broker takes are kept."""
    for name, value in (
        ("DEVICE", "pi-1"),
        ("FLEET", "lab"),
        ("POWER", "none"),
        ("CONFIG", "here.toml"),
        ("BROKER", "broker.example"),
    ):
        monkeypatch.setenv(f"EDGEMETER_{name}", value)
    assert SessionSettings.of_environment(power="rapl", save=False) == SessionSettings(
        device="pi-1",
        fleet="lab",
        config=Path("here.toml"),
        power="rapl",
        save=False,
        broker="broker.example",
        if_no_broker="keep",
    )
    monkeypatch.setenv("EDGEMETER_DEVICE", "")
    assert SessionSettings.of_environment().device is None
