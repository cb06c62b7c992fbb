"""Host paths → roles, and secrets dropped by name: what an engine reports goes through here before it is kept."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from harness.hidden import hide, hide_user_info, masked

DROPPED = "<dropped>"
"""Stands where a secret's value stood in a list of arguments, which would read wrongly with a hole in it."""

_WORDS = """
TOKEN SECRET SECRETS PASSWORD PASSWD PASSPHRASE PASS PWD APIKEY ACCESSKEY CRED CREDS CREDENTIAL CREDENTIALS
AUTH AUTHORIZATION BEARER JWT PAT COOKIE COOKIES PRIVATE
"""
SECRET_WORDS = frozenset(_WORDS.split())
PUBLIC_KEYS = frozenset(("GPG", "PUBLIC", "CACHE", "SORT", "HASH"))
"""A KEY is a secret but behind these words; GPG_KEY, which base images set, is a public fingerprint."""

KNOB_PREFIXES = ("VLLM_XPU_", "TORCHINDUCTOR_", "TRITON_")
"""Knobs (…_SUPPRESS_BONUS_TOKEN=0): a TOKEN there is a token of text, a PASS one of a compiler, and must be proven."""

NOT_SECRET = frozenset(("PWD", "OLDPWD"))
"""The shell's working directory, which has the same short name as a password."""

_GENERIC = (
    "/home",
    "/root",
    "/Users",
    "/mnt",
    "/media",
    "/srv",
    "/run/user",
    "/var/home",
    "/export",
    "/nfs",
    "/scratch",
)
_BEFORE = r"(?:(?<![\w.\-])|(?<=^-[A-Za-z])|(?<=[\s=,]-[A-Za-z]))"
"""A path starts where no name goes on, or right behind a one-letter flag (``-L/home/…``)."""
_AFTER = r"(?![\w\-]|\.\w)"
_NOT_IN_A_ROLE = "".join(f"(?<!<{role}>)" for role in ("model", "cache", "campaign", "home", "tmp", "path"))
"""``<cache>/home`` is reduced already."""
_ANY_PATH = re.compile(
    _NOT_IN_A_ROLE + _BEFORE + "(?:" + "|".join(map(re.escape, _GENERIC)) + r")(?=/|" + _AFTER + r")[^\s:;,\"'<>|=]*"
)
_USER_INFO = re.compile(r"(?<=://)[^/@\s\"']+@")
_PARTS = re.compile(r"[^A-Za-z0-9]+")


def home_roles() -> dict[str, str]:
    """``{path: "<home>"}`` for a home where no other is kept; those below /home and so on become ``<path>`` anyway."""
    with suppress(RuntimeError):
        home = str(Path.home())
        if home.count("/") > 1 and _ANY_PATH.fullmatch(home) is None:
            return {home: "<home>"}
    return {}


def is_secret(name: str) -> bool:
    """Whether a variable's NAME looks like a secret: a whole word of it is TOKEN, SECRET, API_KEY and so on.

    TOKENS is no such word: ``VLLM_…_BATCHED_TOKENS`` is a knob.
    """
    upper = name.upper()
    if upper in NOT_SECRET:
        return False
    parts = [part for part in _PARTS.split(upper) if part]
    if upper.startswith(KNOB_PREFIXES):
        return any(part in SECRET_WORDS - {"TOKEN", "PASS"} for part in parts)
    return any(part in SECRET_WORDS for part in parts) or _has_key(parts)


def _has_key(parts: Sequence[str]) -> bool:
    return any(other == "KEY" and one not in PUBLIC_KEYS for one, other in pairwise(parts))


def dropped_names(env: Mapping[str, str]) -> list[str]:
    """Names of the variables that ``Redactor.environment`` leaves out, sorted."""
    return sorted(name for name in env if is_secret(name))


def environment_of(lines: Sequence[str]) -> dict[str, str]:
    """``["NAME=value", …]`` → a dict; the last of two equal names wins, as it does in a process."""
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _secret_flag(flag: str) -> bool:
    """``--api-key``, ``--hf-token``: the secret's word ends the name (``--return-tokens-as-token-ids`` is a switch)."""
    parts = [part for part in _PARTS.split(flag.upper()) if part]
    if not flag.startswith("-") or not parts:
        return False
    return parts[-1] in SECRET_WORDS or _has_key(parts[-2:])


def hide_environment(env: Mapping[str, str]) -> None:
    """Let no value of a secret variable, and no user info of a URL, be kept or shown from now on (harness.hidden)."""
    hide(value for name, value in env.items() if is_secret(name))
    hide_user_info(env.values())


def hide_arguments(arguments: Sequence[str]) -> None:
    """The same of a command line."""
    hide(secret_arguments(arguments))
    hide_user_info(arguments)


def secret_arguments(arguments: Sequence[str]) -> list[str]:
    """The values of flags such as ``--api-key``."""
    found = [value for flag, equals, value in (a.partition("=") for a in arguments) if equals and _secret_flag(flag)]
    return found + [value for flag, value in pairwise(arguments) if _secret_flag(flag) and not value.startswith("--")]


class Redactor:
    """Replaces paths by roles. ``roles`` maps absolute paths to ``<model>``, ``<cache>``, ``<campaign>``, ``<home>``.

    Every other absolute path under a folder where people keep things (/home, /root, /mnt, …) becomes ``<path>``.
    """

    def __init__(self, roles: Mapping[str, str] | None = None) -> None:
        given = {path.rstrip("/"): role for path, role in (roles or {}).items()}
        # A root or a relative path as a role would replace half of every text.
        self._roles = {path: role for path, role in given.items() if path.startswith("/")}
        longest_first = sorted(self._roles, key=len, reverse=True)
        either = "|".join(map(re.escape, longest_first))
        self._known = re.compile(f"{_BEFORE}(?:{either}){_AFTER}") if either else None

    def extended(self, roles: Mapping[str, str]) -> "Redactor":
        """The same with further roles."""
        return Redactor({**self._roles, **roles})

    def known(self, value: str) -> str:
        """Only the given paths, and user and password of a URL; what else lies below /root or /home stays."""
        return _USER_INFO.sub(f"{DROPPED}@", self._by_role(value))

    def _by_role(self, value: str) -> str:
        return value if self._known is None else self._known.sub(lambda match: self._roles[match.group()], value)

    def text(self, value: str) -> str:
        """One value. User and password of a URL go too."""
        value = self._by_role(masked(value))
        return _USER_INFO.sub(f"{DROPPED}@", _ANY_PATH.sub("<path>", value))

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Without secrets (see ``dropped_names``), values redacted, sorted by name."""
        return {name: self.text(env[name]) for name in sorted(env) if not is_secret(name)}

    def arguments(self, arguments: Sequence[str]) -> list[str]:
        """As many elements as given; the value of a flag such as ``--api-key`` is replaced."""
        result: list[str] = []
        hide = False
        for argument in arguments:
            flag, equals, _ = argument.partition("=")
            if hide and not argument.startswith("--"):
                result.append(DROPPED)
            elif equals and _secret_flag(flag):
                result.append(f"{flag}={DROPPED}")
            else:
                result.append(self.text(argument))
            hide = not equals and _secret_flag(argument)
        return result

    def source(self, path: str) -> str:
        """A path that is certainly one of the host: a role, a device or system path, or ``<path>``."""
        text = self.text(path)
        if not text.startswith("/"):
            return text
        return text if text.split("/")[1] in ("dev", "sys", "proc") else "<path>"

    def bind(self, value: str) -> str:
        """``source:target[:mode]`` with the source reduced; the target is a path of the container and stays."""
        source, colon, rest = value.partition(":")
        return f"{self.source(source)}{colon}{rest}"

    def tree(self, value: object, key: str = "") -> object:
        """A ``docker inspect`` or anything like it, recursively: Env lists, Binds, mount sources, Args, any text."""
        if isinstance(value, str):
            return self.source(value) if key in ("Source", "PathOnHost") else self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(k)): self.tree(v, str(k)) for k, v in value.items() if not is_secret(str(k))}
        if not isinstance(value, list | tuple):
            return value
        if not all(isinstance(item, str) for item in value):
            return [self.tree(item) for item in value]
        if key == "Env":
            return [self.text(line) for line in value if not is_secret(line.partition("=")[0])]
        if key == "Binds":
            return [self.bind(line) for line in value]
        return self.arguments(value)
