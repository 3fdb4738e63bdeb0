"""`edgemeter models fetch`: what lies in the cache afterwards, and what is said when it cannot."""

import hashlib
import io
import json
import signal
import subprocess
import sys
import tarfile
import zipfile

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.contract import model_card
from edgemeter.models.catalogue import catalogue as catalogue_catalogue
from tests.fixtures.catalogue_factory import card_beside, content, make_entry, write_catalogue
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.rows import table_row

BODY = content(400_000)
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def catalogue(home):
    return lambda *those: write_catalogue(home / "catalogue.toml", *those)


def file_of(home, name):
    return home / "models" / name / f"{name}.onnx"


def test_a_fetched_model_has_its_card_beside_it(server, home, invoke, catalogue):
    """A fetched model has a card with all that `edgemeter run --model` needs.

    It states task, decoder, input, labels, hash and licence.
    """
    catalogue(make_entry("mine", server.put("/mine.onnx", BODY), BODY))
    result = invoke("fetch", "mine")
    path = file_of(home, "mine")
    assert result.stdout == f"{path}\n"
    assert path.read_bytes() == BODY
    about = card_beside(path)
    assert about.sha256 == SHA256
    assert (about.family, about.licence) == ("yolox", "Apache-2.0")
    assert about.input.height == 8
    assert (about.output.labels[0], len(about.output.labels)) == ("person", 80)
    assert about.source == server.address + "/mine.onnx"
    assert (about.accuracy, about.made) == ({}, {"entry": "mine"})
    assert not [*path.parent.glob("*part*"), *path.parent.glob(".*part*")]


def test_a_model_that_is_here_is_not_fetched_again(server, invoke, catalogue):
    """A fetched model is not fetched again, and its card keeps its owner's corrections."""
    catalogue(make_entry("mine", server.put("/mine.onnx", BODY), BODY))
    first = json.loads(invoke("fetch", "mine", "--format", "json").stdout)["fetched"][0]
    with open(first["path"] + ".toml", "a") as text:  # noqa: PTH123
        text.write("# corrected\n")
    second = json.loads(invoke("fetch", "mine", "--format", "json").stdout)["fetched"][0]
    assert (first["is_new"], second["is_new"]) == (True, False)
    assert len(server.requests) == 1
    with open(first["path"] + ".toml") as text:  # noqa: PTH123
        assert text.read().endswith("# corrected\n")


def test_a_changed_cached_file_is_found_and_fetched_again(server, home, invoke, catalogue):
    """One flipped bit makes `verify` fail, and `fetch` downloads the file again."""
    catalogue(make_entry("mine", server.put("/mine.onnx", BODY), BODY))
    invoke("fetch", "mine")
    path = file_of(home, "mine")
    path.write_bytes(bytes([BODY[0] ^ 1]) + BODY[1:])
    result = invoke("verify", "mine")
    assert (result.exit_code, "changed" in result.stdout, SHA256 in result.stderr) == (
        1,
        True,
        True,
    )
    invoke("fetch", "mine")
    assert path.read_bytes() == BODY
    assert invoke("verify").exit_code == 0


def test_a_wrong_hash_is_never_kept(server, home, invoke, catalogue):
    """A file of the same length with another hash is not kept; the error shows both hashes."""
    catalogue(make_entry("mine", server.put("/mine.onnx", content(400_000, seed=1)), BODY))
    with pytest.raises(UnavailableError, match=f"sha256 (?!{SHA256}).* {SHA256}"):
        invoke("fetch", "mine")
    assert not file_of(home, "mine").exists()
    assert not [*(home / "models" / "mine").glob(".*part*")]


def test_a_cut_download_is_continued_once(server, home, invoke, catalogue):
    """A cut download is continued at once from where it broke, where the server can do that.

    After a second cut, the part that has arrived is kept for the next fetch.
    """
    for number, (has_ranges, ranges) in enumerate(
        ((True, [None, "bytes=100000-"]), (False, [None, "bytes=100000-"]))
    ):
        name = f"m{number}"
        catalogue(
            make_entry(
                name, server.put(f"/{name}", BODY, cuts=[100_000], has_ranges=has_ranges), BODY
            )
        )
        with table_row(has_ranges):
            invoke("fetch", name)
            assert file_of(home, name).read_bytes() == BODY
            assert [headers.get("Range") for headers in server.asked(f"/{name}")] == ranges
    catalogue(make_entry("mine", server.put("/mine", BODY, cuts=[100_000, 50_000]), BODY))
    with pytest.raises(
        TransientError, match=r"cut after 150000 of 400000 bytes; check the network and fetch again"
    ):
        invoke("fetch", "mine")
    invoke("fetch", "mine")
    assert server.asked("/mine")[-1]["Range"] == "bytes=150000-"
    assert file_of(home, "mine").read_bytes() == BODY


def test_what_cannot_be_fetched_is_one_line(server, home, invoke, catalogue):
    """An absent file, another size or no network is one line, and leaves nothing like a model."""
    catalogue(
        make_entry("absent", server.address + "/absent", BODY),
        make_entry("short", server.put("/short", BODY[:-1]), BODY),
        make_entry("away", server.put("/away", BODY), BODY),
    )
    no_network = OSError(-2, "Name or service not known")
    for name, trouble, kind, why in (
        ("absent", None, UnavailableError, "cannot fetch absent: .*404"),
        ("short", None, UnavailableError, "399999 bytes, 400000 are expected"),
        ("away", no_network, TransientError, "Name or service not known; check the network"),
    ):
        server.trouble = trouble
        with table_row(name), pytest.raises(kind, match=why) as error:
            invoke("fetch", name)
        assert "\n" not in str(error.value)
        assert not file_of(home, name).exists()


def test_without_a_hash_consent_is_asked_and_the_hash_kept(server, home, invoke, catalogue):
    """A file without a known hash needs consent; then its hash is kept.

    Another file under the same name is refused, also after the first is gone.
    """
    catalogue(make_entry("mine", server.put("/mine.onnx", BODY)))
    with pytest.raises(ConfigError, match="--accept-unverified"):
        invoke("fetch", "mine")
    assert server.requests == []
    result = invoke("fetch", "mine", "--accept-unverified")
    assert SHA256 in result.stderr
    assert catalogue_catalogue.find_entry("mine").sha256 == SHA256
    # The first download has no hash to check.
    (line,) = [line for line in invoke("list").stdout.splitlines() if line.startswith("mine ")]
    assert "unverified" in line
    assert invoke("verify", "mine").exit_code == 0
    invoke("cache", "clear", "mine")
    server.put("/mine.onnx", content(400_000, seed=1))
    with pytest.raises(UnavailableError, match=SHA256):
        invoke("fetch", "mine", "--accept-unverified")
    assert not file_of(home, "mine").exists()


def test_a_language_model_has_no_card_and_one_that_fails_stops_no_other(
    server, home, invoke, catalogue
):
    """A language model needs no card, because its file describes itself.

    It is verified and found again as any other. One that fails stops no other.
    """
    changes = {"task": "generation", "input": None, "labels": None, "file": "mine.gguf"}
    catalogue(
        make_entry("mine", server.put("/mine.gguf", BODY), BODY, **changes),
        make_entry("gone", server.address + "/gone.onnx", BODY),
    )
    path = home / "models" / "mine" / "mine.gguf"
    with pytest.raises(UnavailableError, match="cannot fetch gone"):
        invoke("fetch", "gone", "mine")
    assert not model_card.card_path(path).exists()
    assert invoke("verify", "mine").exit_code == 0
    assert invoke("fetch", "mine").stdout == f"{path}\n"
    assert len(server.requests) == 2


def packed(kind, names):
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, body in names.items():
                archive.writestr(name, body)
    else:
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name, body in names.items():
                info = tarfile.TarInfo(name)
                info.size = len(body)
                archive.addfile(info, io.BytesIO(body))
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "member", "inside"),
    [("zip", "detect.tflite", "detect.tflite"), ("tgz", "a/m.onnx", "./a/m.onnx")],
)
def test_a_model_is_taken_out_of_its_archive(server, home, invoke, catalogue, kind, member, inside):
    """Only the model is taken out of an archive, wherever its members' names point."""
    archive = packed(kind, {"../../escaped": b"x", inside: BODY, "labels.txt": b"y"})
    catalogue(make_entry("mine", server.put(f"/m.{kind}", archive), BODY, member=member))
    invoke("fetch", "mine")
    assert file_of(home, "mine").read_bytes() == BODY
    visible = {
        path.name for path in (home / "models" / "mine").iterdir() if not path.name.startswith(".")
    }
    assert visible == {"mine.onnx", "mine.onnx.toml"}
    assert not list(home.rglob("escaped"))


def test_a_bad_archive_is_reported_and_not_kept(server, home, invoke, catalogue):
    """A wrong, truncated or oversized archive, or a page instead of a file, is not kept."""
    for number, (archive, why) in enumerate(
        (
            (
                packed("zip", {"other": BODY}),
                r"has no file 'm.onnx' of at most 400000 bytes, but other \(400000 bytes\)",
            ),
            (packed("zip", {"m.onnx": BODY})[:-200], "cannot be read"),
            (
                packed("zip", {"m.onnx": b"0" * 1_000_000}),
                r"at most 400000 bytes, but m.onnx \(1000000 bytes\)",
            ),
            (packed("zip", {"m.onnx": content(400_000, seed=1)}), "the catalogue says"),
            (packed("tgz", {"m.onnx": BODY})[:20] + content(1000), "cannot be read"),
            (b"", "cannot be read"),
        )
    ):
        catalogue(make_entry("mine", server.put("/m.zip", archive), BODY, member="m.onnx"))
        with table_row(number, why):
            with pytest.raises(UnavailableError, match=why):
                invoke("fetch", "mine")
            assert not file_of(home, "mine").exists()
            assert (
                sum(
                    path.stat().st_size
                    for path in home.rglob("*")
                    if path.is_file() and path.name != "catalogue.toml"
                )
                == 0
            )


def start(*arguments, under=()):
    """Start the real command, under another one that limits it."""
    command = [
        *under,
        sys.executable,
        "-m",
        "edgemeter.agent.cli.main",
        "models",
        *map(str, arguments),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.services
def test_a_killed_fetch_goes_on_where_it_was_and_two_fetch_the_same_once(
    listening, home, catalogue
):
    """A fetch that is killed is continued by the next one, and two fetch a file only once.

    After SIGKILL in the middle the next two ask for the rest together; one fetches it, and the file
    is whole.
    """
    catalogue(make_entry("mine", listening.put("/mine.onnx", BODY, drip_s=0.05), BODY))
    process = start("fetch", "mine")
    part = home / "models" / "mine" / ".mine.onnx.part"
    assert wait_until(lambda: part.exists() and part.stat().st_size > 50_000)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    arrived = part.stat().st_size
    assert 50_000 < arrived < len(BODY)
    assert not file_of(home, "mine").exists()
    both = [start("fetch", "mine"), start("fetch", "mine")]
    assert [second.communicate()[0] for second in both] == [f"{file_of(home, 'mine')}\n"] * 2
    assert [headers.get("Range") for headers in listening.asked("/mine.onnx")] == [
        None,
        f"bytes={arrived}-",
    ]
    assert file_of(home, "mine").read_bytes() == BODY


@pytest.mark.needs("prlimit")
def test_a_full_disk_is_one_line_and_keeps_what_has_arrived(listening, home, invoke, catalogue):
    """A full disk is one line, and the part that has arrived is kept for the next fetch.

    The system refuses to write beyond 100,000 bytes; with room again the rest follows.
    """
    catalogue(make_entry("mine", listening.put("/mine.onnx", BODY), BODY))
    limited = start("fetch", "mine", under=("prlimit", "--fsize=100000"))
    _, errors = limited.communicate()
    assert (limited.returncode, errors.count("\n")) == (1, 1)
    assert "cannot write to the cache" in errors
    assert "make room" in errors
    arrived = (home / "models" / "mine" / ".mine.onnx.part").stat().st_size
    assert 0 < arrived <= 100_000
    invoke("fetch", "mine")
    assert listening.asked("/mine.onnx")[-1]["Range"] == f"bytes={arrived}-"
    assert file_of(home, "mine").read_bytes() == BODY
