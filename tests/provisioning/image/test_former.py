"""Facts about a card that is prepared for one format after another: exactly one adapter is on it, and what people wrote stays."""

import pytest

from edgemeter.provisioning.image import firstrun
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
STARTS = {"preseed": "rpi-preseed.toml", "firstrun": "firstrun.sh", "cloudinit": "user-data", "cidata": "user-data"}
# Of cloud-init's two, the second keeps the network of the first.
PAIRS = (("cloudinit", "firstrun"), ("firstrun", "cidata"), ("cidata", "preseed"), ("preseed", "cloudinit"), ("firstrun", "preseed"))


@cards.on_disk
def test_the_format_of_an_earlier_preparation_leaves_no_trace(tmp_path, card_options):
    """Every file is what it would be had the last format been the only one, without the name and the network of one before."""
    (tmp_path / "psk").write_text("correct horse battery\n")
    # What the options say takes the place of their network.
    for files, wifi in ((BOOKWORM, ["--wifi-ssid", "Hall", "--wifi-psk-file", tmp_path / "psk"]), (THEIRS, [])):
        image = cards.disk(tmp_path / "card.img", files)
        for number, (form, then) in enumerate(PAIRS):
            cards.prepare(image, *card_options, "--first-boot", form, "--hostname", "earlier", *wifi)
            cards.prepare(image, *card_options, "--first-boot", then)
            once = cards.disk(tmp_path / "once.img", files)
            cards.prepare(once, *card_options, "--first-boot", then)
            trees = [cards.mtools_tree(card, tmp_path / f"{card.stem}-{len(files)}-{number}") for card in (image, once)]
            assert trees[0] == trees[1], (form, then)
            assert {name for name, data in trees[0].items() if "/" not in name and b"firstboot.sh install" in data} == {STARTS[then]}
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
