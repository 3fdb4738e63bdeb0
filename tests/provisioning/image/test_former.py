"""Facts about a card that is prepared for one format after another: exactly one adapter is on it, and what people wrote stays."""

import itertools
from functools import cache

import pytest

from edgemeter.provisioning.image import detect, firstrun
from tests.provisioning.image import cards

pytestmark = pytest.mark.needs("openssl")

LINE = "console=tty1 rootwait quiet init=/usr/lib/raspberrypi-sys-mods/firstboot"
BOOKWORM = {"cmdline.txt": f"{LINE}\n", "config.txt": "arm_64bit=1\n"}
SCRIPT = "#!/bin/bash\n\nset +e\n\necho theirs\nrm -f /boot/firstrun.sh\nsed -i 's| systemd.run.*||g' /boot/cmdline.txt\nexit 0\n"
THEIRS = {
    "cmdline.txt": f"{LINE} {' '.join(firstrun.WORDS)}\n",
    "config.txt": "arm_64bit=1\n",
    "firstrun.sh": SCRIPT,
    "custom.toml": "config_version = 1\n",
    "user-data": "#cloud-config\n",
    "meta-data": "dsmode: local\n",
    "network-config": "version: 2\n",
    "rpi-preseed.toml": 'config_version = "1.1"\n\n[locale]\nkeymap = "gb"\n',
}
CARDS = {"bare": BOOKWORM, "theirs": THEIRS}
PAIRS = list(itertools.permutations(detect.BOOT_FORMATS, 2))
CLOUD = {"cloudinit", "cidata"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, card_options):
    """Return a function that gives a card of these files after one preparation; each is made once, and copied to be written to."""
    folder = tmp_path_factory.mktemp("prepared")

    @cache
    def make(files, form, *options):
        image = cards.disk(folder / f"{files}-{form}-{len(options)}.img", CARDS[files])
        cards.prepare(image, *card_options, "--first-boot", form, *options)
        return image

    return make


@pytest.fixture(scope="module")
def expected_tree(tmp_path_factory, prepared):
    """Return a function that gives every file of a card on which this preparation was the only one."""
    return cache(lambda files, form: cards.mtools_tree(prepared(files, form), tmp_path_factory.mktemp("tree") / "files"))


@pytest.mark.nightly
@cards.on_disk
@pytest.mark.parametrize(("first", "then"), PAIRS)
@pytest.mark.parametrize("files", CARDS)
def test_the_format_of_an_earlier_preparation_leaves_no_trace(tmp_path, card_options, prepared, expected_tree, first, then, files):
    """Every file is what it would be had the second format been the only one, without the first one's network."""
    image = tmp_path / "card.img"
    (tmp_path / "psk").write_text("correct horse battery\n")
    cards.run("cp", "--sparse=always", prepared(files, first, "--hostname", "earlier"), image)
    cards.prepare(image, *card_options, "--first-boot", first, "--wifi-ssid", "Hall", "--wifi-psk-file", tmp_path / "psk")
    cards.prepare(image, *card_options, "--first-boot", then)
    tree = cards.mtools_tree(image, tmp_path / "found")
    assert tree == expected_tree(files, then)
    starts = {name for name, data in tree.items() if "/" not in name and b"firstboot.sh install" in data}
    assert starts == {"user-data" if then in CLOUD else {"preseed": "rpi-preseed.toml", "firstrun": "firstrun.sh"}[then]}
    assert cards.fsck(image, size_bytes=64 << 20).returncode == 0


@cards.on_disk
def test_what_is_added_to_a_file_of_ours_stays(tmp_path, card_options):
    """A file that we made and somebody then wrote into is theirs: only our part of it goes."""
    image = cards.disk(tmp_path / "card.img", BOOKWORM)
    cards.prepare(image, *card_options, "--first-boot", "cloudinit")
    added = tmp_path / "user-data"
    added.write_text(cards.mtype(image, "user-data") + "locale: C.UTF-8\n")
    cards.run("mcopy", "-o", "-i", f"{image}@@{cards.OFFSET}", added, "::user-data")
    cards.prepare(image, *card_options, "--first-boot", "firstrun")
    user_data = cards.mtype(image, "user-data")
    assert "locale: C.UTF-8" in user_data
    assert "firstboot.sh" not in user_data
