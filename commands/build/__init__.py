"""Builds the objects that a configuration describes; only `commands` reads its sections."""
