"""Enough wit to pass the canaries of contract section 3: products, copies, and a small JSON object."""

import json
import re

_QUOTED = re.compile(r'"([^"\n]{3,})"|“([^”\n]{3,})”|`([^`\n]{3,})`|\'([^\'\n]{12,})\'')
_PRODUCT = re.compile(r"multipl|product|times|×|\d\s*[x*]\s*\d", re.IGNORECASE)
_COPY = re.compile(r"\b(copy|repeat|verbatim|word for word|exactly)\b", re.IGNORECASE)


def reply(question: str, *, wrong: bool) -> str | None:
    """The answer to a user's message, or None if it asks for nothing known; ``wrong`` = products are off by one."""
    lower = question.lower()
    quoted = ["".join(groups) for groups in _QUOTED.findall(question)]
    if "json" in lower and "name" in lower and "count" in lower:
        return _json(question, quoted)
    if _COPY.search(question):
        if quoted:
            return quoted[-1]
        first, line_end, following = question.partition("\n")
        if line_end and "next line" in first.lower():
            return following.strip()
        _, colon, rest = question.partition(":")
        if colon and rest.strip():
            return rest.strip()
    numbers = [int(digits) for digits in re.findall(r"\d+", question)]
    if len(numbers) >= 2 and _PRODUCT.search(question):
        left, right = numbers[:2]
        return f"{left} × {right} = {left * right + wrong}."
    return None


def _json(question: str, quoted: list[str]) -> str:
    for literal in re.findall(r"\{[^{}]*\}", question):
        try:
            value = json.loads(literal)
        except ValueError:
            continue
        if isinstance(value.get("name"), str) and isinstance(value.get("count"), int):
            return json.dumps(value, ensure_ascii=False)
    names = [text for text in quoted if text not in ("name", "count")]
    if not names:
        names = re.findall(r"\bname\W+(?:is|of|set to|should be)?\W*([A-Za-z]\w*)", question)
        names = [name for name in names if name.lower() not in ("and", "a", "string", "is", "of", "the", "key", "keys")]
    numbers = re.findall(r"\d+", question)
    return json.dumps({"name": names[0] if names else "sample", "count": int(numbers[-1]) if numbers else 3})
