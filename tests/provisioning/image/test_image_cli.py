"""Facts about `edgemeter fleet image`: what it puts onto cards."""

from tests.provisioning.image import cards

BOOKWORM = "console=tty1 root=PARTUUID=0001-02 rootwait quiet init=/usr/lib/raspberrypi-sys-mods/firstboot\n"
TRIXIE = {
    "cmdline.txt": "console=tty1 root=PARTUUID=0001-02 rootwait resize\n",
    "user-data": "#cloud-config\n# nothing yet\n",
    "meta-data": "dsmode: local\ninstance_id: rpios-image\n",
}


def test_a_card_of_cloud_init_is_prepared_and_read_back(tmp_path, needed):
    """Payload, adapter, both copies of the table: mtools reads all of it, fsck.fat finds nothing."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    said = cards.done(image, *needed)
    assert said["format"] == "cloudinit"
    assert "user-data" in said["why"]
    cards.mtools_tree(image, tmp_path / "out")
    assert cards.fsck(image, size_bytes=64 << 20).returncode == 0
