"""Passwords as mosquitto's password file holds them: salted, PBKDF2 with SHA-512.

Source: mosquitto 2.0, `mosquitto_passwd`: `$7$<iterations>$<salt, base64>$<hash, base64>`; tokens are 256 random bits, so that many
iterations as mosquitto_passwd takes are enough.
"""

import hashlib
import os
from base64 import b64encode

ITERATIONS = 101
SALT_BYTES = 12


def hashed(password: str, salt: bytes | None = None) -> str:
    """Return `password` as the file holds it."""
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    return f"$7${ITERATIONS}${b64encode(salt).decode()}${b64encode(digest).decode()}"
