"""Seals by an identity of the web: Sigstore, an optional extra that needs a network to sign.

Its bundle holds the same DSSE envelope as a seal by key, with a certificate of minutes in place of a key of years and
an entry of a public log in place of the signer's word for the time.
"""

from typing import Any

from harness.errors import BenchError, EvidenceError, UsageError

EXTRA = "the extra that signs without a key isn't installed; pip install 'b70-bench[sigstore]', or sign with --key FILE"
OFFLINE = "can't be reached; sign where there is a network, or with --key FILE"


def _library() -> Any:
    try:
        import sigstore.dsse
        import sigstore.errors
        import sigstore.models
        import sigstore.oidc
        import sigstore.sign
        import sigstore.verify
    except ImportError:
        raise UsageError(EXTRA) from None
    return sigstore


def seal_keyless(statement: bytes) -> bytes:
    """A Sigstore bundle over the statement, signed by the identity of this process or of the user's browser.

    Raises UsageError without the extra, BenchError without the network or an identity.
    """
    library = _library()
    failed = (library.errors.Error, library.oidc.IdentityError, OSError, ValueError)
    step = "Sigstore's root of trust"
    try:
        trust = library.models.ClientTrustConfig.production()
        step = "an identity provider"
        token = library.oidc.detect_credential()
        issuer = library.oidc.Issuer(trust.signing_config.get_oidc_url())
        identity = library.oidc.IdentityToken(token) if token is not None else issuer.identity_token()
        step = "Sigstore's certificate authority or its log"
        with library.sign.SigningContext.from_trust_config(trust).signer(identity) as signer:
            bundle = signer.sign_dsse(library.dsse.Statement(statement))
        return str(bundle.to_json()).encode()
    except failed as error:
        raise BenchError(f"{step} {OFFLINE} ({type(error).__name__})") from None


def open_keyless(raw: bytes, identity: str, issuer: str) -> tuple[str, bytes]:
    """(payload type, payload) of a bundle that this identity signed. Raises UsageError, BenchError, EvidenceError."""
    library = _library()
    from sigstore.verify.policy import Identity

    try:
        verifier = library.verify.Verifier.production()
    except (library.errors.Error, OSError, ValueError) as error:
        raise BenchError(
            f"Sigstore's root of trust can't be reached ({type(error).__name__}); verify where there is a network"
        ) from None
    try:
        bundle = library.models.Bundle.from_json(raw)
        kind, payload = verifier.verify_dsse(bundle, Identity(identity=identity, issuer=issuer))
    except (library.errors.Error, library.models.InvalidBundle, ValueError, TypeError, LookupError) as error:
        raise EvidenceError(
            f"the seal isn't one that {identity[:80]} signed, by {issuer[:80]} ({type(error).__name__})"
        ) from None
    return str(kind), bytes(payload)
