"""A model without weights: text ↔ token ids, and the answer to a prompt as a pure function of the prompt's ids.

Ids of answers lie below 4,000. Prompts also use packed ids, one for up to five letters, so that a prompt has about as
many ids as with a real tokenizer and ``detokenize(tokenize(text)) == text`` without any state.
"""

import re
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import count
from struct import unpack

BANG = 0
"""the id that a broken engine repeats, as in Qwen's vocabulary"""
EOS = 1
EMPTY = tuple(range(2, 10))
"""special ids whose text is empty"""
_BYTE = 16
"""id of byte 0; the other bytes follow"""
_WORD = _BYTE + 256
"""id of the first word"""
_PACKED = 4096
"""first id that packs up to five letters"""
TIE_INDEX = 57
"""zero-based index of the first id that differs when a fault makes two answers differ"""

_STEMS = """
    report measure record server token graph card kernel queue batch layer cache index weight number sample
    stream clock panel valve bridge river market garden window letter harbor engine signal filter column branch
    module packet sensor motor table ledger policy margin figure pattern texture wall season forest copper
    silver timber cotton paper glass stone water light sound frame order value point field house train plant
    cloud storm coast mount print press trade craft chart check claim count cover cross draft drive enter event
    fault floor focus force front group guard
""".split()  # noqa: SIM905 - a table of words reads better as text
_ENDINGS = ("", *"s ed ing er ers able less ful ment like wise ward ish hood ly".split())  # noqa: SIM905
WORDS = tuple(dict.fromkeys(f" {stem}{ending}" for stem in _STEMS for ending in _ENDINGS))
_WORD_IDS = {word: _WORD + position for position, word in enumerate(WORDS)}
_MARKS = tuple(_BYTE + byte for byte in b',,,...;:\n"\\')
_SPLIT = tuple(character.encode() for character in "éüñøßΩжя°×")
"""characters of two bytes, hence of two ids"""

_LETTERS = 26
_LONGEST = 5
_SIZES: list[int] = [0, *(sum(_LETTERS**k for k in range(1, n + 1)) for n in range(1, _LONGEST + 1))]
"""_SIZES[n]: how many strings of 1 to n letters there are"""
VOCABULARY = _PACKED + 4 * _SIZES[_LONGEST]
"""ids are below this"""
_PIECE = re.compile(r" ?[A-Za-z][a-z]*|.", re.DOTALL)


def tokenize(text: str) -> list[int]:
    """The ids of ``text``; lone surrogates become U+FFFD."""
    ids: list[int] = []
    for piece in _PIECE.findall(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")):
        if piece in _WORD_IDS:
            ids.append(_WORD_IDS[piece])
        elif piece[-1].isascii() and piece[-1].isalpha():
            space, letters = piece[0] == " ", piece.lstrip(" ")
            for start in range(0, len(letters), _LONGEST):
                ids.append(_pack(letters[start : start + _LONGEST], space and start == 0))
        else:
            ids.extend(_BYTE + byte for byte in piece.encode())
    return ids


def _pack(letters: str, space: bool) -> int:
    number = 0
    for letter in letters.lower():
        number = number * _LETTERS + ord(letter) - ord("a")
    flags = 2 * int(space) + int(letters[0].isupper())
    return _PACKED + 4 * (_SIZES[len(letters) - 1] + number) + flags


def token_bytes(token: int) -> bytes:
    """The UTF-8 bytes of one id, which may be part of a character; empty for EOS and the special ids."""
    if token >= _PACKED:
        rest, flags = divmod(token - _PACKED, 4)
        length = next(n for n in range(1, _LONGEST + 1) if rest < _SIZES[n])
        rest -= _SIZES[length - 1]
        letters = ""
        for _ in range(length):
            rest, letter = divmod(rest, _LETTERS)
            letters = chr(ord("a") + letter) + letters
        return ((" " if flags & 2 else "") + (letters.capitalize() if flags & 1 else letters)).encode()
    if token == BANG:
        return b"!"
    if _BYTE <= token < _WORD:
        return bytes([token - _BYTE])
    if _WORD <= token < _WORD + len(WORDS):
        return WORDS[token - _WORD].encode()
    return b""


def detokenize(tokens: Iterable[int]) -> str:
    """The text of ids at once; a stray part of a character becomes U+FFFD."""
    return b"".join(map(token_bytes, tokens)).decode(errors="replace")


def prompt_key(seed_text: str, prompt: list[int]) -> bytes:
    """What an answer depends on: the model (``seed_text``) and the prompt's ids."""
    return blake2b(array("Q", prompt).tobytes(), key=blake2b(seed_text.encode(), digest_size=32).digest()).digest()


def eos_index(key: bytes) -> int | None:
    """Zero-based index of the end-of-sequence id, 300 to 510, in one answer of three; the others have no end."""
    chance, place = unpack("<II", blake2b(key + b"eos", digest_size=8).digest())
    return 300 + place % 211 if chance % 3 == 0 else None


def answer(key: bytes) -> Iterator[tuple[int, float]]:
    """The endless answer: (id, draw) per position, the draw uniform in [0, 1); one below the acceptance is accepted.

    The end-of-sequence id stands at :func:`eos_index`; whoever honours it stops there.
    """
    end = eos_index(key)
    index = 0
    trail: int | None = None
    for block in count():
        digest = blake2b(key + block.to_bytes(4, "little")).digest()
        for choice, draw in zip(unpack("<16H", digest[:32]), unpack("<16H", digest[32:]), strict=True):
            if index == end:
                token = EOS
            elif trail is not None:
                token, trail = trail, None
            elif choice < 1500:
                token = EMPTY[choice % len(EMPTY)]
            elif choice < 4500:
                lead, last = _SPLIT[choice % len(_SPLIT)]
                token, trail = _BYTE + lead, _BYTE + last
            elif choice < 10000:
                token = _MARKS[choice % len(_MARKS)]
            else:
                token = _WORD + choice % len(WORDS)
            yield token, draw / 65536
            index += 1


def tie_site(key: bytes) -> int:
    """Index at which the answer of a prompt hangs on what else is in the batch: always the same for one prompt."""
    return 8 + key[0] % 100


def diverging(key: bytes, salt: bytes, at: int = TIE_INDEX) -> Iterator[tuple[int, float]]:
    """The answer of ``key`` up to ``at``, where it differs for sure, and from there another one."""
    other = blake2b(key + salt).digest()
    for index, (usual, strange) in enumerate(zip(answer(key), answer(other), strict=True)):
        if index < at:
            yield usual
        elif index == at and usual[0] == strange[0]:
            yield (_WORD if usual[0] != _WORD else _WORD + 1), strange[1]
        else:
            yield strange


def sentence(key: bytes) -> str:
    """A short sentence for a question that nobody taught the simulated model."""
    words = [
        WORDS[choice % len(WORDS)].strip() for choice in unpack("<9H", blake2b(key + b"say", digest_size=18).digest())
    ]
    return " ".join(words).capitalize() + "."
