"""Values of secrets that this process knows, masked by value wherever they would be kept or shown.

Names are dropped where a report has names (harness.redact); a server that prints its environment into its log,
or an error that quotes a URL, has none. So every value is remembered as soon as it is known, in the forms in which
programs print it, and stars of the same length stand in its place: sizes, offsets and JSON stay what they were.
"""

import base64
import html
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

SHORTEST = 6
"""Characters; a shorter value would be found by chance in what is no secret"""
CORE = 8
"""Characters of base64 that must be left of a value where its neighbours' bits are cut off"""
_NUMBER = re.compile(r"[\d.,:+\-eE ]+")
_USER_INFO = re.compile(r"://([^/@\s\"']+)@")
_PLAIN = frozenset(("anonymous", "default", "disabled", "enabled", "always", "optional", "required", "simulated"))
"""What a variable with a secret's name holds when it holds a setting; masked, they would spoil a log"""

_forms: dict[str, str] = {}
_forms_of_bytes: list[bytes] = []


def hide(values: Iterable[str]) -> None:
    """Remember values that must not be kept or shown from now on; short ones, numbers and plain words are left out."""
    known = {form for value in values if _is_telling(value) for form in _forms_of(value)}
    if known <= _forms.keys():
        return
    # The longest first: a form may be part of another.
    every = sorted({*_forms, *known}, key=lambda form: (-len(form), form))
    _forms.clear()
    _forms.update((form, "*" * len(form)) for form in every)
    _forms_of_bytes[:] = [form.encode("utf-8", "surrogateescape") for form in every]


def hide_user_info(texts: Iterable[str]) -> None:
    """Remember user and password of every URL."""
    for text in texts:
        for found in _USER_INFO.findall(text):
            user, colon, password = found.partition(":")
            hide([found, password] if colon else [user])


def masked(text: str) -> str:
    """``text`` with stars for every secret that is known."""
    for form, stars in _forms.items():
        if form in text:
            text = text.replace(form, stars)
    return text


def masked_bytes(data: bytes, also: Iterable[str] = ()) -> bytes:
    """The same of bytes, as many as before. ``also``: paths of this host, which are no secret on its own terminal."""
    for form in (*_forms_of_bytes, *(form for path in also for form in _bytes_of(path))):
        if form in data:
            data = data.replace(form, b"*" * len(form))
    return data


def _bytes_of(value: str) -> list[bytes]:
    forms = (form.encode("utf-8", "surrogateescape") for form in _forms_of(value))
    return sorted(forms, key=lambda form: (-len(form), form))


def _is_telling(value: str) -> bool:
    if len(value) < SHORTEST or set(value) == {"*"} or value.lower() in _PLAIN:
        return False
    return len(value) >= 4 * SHORTEST or not _NUMBER.fullmatch(value)


def _forms_of(value: str) -> set[str]:
    found = {value, repr(value)[1:-1], html.escape(value)}
    for ascii_only in (True, False):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        found |= {once, json.dumps(once, ensure_ascii=ascii_only)[1:-1], json.dumps(once)[1:-1]}
    raw = value.encode("utf-8", "surrogateescape")
    found |= {quote(raw), quote(raw, safe=""), quote_plus(raw)}
    for before in range(3):  # whatever stands before it shifts its bits
        whole = base64.b64encode(b"\0" * before + raw).decode()
        first, last = (8 * before + 5) // 6, 8 * (before + len(raw)) // 6
        if last - first >= CORE:
            found |= {whole[first:last], whole[first:last].replace("+", "-").replace("/", "_")}
    return found
