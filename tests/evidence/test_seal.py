"""A seal says which bytes its signer saw: it holds for those, and for nothing else."""

import base64
import copy
import importlib.util
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope

from harness.errors import EvidenceError, UsageError
from harness.evidence import seal, store
from harness.evidence.derive import derive
from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.seal_keys import load_public, load_signer, new_key
from harness.evidence.verify import verify
from tests.bench import bench
from tests.recorded import campaign
from tests.recorded import copy as copied

NAME = "ladder0"


@pytest.fixture(scope="module")
def evidence() -> AnyEvidence:
    return derive(campaign(NAME))


@pytest.fixture(scope="module")
def manifest() -> bytes:
    return (campaign(NAME) / store.MANIFEST).read_bytes()


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key"
    new_key(path)
    return path


@pytest.fixture(scope="module")
def sealed(evidence: AnyEvidence, manifest: bytes, key: Path) -> dict[str, Any]:
    statement = seal.build_statement(manifest, evidence, sealed_by="b70-bench 0", sealed_at="2026-01-01T00:00:00+00:00")
    return seal.seal(statement, *load_signer(key))


def payload_of(sealed: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(sealed["payload"]))


def test_statement_names_every_file_and_what_they_came_to(
    sealed: dict[str, Any], evidence: AnyEvidence, manifest: bytes
) -> None:
    statement = payload_of(sealed)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert sealed["payloadType"] == "application/vnd.in-toto+json"
    digests = {item["name"]: item["digest"]["sha256"] for item in statement["subject"]}
    files = json.loads(manifest)["files"]
    assert digests.pop("manifest.json") == store.hashlib.sha256(manifest).hexdigest()
    assert digests == {name: entry["sha256"] for name, entry in files.items()}
    said = statement["predicate"]
    assert (said["campaign_id"], said["status"]) == (evidence.campaign_id, evidence.status)
    assert (said["conclusion"], said["plan_sha256"]) == (evidence.conclusion, evidence.start.plan_sha256)
    assert said["tool"] == f"b70-bench {evidence.start.tool.version}"


def test_holds_by_file_and_by_key_id(sealed: dict[str, Any], evidence: AnyEvidence, manifest: bytes, key: Path) -> None:
    public = load_public(key.with_name("key.pub"))
    assert seal.check(sealed, public, manifest, evidence).status == evidence.status
    assert seal.key_of(sealed, public.keyid).keyid == public.keyid
    assert load_public(key).keyid == public.keyid
    # Any other reader of the format agrees.
    Envelope.from_dict(copy.deepcopy(sealed)).verify([public], 1)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_changed_byte_of_statement_or_signature_is_refused(
    sealed: dict[str, Any], evidence: AnyEvidence, manifest: bytes, key: Path, data: st.DataObject
) -> None:
    forged = copy.deepcopy(sealed)
    holder, name = data.draw(st.sampled_from([(forged, "payload"), (forged["signatures"][0], "sig")]))
    raw = bytearray(base64.b64decode(holder[name]))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    holder[name] = base64.b64encode(raw).decode()
    with pytest.raises(EvidenceError, match=r"doesn't fit the statement: the seal was edited"):
        seal.check(forged, load_public(key), manifest, evidence)


def resealed(sealed: dict[str, Any], key: Path, **changes: Any) -> dict[str, Any]:
    """The same seal with another statement, signed anew by the same key."""
    statement = payload_of(sealed)
    for name, value in changes.items():
        holder = statement if name in statement else statement["predicate"]
        holder[name] = value
    return seal.seal(json.dumps(statement).encode(), *load_signer(key))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "rejected"}, r"the seal says status 'rejected', the files give 'passed'"),
        ({"conclusion": "9999 tokens/s"}, r"the seal says conclusion '9999 tokens/s'"),
        ({"campaign_id": "another"}, r"the seal says campaign_id 'another'"),
        ({"plan_sha256": "00"}, r"the seal says plan_sha256 '00'"),
        ({"subject": []}, r"evidence.json isn't sealed|attempts/.+ isn't sealed"),
        ({"predicateType": "https://slsa.dev/provenance/v1"}, r"is of type 'https://slsa.dev/provenance/v1'"),
        ({"_type": "https://in-toto.io/Statement/v0.1"}, r"the sealed statement is of type"),
        ({"predicate": {}}, r"the sealed statement is none of this version \(predicate.campaign_id: field required\)"),
    ],
)
def test_signed_statement_of_something_else(
    sealed: dict[str, Any], evidence: AnyEvidence, manifest: bytes, key: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(EvidenceError, match=words):
        seal.check(resealed(sealed, key, **changes), load_public(key), manifest, evidence)


def test_another_file_than_the_sealed_one(
    sealed: dict[str, Any], evidence: AnyEvidence, manifest: bytes, key: Path
) -> None:
    for change, words in (
        (lambda files: files["suite.json"].update(sha256="0" * 64), "suite.json differs"),
        (lambda files: files.pop("suite.json"), "suite.json is sealed and gone"),
        (lambda files: files.update({"more": files["suite.json"]}), "more isn't sealed"),
    ):
        other = json.loads(manifest)
        change(other["files"])
        with pytest.raises(EvidenceError, match=words):
            seal.check(sealed, load_public(key), store.dump_json(other), evidence)


def test_key_id_of_a_key_that_did_not_sign_it(sealed: dict[str, Any], key: Path, tmp_path: Path) -> None:
    """Who swaps the key beside the signature for his own is found: an id is the hash of its key."""
    _, other = new_key(tmp_path / "other")
    with pytest.raises(EvidenceError, match=rf"isn't signed by key {other.keyid[:16]}…, but by "):
        seal.key_of(sealed, other.keyid)
    forged = copy.deepcopy(sealed)
    forged["signatures"][0]["publicKey"] = (tmp_path / "other.pub").read_text()
    with pytest.raises(EvidenceError, match="the key in the seal isn't the one of key id"):
        seal.key_of(forged, load_public(key).keyid)
    forged["signatures"][0]["keyid"] = other.keyid
    with pytest.raises(EvidenceError, match="doesn't fit the statement"):
        seal.check(forged, seal.key_of(forged, other.keyid), b'{"files": {}}', derive(campaign(NAME)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
field = st.sampled_from(["payload", "payloadType", "signatures", "keyid", "sig", "publicKey"])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_seal_from_anyone_is_one_sentence(
    sealed: dict[str, Any], evidence: AnyEvidence, manifest: bytes, key: Path, data: st.DataObject
) -> None:
    raw: Any = copy.deepcopy(sealed)
    if data.draw(st.booleans()):
        raw = data.draw(json_values | st.dictionaries(field, json_values))
    else:
        holder = data.draw(st.sampled_from([raw, raw["signatures"][0]]))
        holder[data.draw(st.sampled_from(sorted(set(holder) - {"publicKey"})))] = data.draw(json_values)
    public = load_public(key)
    for act in (
        lambda: seal.check(raw, public, manifest, evidence),
        lambda: seal.check(raw, seal.key_of(raw, public.keyid), manifest, evidence),
    ):
        with pytest.raises(EvidenceError) as said:
            act()
        assert "\n" not in str(said.value)


def test_new_key_is_private_and_never_overwritten(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        public, made = new_key(tmp_path / "key")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert load_public(public).keyid == made.keyid and len(made.keyid) == 64
    before = (tmp_path / "key").read_bytes(), public.read_bytes()
    with pytest.raises(UsageError, match=r"^key exists already; .+ a key is never overwritten"):
        new_key(tmp_path / "key")
    (tmp_path / "key").unlink()
    with pytest.raises(UsageError, match=r"^key.pub exists already"):
        new_key(tmp_path / "key")
    assert not (tmp_path / "key").exists() and public.read_bytes() == before[1]
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"^link exists already"):
        new_key(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(UsageError, match=r"can't be written \(No such file or directory\)"):
        new_key(tmp_path / "absent" / "key")


def test_keys_that_are_none(tmp_path: Path) -> None:
    ec = generate_ec(SECP256R1())
    locked = ec.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    wrong = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for data, words in (
        (b"", "is no private key that can sign"),
        (b"\xff" * 99, "is no private key that can sign"),
        (locked, "has a password: take it off"),
        (wrong, "is no private key that can sign"),
        (b"x" * 70_000, "is larger than 64 KiB"),
    ):
        (tmp_path / "key").write_bytes(data)
        with pytest.raises(UsageError, match=words):
            load_signer(tmp_path / "key")
    with pytest.raises(UsageError, match="is no public key in PEM"):
        (tmp_path / "key").write_bytes(b"-----BEGIN PUBLIC KEY-----\n")
        load_public(tmp_path / "key")
    with pytest.raises(UsageError, match=r"key absent can't be read \(No such file or directory\)"):
        load_public(tmp_path / "absent")


def test_ecdsa_key_of_another_tool(evidence: AnyEvidence, manifest: bytes, tmp_path: Path) -> None:
    ec = generate_ec(SECP256R1())
    (tmp_path / "ec").write_bytes(ec.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    (tmp_path / "ec.pub").write_bytes(ec.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    statement = seal.build_statement(manifest, evidence, sealed_by="b", sealed_at="now")
    made = seal.seal(statement, *load_signer(tmp_path / "ec"))
    assert seal.check(made, load_public(tmp_path / "ec.pub"), manifest, evidence).sealed_at == "now"


def test_commands_from_a_new_key_to_a_refused_edit(tmp_path: Path) -> None:
    directory = copied(NAME, tmp_path)
    made = json.loads(bench("seal", "--new-key", "mine", "--json", cwd=tmp_path).out)
    bench("seal", "--new-key", "other", cwd=tmp_path)
    missing = bench("verify", directory, "--signed-by", "mine.pub", cwd=tmp_path)
    assert missing.code == 1
    assert "seal.dsse.json is missing; ask who recorded the campaign for its seal" in missing.out

    done = bench("seal", directory, "--key", "mine", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0].endswith(f"seal.dsse.json: signed by key id {made['key_id']}")
    assert verify(directory).problems == []
    again = bench("seal", directory, "--key", "other", cwd=tmp_path)
    assert again.code == 64 and "is there already, and a seal is never replaced" in again.sentence
    for by in ("mine.pub", "mine", made["key_id"], made["key_id"].upper()):
        done = bench("verify", directory, "--signed-by", by, cwd=tmp_path)
        assert done.code == 0 and done.out.splitlines()[-1].endswith("the signature holds"), done
    told = json.loads(bench("verify", directory, "--signed-by", "mine.pub", "--json", cwd=tmp_path).out)
    assert told["ok"] and told["seal"]["status"] == "passed"
    done = bench("verify", directory, "--signed-by", "other.pub", cwd=tmp_path)
    assert done.code == 1 and "the seal isn't signed by key " in done.out and "Traceback" not in done.err

    # An editor who writes everything anew, and consistently: the campaign alone can't tell, the seal can.
    journal = directory / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    ended = json.loads(lines[-1])
    ended["at"] = ended["at"].replace("2026", "2027", 1)
    journal.write_text("".join([*lines[:-1], json.dumps(ended) + "\n"]))
    (directory / "evidence.json").write_bytes(store.dump_json(derive(directory).model_dump(mode="json", by_alias=True)))
    store.write_manifest(directory)
    assert verify(directory).problems == []
    done = bench("verify", directory, "--signed-by", "mine.pub", cwd=tmp_path)
    assert done.code == 1
    assert "evidence.json differs: the seal is of other files than the manifest lists" in done.out


def test_what_is_not_sealed(tmp_path: Path) -> None:
    directory = copied(NAME, tmp_path)
    bench("seal", "--new-key", "mine", cwd=tmp_path)
    for words, code, sentence in (
        (("seal",), 64, "give the directory of a campaign, or --new-key FILE"),
        (("seal", directory), 64, "give --key FILE or --keyless"),
        (("seal", directory, "--key", "mine", "--keyless"), 64, "give --key FILE or --keyless"),
        (("seal", directory, "--key", "absent"), 64, "key absent can't be read"),
        (("seal", directory, "--key", "mine", "-o", directory / "x"), 64, "would lie inside the campaign"),
        (("verify", directory, "--seal", "x"), 64, "--seal and --issuer say how a seal is checked"),
        (("verify", directory, "--signed-by", "absent"), 64, "--signed-by absent is neither a file nor a key id"),
    ):
        done = bench(*words, cwd=tmp_path)
        assert done.code == code and sentence in done.sentence, done
    apart = bench("seal", directory, "--key", "mine", "-o", "apart.json", cwd=tmp_path)
    assert apart.code == 0 and not (directory / store.SEAL).exists()
    assert bench("verify", directory, "--signed-by", "mine", "--seal", "apart.json", cwd=tmp_path).code == 0
    log = directory / "attempts" / "mtp0" / "server.log"
    log.write_bytes(log.read_bytes() + b"!")
    done = bench("seal", directory, "--key", "mine", cwd=tmp_path)
    assert done.code == 1 and "server.log isn't the file that was recorded" in done.sentence
    assert not (directory / store.SEAL).exists()


def test_seal_of_a_campaign_that_is_still_under_way(tmp_path: Path) -> None:
    directory = copied(NAME, tmp_path)
    bench("seal", "--new-key", "mine", cwd=tmp_path)
    lines = (directory / "journal.jsonl").read_text().splitlines(keepends=True)
    (directory / "journal.jsonl").write_text("".join(lines[:-1]))
    for name in ("manifest.json", "evidence.json"):
        (directory / name).unlink()
    done = bench("seal", directory, "--key", "mine", cwd=tmp_path)
    assert done.code == 1 and "has not ended, so there is nothing whole to seal" in done.sentence


def test_keyless_says_what_is_missing(tmp_path: Path) -> None:
    """The extra, or the network: never a traceback, and nothing is written."""
    directory = copied(NAME, tmp_path)
    nowhere = {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    done = bench("seal", directory, "--keyless", cwd=tmp_path, env=nowhere)
    if importlib.util.find_spec("sigstore") is None:
        assert done.code == 64 and "pip install 'b70-bench[sigstore]'" in done.sentence
    else:
        assert done.code == 2 and "Sigstore's root of trust can't be reached" in done.sentence
    assert not (directory / store.KEYLESS_SEAL).exists()
    (directory / store.KEYLESS_SEAL).write_text("{}")
    assert verify(directory).problems == []
    words = ("verify", directory, "--signed-by", "a@b.example", "--issuer", "https://b.example")
    done = bench(*words, cwd=tmp_path, env=nowhere)
    assert done.code in (2, 64) and ("b70-bench[sigstore]" in done.sentence or "can't be reached" in done.sentence)
