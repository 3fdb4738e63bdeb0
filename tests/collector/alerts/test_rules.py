from importlib.resources import files

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.alerts import rules
from tests.fixtures.rows import table_row


@pytest.fixture
def written(tmp_path):

    def read(text):
        path = tmp_path / "alerts.toml"
        path.write_text(text)
        return rules.read_rules(path)

    return read


def test_the_sample_loads_and_shows_every_kind(tmp_path):
    """The sample has every kind of rule and channel, and every key at least as a comment."""
    text = files("edgemeter.collector.alerts").joinpath("sample_alerts.toml").read_text()
    path = tmp_path / "sample.toml"
    path.write_text(text)
    read = rules.read_rules(path)
    assert {rule.kind for rule in read.rule} == set(rules.RuleKind.__args__)
    assert {channel.kind for channel in read.channel} == {"apprise", "alertmanager"}
    for key in (
        *rules.AlertRule.__struct_fields__,
        *rules.Channel.__struct_fields__,
        *rules.AlertRules.__struct_fields__,
    ):
        assert key in text, key


def test_without_a_file_the_usual_rules_watch_and_send_nothing(tmp_path):
    """A named file that is absent is an error, and the usual rules do not replace it silently."""
    assert all(not rule.channels for rule in rules.USUAL.rule)
    assert {"step", "device-lost", "outbox-stopped", "invalid"} <= {
        rule.kind for rule in rules.USUAL.rule
    }
    with pytest.raises(ConfigError, match="cannot read the rules"):
        rules.read_rules(tmp_path / "none.toml")


def test_what_is_wrong_is_named(written):
    """The error is one line with the file, the key, and what would be right."""
    for text, message in (
        ("[[rule]]\nname = 'a'\nkind = 'jump'\n", "jump"),
        ("[[rule]]\nname = 'a'\nkind = 'step'\nwhen = 'now'\n", "when"),
        ("[[rule]]\nname = 'a'\nkind = 'step'\nchannels = ['x']\n", "channel 'x'"),
        ("[[rule]]\nname = 'a'\nkind = 'step'\nmetrics = ['speed']\n", "metric 'speed'"),
        ("[[rule]]\nname = 'a'\nkind = 'limit'\nmetrics = ['energy_gross_mj']\n", "above or below"),
        ("[[rule]]\nname = 'a'\nkind = 'limit'\nabove = 1.0\n", "exactly one metric"),
        ("[[rule]]\nname = 'a'\nkind = 'step'\n[[rule]]\nname = 'a'\nkind = 'drift'\n", "twice"),
        ("[[channel]]\nname = 'c'\n", "url"),
        ("[[channel]]\nname = 'c'\nkind = 'ntfy'\nurl = 'http://h'\n", "ntfy"),
        ("[[rule]\n", "correct"),
    ):
        with table_row(text), pytest.raises(ConfigError, match=message.replace("(", r"\(")):
            written(text)
