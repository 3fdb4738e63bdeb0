"""Verifies bundles: whole, signed by whom, and every figure again from the raw samples."""

from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.bundle import recompute, signature
from edgemeter.agent.bundle.compare import Difference, Left, Same
from edgemeter.agent.bundle.read import Bundle, read
from edgemeter.agent.errors import ConfigError, UnavailableError


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a bundle's signature; `expected` is null when no key was named, `unchecked` where the library is missing."""

    state: Literal["unsigned", "signed", "wrong", "unchecked"]
    fingerprint: str | None = None
    expected: bool | None = None
    detail: str | None = None


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one bundle; `checked` is how many figures were computed again. A damaged one has an `error` and nothing else."""

    file: str
    state: Literal["same", "differs", "damaged"]
    error: str | None = None
    record: str | None = None
    device: str | None = None
    model: str | None = None
    written_by: str | None = None
    checked: int = 0
    differences: tuple[Difference, ...] = ()
    left: tuple[Left, ...] = ()
    signature: Signature | None = None

    @property
    def holds(self) -> bool:
        """Return whether the bundle is whole, its figures follow from its samples, and its signature is none or the right one."""
        signed = self.signature
        return self.state == "same" and (signed is None or (signed.state != "wrong" and signed.expected is not False))


def verify(path: Path, expected: str | None = None) -> Verification:
    """Return what came of the bundle in a file; `expected` is the fingerprint of the key that must have signed it."""
    try:
        bundle = read(path)
        findings = list(recompute.recompute(bundle.record))
    except ConfigError as error:
        return Verification(file=str(path), state="damaged", error=" ".join(str(error).split()))
    differences = tuple(one for one in findings if isinstance(one, Difference))
    return Verification(
        file=str(path),
        state="differs" if differences else "same",
        record=bundle.record.id,
        device=bundle.record.device,
        model=bundle.record.model.name,
        written_by=bundle.manifest.written_by,
        checked=sum(isinstance(one, Same | Difference) for one in findings),
        differences=differences,
        left=tuple(one for one in findings if isinstance(one, Left)),
        signature=_signature(bundle, expected),
    )


def _signature(bundle: Bundle, expected: str | None) -> Signature:
    if bundle.signature is None and bundle.signer_pem is None:
        return Signature(state="unsigned", expected=_nobody(expected))
    if bundle.signature is None or bundle.signer_pem is None:
        return Signature(state="wrong", detail="it holds a signature without a key, or a key without a signature")
    try:
        found = signature.check(bundle.manifest_text, bundle.signature, bundle.signer_pem)
    except UnavailableError as error:
        return Signature(state="unchecked", expected=_nobody(expected), detail=str(error))
    except signature.WrongSignatureError as error:
        return Signature(state="wrong", detail=str(error))
    return Signature(state="signed", fingerprint=found, expected=None if expected is None else found == expected)


def _nobody(expected: str | None) -> bool | None:
    """Return what is known of the signer where none was found: not the expected one, if there was one."""
    return None if expected is None else False
