"""Errors of servers, whatever they serve."""

from __future__ import annotations

from configs.errors import UserError


class ServingError(UserError, RuntimeError):
    """A server cannot be run as it was asked for, or its token cannot be used."""
