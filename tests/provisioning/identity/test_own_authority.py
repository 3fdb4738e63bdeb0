"""A fleet's authority under a root of one's own, as step-ca or openssl signs it from a CSR (docs/fleet-hand-over.md)."""

import subprocess
from contextlib import ExitStack

import pytest

from edgemeter.agent.base.errors import EdgemeterError
from tests.provisioning.identity.lab import Lab

pytestmark = [pytest.mark.mosquitto, pytest.mark.needs("openssl"), pytest.mark.slow]
EXTENSIONS = "basicConstraints=critical,CA:true,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"


def openssl(folder, *arguments):
    """Run openssl in a folder."""
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def test_a_board_joins_and_is_revoked_under_a_root_of_ones_own(tmp_path):
    """The authority is signed from its CSR, ca.crt holds it and the root; enrolment, renewal of lists and revocation work as ever."""
    fleet = tmp_path / "lab/fleet"
    fleet.mkdir(parents=True)
    (tmp_path / "extensions").write_text(EXTENSIONS)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(tmp_path, "req", "-x509", *curve, "-keyout", "root.key", "-out", "root.crt", "-days", "9000", "-subj", "/CN=the lab's root")
    openssl(tmp_path, "req", *curve, "-keyout", str(fleet / "ca.key"), "-out", "fleet.csr", "-subj", "/CN=edgemeter fleet lab")
    signing = ["-CA", "root.crt", "-CAkey", "root.key", "-CAcreateserial", "-days", "3650", "-extfile", "extensions"]
    openssl(tmp_path, "x509", "-req", "-in", "fleet.csr", *signing, "-out", "fleet.crt")
    (fleet / "ca.crt").write_bytes((tmp_path / "fleet.crt").read_bytes() + (tmp_path / "root.crt").read_bytes())
    with ExitStack() as stack:
        lab = Lab(tmp_path / "lab", stack).start()
        board = lab.joined("pi-1", "1001")
        board.client("pi-1").close()
        lab.run("revoke", "pi-1")
        with pytest.raises(EdgemeterError):
            board.client("pi-1")
