"""A seal: an in-toto Statement over a campaign's manifest, signed in a DSSE envelope (docs/integrity.md).

The subjects are every file of the manifest and the manifest itself, so that a seal says which bytes its signer saw;
the predicate says what they came to. The library makes and checks signatures; what is signed is built here.
"""

import hashlib
import json
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import Error, VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from harness.errors import EvidenceError
from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.schema import Model
from harness.evidence.store import MANIFEST

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "b70-bench:campaign-seal/v1"
"""A name and no address: what it means stands in docs/integrity.md"""
PAYLOAD = "application/vnd.in-toto+json"
MAX_SEAL = 16 * 1024 * 1024
"""Bytes; a manifest has at most some thousand files"""


class Subject(Model):
    """One file, by its relative POSIX name."""

    name: str
    digest: dict[str, str]
    """``{"sha256": hexadecimal}``"""


class Predicate(Model):
    """What the sealed files came to when they were verified."""

    campaign_id: str
    kind: str
    status: str
    conclusion: str
    simulated: bool
    withheld: bool
    started_at: str
    """UTC"""
    ended_at: str | None
    plan_sha256: str
    tool: str
    """name and version of what recorded it"""
    sealed_by: str
    """name and version of what verified and sealed it"""
    sealed_at: str
    """UTC, by the clock of who sealed it"""


class Statement(BaseModel):
    """An in-toto Statement v1."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    type: str = Field(STATEMENT, alias="_type")
    subject: list[Subject]
    predicate_type: str = Field(PREDICATE, alias="predicateType")
    predicate: Predicate


def subjects(manifest: bytes) -> list[Subject]:
    """The files of a manifest and the manifest itself. Raises EvidenceError."""
    try:
        files = json.loads(manifest)["files"]
        found = {name: str(entry["sha256"]) for name, entry in files.items()}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise EvidenceError(f"{MANIFEST} is no manifest, so there is nothing to seal; get the original file") from None
    found[MANIFEST] = hashlib.sha256(manifest).hexdigest()
    return [Subject(name=name, digest={"sha256": digest}) for name, digest in sorted(found.items())]


def build_statement(manifest: bytes, evidence: AnyEvidence, *, sealed_by: str, sealed_at: str) -> bytes:
    """The Statement of a campaign that was just verified, as the bytes to sign. Pure. Raises EvidenceError."""
    start = evidence.start
    predicate = Predicate(
        campaign_id=evidence.campaign_id,
        kind=evidence.kind,
        status=evidence.status,
        conclusion=evidence.conclusion,
        simulated=evidence.simulated,
        withheld=evidence.withheld,
        started_at=evidence.started_at,
        ended_at=evidence.ended_at,
        plan_sha256=start.plan_sha256,
        tool=f"b70-bench {start.tool.version}",
        sealed_by=sealed_by,
        sealed_at=sealed_at,
    )
    statement = Statement(subject=subjects(manifest), predicate=predicate)
    return json.dumps(statement.model_dump(mode="json", by_alias=True), ensure_ascii=False, sort_keys=True).encode()


def seal(statement: bytes, signer: CryptoSigner, public_pem: str) -> dict[str, Any]:
    """The signed envelope. Its public key stands beside the signature: a key id is the hash of its key."""
    envelope = Envelope(statement, PAYLOAD, {})
    envelope.sign(signer).unrecognized_fields["publicKey"] = public_pem
    return envelope.to_dict()


def key_of(raw: Any, key_id: str) -> SSlibKey:
    """The public key that stands beside a signature, if it is the one of that id. Raises EvidenceError."""
    signatures = raw.get("signatures") if isinstance(raw, dict) else None
    for signature in signatures if isinstance(signatures, list) else []:
        if not isinstance(signature, dict) or signature.get("keyid") != key_id:
            continue
        try:
            key = SSlibKey.from_crypto(load_pem_public_key(str(signature.get("publicKey")).encode()))
        except (Error, ValueError, TypeError, UnsupportedAlgorithm):
            raise EvidenceError(f"the seal holds no key for key id {key_id[:16]}…; give the key's file") from None
        if key.keyid != key_id:
            raise EvidenceError(f"the key in the seal isn't the one of key id {key_id[:16]}…; give the key's file")
        return key
    raise EvidenceError(f"the seal isn't signed by key {key_id[:16]}…, but by {signers(raw)}")


def signers(raw: Any) -> str:
    """The key ids that an envelope names, shortened, for a sentence."""
    found = raw.get("signatures") if isinstance(raw, dict) else None
    ids = [str(item.get("keyid"))[:16] for item in found if isinstance(item, dict)] if isinstance(found, list) else []
    return ", ".join(f"{name}…" for name in ids[:3]) or "nobody"


def check(raw: Any, key: SSlibKey, manifest: bytes, evidence: AnyEvidence) -> Predicate:
    """What a seal says, if it is whole, by that key and of these files. Raises EvidenceError in one sentence."""
    try:
        envelope = Envelope.from_dict(json.loads(json.dumps(raw)))
    except (Error, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise EvidenceError("the seal is no DSSE envelope; get the original file") from None
    if envelope.payload_type != PAYLOAD:  # before it is used: it may be no text at all
        raise EvidenceError(f"the seal is of type {str(envelope.payload_type)[:60]!r}, not of {PAYLOAD}")
    if key.keyid not in envelope.signatures:
        raise EvidenceError(f"the seal isn't signed by key {key.keyid[:16]}…, but by {signers(raw)}")
    try:
        envelope.verify([key], 1)
    except (VerificationError, Error, ValueError, TypeError):
        raise EvidenceError(
            f"the signature of key {key.keyid[:16]}… doesn't fit the statement: the seal was edited, get the original"
        ) from None
    return said(envelope.payload_type, envelope.payload, manifest, evidence)


def said(payload_type: str, payload: bytes, manifest: bytes, evidence: AnyEvidence) -> Predicate:
    """What a statement says whose signature was checked, if it is of these files. Raises EvidenceError."""
    if payload_type != PAYLOAD:
        raise EvidenceError(f"the seal is of type {str(payload_type)[:60]!r}, not of {PAYLOAD}")
    try:
        statement = Statement.model_validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise EvidenceError(
            f"the sealed statement is none of this version ({'.'.join(map(str, first['loc']))}: {first['msg'].lower()})"
        ) from None
    if (statement.type, statement.predicate_type) != (STATEMENT, PREDICATE):
        raise EvidenceError(
            f"the sealed statement is of type {statement.predicate_type[:80]!r}, this reads {PREDICATE}"
        )
    _compare(statement, manifest, evidence)
    return statement.predicate


def _compare(statement: Statement, manifest: bytes, evidence: AnyEvidence) -> None:
    sealed = {item.name: item.digest.get("sha256") for item in statement.subject}
    present = {item.name: item.digest["sha256"] for item in subjects(manifest)}
    # The manifest last: it differs with every file, and says less than the file's own name.
    for name in sorted({*present, *sealed}, key=lambda name: (name == MANIFEST, name)):
        if sealed.get(name) != present.get(name):
            what = "isn't sealed" if name not in sealed else "is sealed and gone" if name not in present else "differs"
            raise EvidenceError(f"{name} {what}: the seal is of other files than the manifest lists")
    predicate = statement.predicate
    for name, value in (
        ("campaign_id", evidence.campaign_id),
        ("status", evidence.status),
        ("conclusion", evidence.conclusion),
        ("plan_sha256", evidence.start.plan_sha256),
    ):
        if getattr(predicate, name) != value:
            raise EvidenceError(
                f"the seal says {name} {getattr(predicate, name)[:80]!r}, the files give {value[:80]!r}"
            )
