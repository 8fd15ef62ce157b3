"""A scorer that behaves as if it had a model: counts words, and gives every pair a number of its own."""

import zlib

import numpy as np


class FakeModel:
    """Scores from 0.1 to 0.9 by a hash; with `one`, equal texts are 1 by definition."""

    def __init__(self, identity="fake", one=False):
        self.identity = identity
        self.canonical = (lambda text: text) if one else None
        self.tokens_read = self.tokens_padded = 0
        self.calls = []

    @staticmethod
    def value(first, second):
        return 0.1 + 0.8 * (zlib.crc32(f"{first}|{second}".encode()) % 997) / 997

    def lengths(self, pairs):
        return np.array([len(a.split()) + len(b.split()) + 4 for a, b in pairs], dtype=np.int64)

    def score(self, pairs):
        self.calls.append(list(pairs))
        lengths = self.lengths(pairs)
        self.tokens_read += int(lengths.sum())
        self.tokens_padded += int(len(pairs) * lengths.max() - lengths.sum())
        return np.array([self.value(*pair) for pair in pairs])
