"""Describes an environment exactly: two ends that agree on it give the same trajectories."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from envs.wire.messages import PROTOCOL
from serving.messages import Wire

_ENVS = Path(__file__).resolve().parent.parent
_SHARED = ("base.py", "pools/replies.py")

Option = str | int | float | bool


class Description(Wire):
    """An environment.

    Attributes:
        protocol: Of the wire.
        name: Package under envs/, or the class of a world of the user's own.
        options: All options that change what it does.
        data: Digest of what tasks refer to (a catalogue); "" where tasks bring everything themselves.
        code: Digest of the environment's source files; of an own world, of its module or package.
    """

    protocol: int
    name: str
    options: dict[str, Option]
    data: str
    code: str

    @cached_property
    def fingerprint(self) -> str:
        """Digest of everything above."""
        body = json.dumps(self.model_dump(), sort_keys=True)
        return hashlib.blake2b(body.encode(), digest_size=12).hexdigest()

    def differences(self, other: Description) -> list[str]:
        """Says in which parts `other`, a server's description, is another one; empty if they agree."""
        found = [
            f"{part} is {getattr(other, part)!r} there, {getattr(self, part)!r} here"
            for part in ("protocol", "name", "data", "code")
            if getattr(self, part) != getattr(other, part)
        ]
        for option in sorted(self.options.keys() | other.options.keys()):
            there, here = other.options.get(option), self.options.get(option)
            if there != here:
                found.append(f"option {option} is {there!r} there, {here!r} here")
        return found


class Hello(Wire):
    """A server's answer to the question what it plays.

    Attributes:
        environment: See `Description`.
        batch: Most requests of one kind it takes at once.
        body: Most bytes of a request.
    """

    environment: Description
    batch: int
    body: int


def describe(
    name: str, options: Mapping[str, Option], data: str = "", code: str | None = None
) -> Description:
    """Describes an environment of this installation; without `code`, a package under envs/."""
    code = code or code_digest(name)
    return Description(protocol=PROTOCOL, name=name, options=dict(options), data=data, code=code)


def code_digest(name: str) -> str:
    """Returns a digest of all source and data files of `envs/<name>/` and of the contract they fill."""
    digest = hashlib.blake2b(digest_size=12)
    own = sorted(path for path in (_ENVS / name).rglob("*") if path.suffix in (".py", ".json"))
    for path in (*(_ENVS / file for file in _SHARED), *own):
        digest.update(path.relative_to(_ENVS).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def module_digest(cls: type) -> str:
    """Returns a digest of the file that a class stands in; of a package, of all its Python files."""
    path = Path(sys.modules[cls.__module__].__file__)
    files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
    return hashlib.blake2b(b"\0".join(file.read_bytes() for file in files), digest_size=12).hexdigest()
