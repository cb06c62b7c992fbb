"""``bench seal``: a signature over what a campaign's files are and came to; ``bench verify --signed-by`` checks it."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli_options import JsonOption, out_json
from harness.errors import EvidenceError, UsageError
from harness.strangers import real

if TYPE_CHECKING:
    from harness.evidence.seal import Predicate
    from harness.evidence.verify import Verification


def seal(
    directory: Annotated[Path | None, typer.Argument(help="A campaign directory that has ended.")] = None,
    key: Annotated[Path | None, typer.Option(help="Private key to sign with: Ed25519, ECDSA or RSA, PEM.")] = None,
    keyless: Annotated[
        bool, typer.Option("--keyless", help="Sign by an identity of the web through Sigstore; needs a network.")
    ] = False,
    new_key: Annotated[
        Path | None, typer.Option(help="Make a key here and its public half beside it, FILE.pub; never overwritten.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the seal goes; seal.dsse.json of the campaign by default.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Sign a campaign that verifies: an in-toto Statement over its manifest, in a DSSE envelope."""
    if new_key is not None:
        _make_key(new_key, json_=json_)
        if directory is None:
            return
        key = key or new_key
    if directory is None:
        raise UsageError("give the directory of a campaign, or --new-key FILE to make a key")
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; give the directory of a campaign")
    if (key is None) == (not keyless):
        raise UsageError("give --key FILE or --keyless; bench seal --new-key FILE makes a key")
    _seal(directory, key, out, json_=json_)


def _make_key(path: Path, *, json_: bool) -> None:
    from harness.evidence.seal_keys import new_key

    public, made = new_key(path)
    if not json_:
        typer.echo(f"{path}: a new Ed25519 key, to keep to yourself; {public}: its public half, to give away")
        typer.echo(f"key id {made.keyid}")
        typer.echo(f"next: bench seal CAMPAIGN --key {shlex.quote(str(path))}")
    else:
        out_json({"key": str(path), "public_key": str(public), "key_id": made.keyid})


def _seal(directory: Path, key: Path | None, out: Path | None, *, json_: bool) -> None:
    """With a key, or without one by Sigstore."""
    from harness import __version__
    from harness.evidence import store
    from harness.evidence.files import read_regular
    from harness.evidence.journal import now_utc
    from harness.evidence.seal import build_statement
    from harness.evidence.seal import seal as sign
    from harness.evidence.seal_keyless import seal_keyless
    from harness.evidence.seal_keys import load_signer
    from harness.publish.campaigns import open_campaign
    from harness.unwritable import OUTPUT

    home, inside = real(directory), store.KEYLESS_SEAL if key is None else store.SEAL
    if key is not None and real(key).is_relative_to(home):
        raise UsageError(f"key {key.name} lies inside the campaign, which is given away; keep it elsewhere")
    if out is not None and real(out).is_relative_to(home) and real(out) != home / inside:
        raise UsageError(f"{out} would lie inside the campaign, whose files are sealed; choose another --out")
    signing = None if key is None else load_signer(key)
    evidence = open_campaign(directory).evidence
    if evidence.ended_at is None or not (directory / store.MANIFEST).is_file():
        raise EvidenceError(f"{directory.name} has not ended, so there is nothing whole to seal; go on with --resume")
    manifest = read_regular(directory / store.MANIFEST, store.MAX_JSON)
    statement = build_statement(manifest, evidence, sealed_by=f"b70-bench {__version__}", sealed_at=now_utc())
    sealed = seal_keyless(statement) if signing is None else store.dump_json(sign(statement, *signing))
    place = directory / inside if out is None else out
    if place.exists():
        raise UsageError(
            f"{place} is there already, and a seal is never replaced; move it away, or choose another --out"
        )
    store.write_atomic(place, sealed, advice=OUTPUT)
    key_id = None if signing is None else signing[0].public_key.keyid
    if json_:
        out_json({"seal": str(place), "key_id": key_id, "status": evidence.status, "conclusion": evidence.conclusion})
        return
    typer.echo(f"{place}: signed by {'an identity of the web' if key_id is None else f'key id {key_id}'}")
    typer.echo(f"sealed: {evidence.status}, {evidence.conclusion}")
    by = "IDENTITY --issuer URL" if key_id is None else key_id
    typer.echo(f"next: bench verify {shlex.quote(str(directory))} --signed-by {by}")


def signed(
    directory: Path, seal_file: Path | None, signed_by: str, issuer: str | None, result: "Verification"
) -> "Predicate":
    """What the seal of a campaign says, when it holds. Raises EvidenceError, and UsageError for a wrong key."""
    from harness.evidence import store
    from harness.evidence.files import read_regular
    from harness.evidence.seal import MAX_SEAL, check, key_of, said
    from harness.evidence.seal_keyless import open_keyless
    from harness.evidence.seal_keys import load_public

    path = seal_file or directory / (store.SEAL if issuer is None else store.KEYLESS_SEAL)
    if issuer is None and not _is_key_id(signed_by) and not Path(signed_by).exists():
        raise UsageError(
            f"--signed-by {signed_by} is neither a file nor a key id of 64 digits; an identity needs --issuer"
        )
    public = None if issuer is not None or _is_key_id(signed_by) else load_public(Path(signed_by))
    if not path.exists():
        raise EvidenceError(f"{path.name} is missing; ask who recorded the campaign for its seal")
    if result.evidence is None or not (directory / store.MANIFEST).is_file():
        raise EvidenceError("the campaign can't be judged, so its seal can't be compared with it")
    manifest = read_regular(directory / store.MANIFEST, store.MAX_JSON)
    if issuer is not None:
        kind, payload = open_keyless(read_regular(path, MAX_SEAL), signed_by, issuer)
        return said(kind, payload, manifest, result.evidence)
    raw: Any = store.read_json(path, MAX_SEAL)
    key = key_of(raw, signed_by.lower()) if public is None else public
    return check(raw, key, manifest, result.evidence)


def _is_key_id(word: str) -> bool:
    return len(word) == 64 and all(char in "0123456789abcdefABCDEF" for char in word)
