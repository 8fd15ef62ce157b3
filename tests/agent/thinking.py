"""Chat templates that think, for tests."""

THINK = ["<think>", "</think>"]


EMPTY = "<think>\n\n</think>\n\n"


OPEN = "<think>\n"
