"""Key files of seals: PEM, made new with mode 0600, and read with a sentence for what is none."""

import contextlib
import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.exceptions import Error
from securesystemslib.signer import CryptoSigner, SSlibKey

from harness.errors import BenchError, UsageError
from harness.strangers import read_given

MAX_KEY = 64 * 1024
UNREADABLE = (Error, ValueError, TypeError, AttributeError, UnsupportedAlgorithm)


def new_key(path: Path) -> tuple[Path, SSlibKey]:
    """A new Ed25519 key at ``path`` (mode 0600) and its public half beside it, which is returned. Never overwrites."""
    public = path.with_name(f"{path.name}.pub")
    key = Ed25519PrivateKey.generate()
    shown = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for place in (path, public):
        if os.path.lexists(place):
            raise UsageError(f"{place.name} exists already; choose another --new-key, a key is never overwritten")
    _create(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    try:
        _create(public, shown, 0o644)
    except BenchError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    return public, SSlibKey.from_crypto(key.public_key())


def _create(path: Path, data: bytes, mode: int) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(handle, "wb") as file:  # noqa: PTH123
            os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
    except FileExistsError:
        raise UsageError(f"{path.name} exists already; choose another --new-key, a key is never overwritten") from None
    except OSError as error:
        raise UsageError(f"{path.name} can't be written ({error.strerror}); choose another --new-key") from None


def load_signer(path: Path) -> tuple[CryptoSigner, str]:
    """The private key to sign with, and its public half in PEM. Raises UsageError."""
    data = _read(path)
    try:
        key = load_pem_private_key(data, None)
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return CryptoSigner(key), public.decode()
    except UNREADABLE as error:
        # The library's word for a key that has a password.
        why = "has a password: take it off" if isinstance(error, TypeError) else "is no private key that can sign"
        raise UsageError(f"{path.name} {why}, or make another with bench seal --new-key FILE") from None


def load_public(path: Path) -> SSlibKey:
    """The public key of a PEM file; of a private one its public half. Raises UsageError."""
    data = _read(path)
    try:
        if b"PRIVATE KEY-----" in data:
            return SSlibKey.from_crypto(load_pem_private_key(data, None).public_key())
        return SSlibKey.from_crypto(load_pem_public_key(data))
    except UNREADABLE:
        raise UsageError(f"{path.name} is no public key in PEM; give the .pub file of who sealed it") from None


def _read(path: Path) -> bytes:
    return read_given(path, MAX_KEY, "key", "give a PEM file")
