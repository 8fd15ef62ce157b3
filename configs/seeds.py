"""Seeds by purpose: every random draw of a run derives from the one seed of its configuration."""

from __future__ import annotations

import hashlib


def derive(seed: int, *names: str | int) -> int:
    """Returns a 63-bit seed for the purpose that `names` describe, for example `derive(0, "tasks", update)`.

    Stable over processes, platforms and releases (SHA-256 of the decimal seed and the names).
    """
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
