"""Facts about the file: written the same every time, read without trust."""

import random
import struct
import zipfile

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.bundle import archive
from edgemeter.agent.bundle.archive import read_bundle
from edgemeter.agent.bundle.verify import verify
from edgemeter.agent.bundle.write import check_folder
from edgemeter.agent.bundle.write import write_bundle as write_write_bundle
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract import samples
from tests.fixtures.bundle_factory import make_sound_record, rezip, write_bundle, zip_of
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import in_folders, table_row


def test_a_record_comes_back_as_it_was(tmp_path):
    """Every field and every raw sample is the same after writing and reading a bundle."""
    record = make_sound_record()
    back = read_bundle(write_bundle(tmp_path, record)).record
    assert msgspec.structs.replace(back, samples=()) == msgspec.structs.replace(record, samples=())
    assert [
        (sample.name, sample.unit, samples.unpack(sample).tolist()) for sample in back.samples
    ] == [(sample.name, sample.unit, samples.unpack(sample).tolist()) for sample in record.samples]


def test_the_same_run_gives_the_same_bytes(tmp_path):
    """A bundle does not depend on when and where it was written."""
    record = make_sound_record()
    folder, other = tmp_path / "a", tmp_path / "b"
    folder.mkdir()
    other.mkdir()
    first = write_bundle(folder, record)
    assert first.read_bytes() == write_bundle(other, record).read_bytes()
    assert first.name == f"{record.id}.edgemeter"
    assert [path.name for path in folder.iterdir()] == [first.name]


def test_any_zip_program_can_open_it(tmp_path):
    """The raw samples are plain numbers, and the record holds none of them."""
    record = make_sound_record()
    with zipfile.ZipFile(write_bundle(tmp_path, record)) as opened:
        assert opened.testzip() is None
        latency = struct.unpack(f"<{record.latency.count}I", opened.read("samples/latency.u4"))
        assert '"samples"' not in opened.read("record.json").decode().split('"provenance"')[1]
    assert sum(latency) / len(latency) / 1e6 == pytest.approx(record.latency.mean_ms)


def test_series_of_one_name_get_files_of_their_own(tmp_path):
    """Names that a file cannot have do not collide.

    Neither do names that differ only in characters that a file name cannot have.
    """
    series = tuple(
        contract_record.Series(
            name=name,
            unit="ns",
            dtype="<u4",
            count=0,
            data=samples.pack(name, "ns", samples.np.zeros(0, "i8")).data,
        )
        for name in ("a b", "a/b", "a b", "../x")
    )
    back = read_bundle(write_write_bundle(tmp_path, make_record(samples=series))).record
    assert [sample.name for sample in back.samples] == ["a b", "a/b", "a b", "../x"]


def _raw(files):
    return lambda path: path.write_bytes(archive.pack(files(archive.unpack(path))))


def _with(name, content=b""):
    return _raw(lambda files: [*files.items(), (name, content)])


def _without(name):
    return _raw(
        lambda files: [(other, content) for other, content in files.items() if other != name]
    )


def _changed(name, change, *, listed=True):
    return lambda path: rezip(
        path, lambda files: files.update({name: change(files[name])}), listed=listed
    )


def _flag(path):
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        offset_of_header = content.index(signature)
        content[offset_of_header + offset] |= 1
    path.write_bytes(content)


def _lie(path):
    """Make the first file's directory entry claim one byte less than it holds."""
    content = bytearray(path.read_bytes())
    start = content.index(b"PK\x01\x02")
    (size,) = struct.unpack_from("<I", content, start + 24)
    struct.pack_into("<I", content, start + 24, size - 1)
    path.write_bytes(content)


def _junk(where):
    """Write the bundle as `where(content, start of its directory)` returns it."""

    def damage(path):
        content = path.read_bytes()
        (start,) = struct.unpack_from("<I", content, len(content) - 6)
        path.write_bytes(where(content, start))

    return damage


def _gap(content, start):
    """Return the zip with bytes between its members and its directory."""
    return (
        content[:start] + b"junk" + content[start:-6] + struct.pack("<I", start + 4) + content[-2:]
    )


def _other_header(path):
    """Give the first file another name in its local header.

    A program that reads from the beginning goes by that header.
    """
    content = path.read_bytes()
    path.write_bytes(content.replace(b"manifest.json", b"manifest.jsoN", 1))


def _twice(path):
    """Hold two files of one name: a program may show the first or the last."""
    path.write_bytes(
        zip_of([*archive.unpack(path).items(), ("record.json", b"{}")], zipfile.ZIP_STORED)
    )


def _of_another_writer(path):
    path.write_bytes(zip_of([*archive.unpack(path).items()]))


def _bomb(path):
    path.write_bytes(
        zip_of([*archive.unpack(path).items(), ("samples/more.u4", bytes(200_000_000))])
    )


def _counted_twice(path):
    """Let two directory entries share the bytes of one member.

    An overlapping zip bomb does that with thousands.
    """
    content = path.read_bytes()
    (start,) = struct.unpack_from("<I", content, len(content) - 6)
    directory = content[start:-22]
    entries, size = (
        struct.pack("<H", struct.unpack_from("<H", content, len(content) - 12)[0] * 40),
        len(directory) * 40,
    )
    path.write_bytes(
        content[:start]
        + directory * 40
        + content[-22:-14]
        + entries * 2
        + struct.pack("<II", size, start)
        + b"\0\0"
    )


def _listing(change):
    """Write the bundle again with the members that `change` returns."""

    def damage(path):
        manifest = archive.decode_manifest(archive.unpack(path)["manifest.json"])
        text = archive.encode_manifest(
            msgspec.structs.replace(manifest, members=change(manifest.members))
        )
        rezip(path, lambda files: files.update({"manifest.json": text}), listed=False)

    return damage


def _listed_twice(members):
    return (msgspec.structs.replace(members[0], sha256="0" * 64), *members)


def _elsewhere(members):
    return (*members, msgspec.structs.replace(members[0], file="samples/../../evil"))


OTHER_ZIP = "is not the exact zip that edgemeter writes"
DAMAGE = {
    "no zip": (lambda path: path.write_bytes(b"x" * 1000), "cannot read the bundle"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "cannot read the bundle"),
    "twice": (_twice, OTHER_ZIP),
    "upwards": (_with("../evil"), "../evil is not in the manifest"),
    "absolute": (_with("/etc/passwd"), "is not in the manifest"),
    "a listed file that leads elsewhere": (
        _listing(_elsewhere),
        "manifest.json is not the manifest of a bundle",
    ),
    "bomb": (_bomb, OTHER_ZIP),
    "bytes counted many times": (_counted_twice, OTHER_ZIP),
    "compressed": (_of_another_writer, OTHER_ZIP),
    "many": (
        _raw(lambda files: [*files.items(), *((f"samples/{n}", b"") for n in range(300))]),
        "is not in the manifest",
    ),
    "encrypted": (_flag, "encrypted"),
    "lying": (_lie, "Bad CRC-32"),
    "bytes before the zip": (_junk(lambda content, _: b"junk" + content), OTHER_ZIP),
    "another zip before it": (
        _junk(lambda content, _: zip_of([("record.json", b"{}")]) + content),
        OTHER_ZIP,
    ),
    "bytes behind the zip": (_junk(lambda content, _: content + b"junk"), OTHER_ZIP),
    "a comment": (_junk(lambda content, _: content[:-2] + b"\x04\0junk"), OTHER_ZIP),
    "a gap": (_junk(_gap), OTHER_ZIP),
    "another name in a header": (_other_header, "differ"),
    "a key twice in the record": (
        _changed("record.json", lambda text: b'{"device": "other", ' + text.lstrip()[1:]),
        "the name 'device' appears twice",
    ),
    "a key twice deep in the record": (
        _changed("record.json", lambda text: text.replace(b'"task":', b'"task":"x","task":', 1)),
        "'task' appears twice",
    ),
    "a key twice in the manifest": (
        _changed(
            "manifest.json",
            lambda text: text.replace(b'"record":', b'"record": "x", "record":', 1),
            listed=False,
        ),
        "the name 'record' appears twice",
    ),
    "a file listed twice": (_listing(_listed_twice), "record.json is listed twice"),
    "samples in the record itself": (
        _changed("record.json", lambda text: text.rstrip()[:-1] + b', "samples": [{}]}'),
        "samples that the manifest does not list",
    ),
    "no manifest": (_without("manifest.json"), "manifest.json is not the manifest"),
    "no record": (_without("record.json"), "record.json is missing"),
    "a series less": (_without("samples/latency.u4"), "samples/latency.u4 is missing"),
    "more than listed": (_with("samples/more.u4"), "samples/more.u4 is not in the manifest"),
    "changed": (
        _changed("samples/latency.u4", lambda content: content[:-1] + b"x", listed=False),
        "does not match the manifest",
    ),
    "another record": (
        _changed("record.json", lambda text: text.replace(b'"id":"', b'"id":"x')),
        "the manifest states",
    ),
    "a part of a value": (
        _changed("samples/latency.u4", lambda content: content[:-1]),
        "does not contain a whole number of <u4 values",
    ),
    "no record in it": (_changed("record.json", lambda _: b"[]"), "not a run record"),
    "from the future": (
        _changed(
            "manifest.json",
            lambda text: text.replace(b'"version": 1', b'"version": 2'),
            listed=False,
        ),
        "update edgemeter here",
    ),
    "deep": (
        _changed("manifest.json", lambda _: b"[" * 100_000, listed=False),
        "manifest.json is not the manifest of a bundle",
    ),
}


def test_a_damaged_bundle_is_one_line(tmp_path):
    """The line states what is wrong; there is no traceback, and no memory is wasted."""
    for folder, name, (damage, message) in in_folders(tmp_path, DAMAGE.items()):
        with table_row(name):
            path = write_bundle(folder)
            damage(path)
            verification = verify(path)
            assert (verification.state, verification.holds) == ("damaged", False)
            assert message in verification.error
            assert "\n" not in verification.error


def test_what_cannot_be_opened_is_one_line(tmp_path):
    """A wrong path and a file larger than a bundle can be are each reported in one line.

    The large file is sparse and takes no room on the disk.
    """
    assert "No such file" in verify(tmp_path / "none.edgemeter").error
    path = tmp_path / "big.edgemeter"
    with path.open("wb") as file:
        file.truncate(archive.FILE_BYTES + 1)
    assert "is larger than a bundle can be" in verify(path).error


def test_flipped_bits_are_noticed_or_do_not_matter(tmp_path):
    """Each of 100 bundles has one flipped bit: it is damaged, or all its files are intact."""
    path = write_bundle(tmp_path)
    sound, files = path.read_bytes(), dict(archive.unpack(path))
    draw = random.Random(5)  # noqa: S311 - repeatable
    for _ in range(100):
        content = bytearray(sound)
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
        try:
            back = read_bundle(path)
        except ConfigError:
            continue
        assert dict(archive.unpack(path)) == files
        assert back.record.id


def test_a_folder_that_cannot_be_written_is_found_before_measuring(tmp_path):
    """A file in the place of the folder means that the option is wrong."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="another folder"):
        check_folder(tmp_path / "file")
    check_folder(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").is_dir()


def test_a_bundle_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    """If a file took the folder's place meanwhile, there is one error and no partial file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="cannot write"):
        write_write_bundle(tmp_path / "file", make_record())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
