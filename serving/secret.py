"""Reads the token that a server and its clients share."""

from __future__ import annotations

import os
from pathlib import Path

from serving.errors import ServingError

_SHORTEST = 16


def read_token(file: Path | None, variable: str) -> str | None:
    """Returns the token of a file, or of an environment variable; None if there is neither.

    Raises:
        ServingError: the file cannot be read, or the token is too short to be a secret.
    """
    if file is None:
        token = os.environ.get(variable)
        where = f"the variable {variable}"
    else:
        where = str(file)
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ServingError(f"the token file {where!r} cannot be read: {error}") from error
    if token is None:
        return None
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise ServingError(
            f"the token in {where} has to be at least {_SHORTEST} printable ASCII characters without "
            "spaces: `openssl rand -hex 32` makes one."
        )
    return token
