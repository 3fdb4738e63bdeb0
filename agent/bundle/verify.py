"""Verifies bundles: integrity, signature, and every value recomputed from the raw samples."""

from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.bundle import signature
from edgemeter.agent.bundle.archive import RunBundle, read_bundle
from edgemeter.agent.bundle.recompute import FigureDifference, recompute


class BundleSignature(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a bundle's signature.

    It is `unchecked` without the library; `expected` is null if no key was given.
    """

    state: Literal["unsigned", "signed", "wrong", "unchecked"]
    fingerprint: str | None = None
    expected: bool | None = None
    detail: str | None = None


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one bundle; `checked` counts the recomputed values by part of the record.

    A damaged bundle has only an `error`.
    """

    file: str
    state: Literal["same", "differs", "damaged"]
    error: str | None = None
    record: str | None = None
    device: str | None = None
    model: str | None = None
    written_by: str | None = None
    checked: dict[str, int] = {}
    differences: tuple[FigureDifference, ...] = ()
    signature: BundleSignature | None = None

    @property
    def holds(self) -> bool:
        """Return whether the bundle is undamaged and no value differs.

        Its signature must be absent or valid.
        """
        signed = self.signature
        return self.state == "same" and (
            signed is None or (signed.state != "wrong" and signed.expected is not False)
        )


def verify(path: Path, expected: str | None = None) -> Verification:
    """Verify the bundle in a file; `expected` is the fingerprint of the required key."""
    try:
        bundle = read_bundle(path)
        checked, differences = recompute(bundle.record)
    except ConfigError as error:
        return Verification(file=str(path), state="damaged", error=" ".join(str(error).split()))
    return Verification(
        file=str(path),
        state="differs" if differences else "same",
        record=bundle.record.id,
        device=bundle.record.device,
        model=bundle.record.model.name,
        written_by=bundle.manifest.written_by,
        checked=checked,
        differences=differences,
        signature=_signature(bundle, expected),
    )


def _signature(bundle: RunBundle, expected: str | None) -> BundleSignature:
    missing = None if expected is None else False
    if bundle.signature is None and bundle.signer_pem is None:
        return BundleSignature(state="unsigned", expected=missing)
    if bundle.signature is None or bundle.signer_pem is None:
        return BundleSignature(
            state="wrong",
            detail="the bundle contains a signature without a key, or a key without a signature",
        )
    try:
        fingerprint = signature.check_signature(
            bundle.manifest_text, bundle.signature, bundle.signer_pem
        )
    except UnavailableError as error:
        return BundleSignature(state="unchecked", expected=missing, detail=str(error))
    except signature.WrongSignatureError as error:
        return BundleSignature(state="wrong", detail=str(error))
    return BundleSignature(
        state="signed",
        fingerprint=fingerprint,
        expected=None if expected is None else fingerprint == expected,
    )
