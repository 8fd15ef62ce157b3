"""The built-in worlds by the name in `env.name`; each is imported when it is opened (`envs.worlds`)."""

from __future__ import annotations

WORLDS = {
    "alfworld": "envs.alfworld.world:Alfworld",
    "webshop": "envs.webshop.world:Webshop",
}
"""Name → `module:Class`. Any other name in `env.name` is itself a `FILE.py:Class` or `module:Class`."""
