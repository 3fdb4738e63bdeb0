"""The command `edgemeter fleet write`: what it asks, refuses and prints."""

import hashlib
import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.cli import card
from edgemeter.provisioning.cli.card import write
from edgemeter.provisioning.write import target_disk
from tests.fixtures.rows import table_row
from tests.provisioning.write.world import SATA, Bench

CONTENT = hashlib.shake_256(b"small image").digest(1 << 20)
WORDS = "Generic SD Card Reader 0.0 GB"


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Return a world with a card and a built-in disk, which the command takes for this machine."""
    bench = Bench(tmp_path)
    bench.card = bench.disk()
    bench.disk("sda", SATA, removable=0, number="8:0", model="System SSD")
    bench.image = tmp_path / "os.img"
    bench.image.write_bytes(CONTENT)
    monkeypatch.setattr(card, "KernelTrees", lambda: bench.world)
    return bench


def run(bench, *arguments, card=True, typed=None):
    """Run the command; `typed` comes from a terminal."""
    device = ["--device", str(bench.card)] if card else []
    return CliRunner().invoke(write, [str(bench.image), *device, *arguments], input=typed, catch_exceptions=False)


def test_model_and_size_on_the_command_line_stand_for_the_question(bench):
    """A script writes a card without a question, and reads in JSON what was written."""
    result = run(bench, "--yes-model", WORDS, "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert (document["sha256"], document["size_bytes"], document["model"]) == (
        hashlib.sha256(CONTENT).hexdigest(),
        1 << 20,
        "Generic SD Card Reader",
    )
    assert bench.card.read_bytes()[: 1 << 20] == CONTENT


def test_several_images_go_to_several_cards_with_one_confirmation(bench, monkeypatch):
    """The next card is waited for until the reader was empty; each gets its own image, and a card of another size is not written."""
    second = bench.folder / "second.img"
    second.write_bytes(CONTENT[::-1])
    size, written, looks = bench.folder / "sys/class/block/sdx/size", [], []

    def exchange(_s):
        looks.append(size.read_text())
        if len(looks) == 2:
            written.append(bench.card.read_bytes()[: 1 << 20])
            bench.card.write_bytes(bytes(24 << 20))
            size.write_text("0\n")
        if len(looks) == 4:
            size.write_text(looks[0])

    # Only there: other threads sleep, too.
    monkeypatch.setattr(card, "time", SimpleNamespace(sleep=exchange))
    result = run(bench, str(second), "--yes-model", WORDS, "--json")
    assert result.exit_code == 0
    assert written == [CONTENT]
    assert bench.card.read_bytes()[: 1 << 20] == CONTENT[::-1]
    assert [json.loads(line)["device"] for line in result.stdout.splitlines()] == [str(bench.card)] * 2
    assert "2 of 2, second.img: exchange the card" in result.stderr
    looks.clear()
    exchanged = f"{(200 << 20) // 512}\n"
    monkeypatch.setattr(card, "time", SimpleNamespace(sleep=lambda _: size.write_text("0\n" if size.read_text() != "0\n" else exchanged)))
    with pytest.raises(ConfigError, match="does not match"):
        run(bench, str(second), "--yes-model", WORDS)


def test_without_the_right_words_nothing_is_written(bench):
    """The card stays as it is."""
    for arguments, message in (((), "no terminal"), (("--yes-model", "Other 32 GB"), "nothing was written")):
        with table_row(arguments):
            with pytest.raises(ConfigError, match=message):
                run(bench, *arguments)
            assert not any(bench.card.read_bytes())


def test_a_dry_run_checks_and_writes_nothing(bench):
    """It asks no question either, and the card stays empty."""
    result = run(bench, "--dry-run")
    assert (result.exit_code, "would write" in result.stdout) == (0, True)
    assert not any(bench.card.read_bytes())


def test_a_card_that_was_mounted_during_the_question_is_refused(bench, monkeypatch):
    """It is checked again after the reply."""

    def mount(*_what):
        bench.mounts.append("30 1 8:16 / /media/card rw - vfat /dev/sdx rw")
        assert bench.world

    monkeypatch.setattr(card, "_confirm", mount)
    with pytest.raises(ConfigError, match="/media/card"):
        run(bench)
    assert not any(bench.card.read_bytes())


def test_another_card_in_the_same_place_is_refused(bench, monkeypatch):
    """Somebody changed it while the question was open."""
    size = bench.folder / "sys/class/block/sdx/size"
    monkeypatch.setattr(card, "_confirm", lambda *_: size.write_text("99999\n"))
    with pytest.raises(ConfigError, match="another card"):
        run(bench)


def test_without_a_device_the_disks_are_listed_with_why_not(bench):
    """Status 2, and nothing is written."""
    result = run(bench, card=False)
    assert result.exit_code == 2
    rows = {line.split()[0]: line for line in result.stderr.splitlines() if line.startswith("  ")}
    assert "built in" in rows[str(bench.folder / "dev/sda")]
    assert "no:" not in rows[str(bench.card)]


def test_a_built_in_disk_is_refused_whatever_is_allowed(bench):
    """Also with its own words and --force-large."""
    bench.card = bench.folder / "dev/sda"
    with pytest.raises(ConfigError, match="built in"):
        run(bench, "--force-large", "--yes-model", target_disk.read_disk(bench.card, bench.world).words)
