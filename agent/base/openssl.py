"""The program openssl: keys, certificates and signatures on a board, without a library of 16 MB."""

import os
import subprocess
import tempfile
from pathlib import Path

from edgemeter.agent.base.errors import UnavailableError

TIMEOUT_S = 60.0


def run_openssl(*arguments: str, document: bytes = b"") -> bytes:
    """Return what openssl prints, given `document` on its standard input.

    Raises:
        UnavailableError: there is no openssl, or it fails.
    """
    completed = _completed(arguments, document)
    if completed.returncode:
        lines = completed.stderr.decode(errors="replace").strip().splitlines()
        raise UnavailableError(
            f"openssl {arguments[0]} failed ({lines[0] if lines else completed.returncode}): "
            "check the disk and the key file"
        )
    return completed.stdout


def is_signed_by(public_key: bytes, document: bytes, signature: bytes) -> bool:
    """Return whether `signature` of `document` is valid for this public key (PEM).

    The signature is ECDSA with SHA-256, in DER.

    Raises:
        UnavailableError: there is no openssl.
    """
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
        key_file, signature_file = Path(folder) / "key", Path(folder) / "signature"
        key_file.write_bytes(public_key)
        signature_file.write_bytes(signature)
        return (
            _completed(
                ("dgst", "-sha256", "-verify", str(key_file), "-signature", str(signature_file)),
                document,
            ).returncode
            == 0
        )


def certificate_facts(certificate: bytes, authority: Path) -> dict[str, str] | None:
    """Return `subject` (RFC 2253), `notAfter` and `key` (PEM) of a client's certificate (PEM).

    None if `authority` has not signed it. Its dates are not checked: a board's clock may be wrong.
    Only the authority in that file is trusted.

    Raises:
        UnavailableError: there is no openssl.
    """
    with tempfile.NamedTemporaryFile(prefix="edgemeter-") as file:
        file.write(certificate)
        file.flush()
        options = (
            "-no_check_time",
            "-no-CApath",
            "-purpose",
            "sslclient",
            "-CAfile",
            str(authority),
        )
        if _completed(("verify", *options, file.name)).returncode:
            return None
        printed = run_openssl(
            "x509",
            "-in",
            file.name,
            "-noout",
            "-subject",
            "-nameopt",
            "RFC2253",
            "-enddate",
            "-pubkey",
        ).decode()
    head, mark, tail = printed.partition("-----BEGIN PUBLIC KEY-----")
    key, end, after = tail.partition("-----END PUBLIC KEY-----\n")
    facts = dict(line.split("=", 1) for line in (head + after).splitlines() if "=" in line)
    return {**{name: value.strip() for name, value in facts.items()}, "key": mark + key + end}


def _completed(
    arguments: tuple[str, ...], document: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    # Neither the file nor the folder of the system's authorities exists.
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "SSL_CERT_FILE": os.devnull,
        "SSL_CERT_DIR": os.devnull,
    }
    try:
        return subprocess.run(
            ["openssl", *arguments],
            input=document,
            capture_output=True,
            timeout=TIMEOUT_S,
            env=environment,
            check=False,
        )
    except FileNotFoundError as error:
        raise UnavailableError(
            "openssl is not installed, and the device needs it for keys and signatures: apt-get "
            "install openssl"
        ) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(
            f"openssl {arguments[0]} does not run ({error}): try again"
        ) from error
