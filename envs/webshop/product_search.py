"""BM25 over a shop, in the order in which Lucene returns it.

S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, as Lucene 9
computes it. For a query term of weight w = (times it is in the query) · idf and a document of length l:

    score = Σ w − w / (1 + tf / (k1 · (1 − b + b · l / avgdl)))        k1 = 0.9, b = 0.4
    idf = ln(1 + (N − df + 1/2) / (df + 1/2))

What makes the order Lucene's: l is rounded to what fits its one byte, each step is done in float32, terms are
added in float64 and the sum is rounded to float32, and equal scores are ordered by the id's characters.

The part of a posting that no query changes, 1 + tf / …, takes few different values, so a posting is a
document (4 bytes) and a code (2 bytes): a term's scores are a small table, gathered and added. Arrays may be
memory-mapped.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from envs.webshop.analysis import terms

K1 = 0.9
B = 0.4

_EXACT_LENGTHS = 24  # of Lucene's codes: lengths below are exact, longer ones keep four binary digits


def length_code(length: int) -> int:
    """Returns the byte Lucene stores for a document of `length` terms (0 … 255)."""
    rest = length - _EXACT_LENGTHS
    if rest < 8:
        return length if rest < 0 else _EXACT_LENGTHS + rest
    shift = rest.bit_length() - 4
    return _EXACT_LENGTHS + ((shift + 1) << 3 | (rest >> shift & 7))


def code_length(code: int) -> int:
    """Returns the length a code stands for: the smallest that has it."""
    rest = code - _EXACT_LENGTHS
    if rest < 8:
        return code
    return _EXACT_LENGTHS + ((rest & 7 | 8) << (rest >> 3) - 1)


@dataclass(frozen=True, slots=True)
class Index:
    """Postings of a shop; P postings of T terms in N documents, numbered in the order of their ids.

    Attributes:
        letters: The terms' UTF-8 bytes, sorted and joined, uint8.
        ends: Where each term ends in `letters`, int64 [T].
        starts: Where its postings start, int64 [T + 1].
        documents: Document of each posting, int32 [P], ascending within a term.
        codes: Row of `saturation` of each posting, uint16 or uint32 [P].
        saturation: 1 + tf / (k1 · (1 − b + b · l / avgdl)), float32.
        filled: Number of documents with any term, int64 [1].
        positions: The caller's number of each document, int32 [N].
    """

    letters: np.ndarray
    ends: np.ndarray
    starts: np.ndarray
    documents: np.ndarray
    codes: np.ndarray
    saturation: np.ndarray
    filled: np.ndarray
    positions: np.ndarray

    def search(self, query: str, k: int) -> list[int]:
        """Returns the numbers of the best `k` documents, best first; fewer where fewer share a term."""
        scores = self.scores(query)
        k = min(k, len(scores))
        if k <= 0:
            return []
        # All that tie with the k-th score have to be ranked, since the ids decide between them.
        threshold = np.partition(scores, -k)[-k]
        best = np.flatnonzero(scores >= threshold if threshold > 0 else scores)
        # Stable, and `best` ascends: equal scores stay in the order of the ids.
        ranked = best[np.argsort(-scores[best], kind="stable")[:k]]
        return self.positions[ranked].tolist()

    def scores(self, query: str) -> np.ndarray:
        """Returns each document's score in the order of the ids, float32 [N]; 0 where no term is shared."""
        total = np.zeros(len(self.positions))
        for term, times in Counter(terms(query)).items():
            row = self._row(term)
            if row is None:
                continue
            start, stop = int(self.starts[row]), int(self.starts[row + 1])
            weight = np.float32(times) * self._idf(stop - start)
            by_code = (weight - weight / self.saturation).astype(np.float64)
            # No document is twice in a term, so adding through an index loses nothing.
            total[self.documents[start:stop]] += by_code[self.codes[start:stop]]
        return total.astype(np.float32)

    def _idf(self, df: int) -> np.float32:
        return np.float32(math.log(1 + (int(self.filled[0]) - df + 0.5) / (df + 0.5)))

    def _row(self, term: str) -> int | None:
        """Finds a term by bisection."""
        wanted = term.encode("utf-8", "surrogatepass")
        low, high = 0, len(self.ends)
        while low < high:
            middle = (low + high) // 2
            found = self._term(middle)
            if found == wanted:
                return middle
            low, high = (middle + 1, high) if found < wanted else (low, middle)
        return None

    def _term(self, row: int) -> bytes:
        start = self.ends[row - 1] if row else 0
        return self.letters[start : self.ends[row]].tobytes()


class IndexBuilder:
    """Takes documents one after the other and makes an `Index`; 8 bytes a posting until then."""

    def __init__(self) -> None:
        self._terms: dict[str, int] = {}
        self._pairs: dict[tuple[int, int], int] = {}
        self._posting_terms = array("i")
        self._posting_pairs = array("i")
        self._sizes = array("i")  # different terms of each document
        self._ids: list[str] = []
        self._total = 0
        self._filled = 0

    def add(self, name: str, text: str) -> None:
        """Adds the document number `len(added so far)`, under an id no other has."""
        found = terms(text)
        counts = Counter(found)
        length = length_code(len(found))
        self._ids.append(name)
        self._sizes.append(len(counts))
        self._total += len(found)
        self._filled += bool(found)
        rows, pairs = self._terms, self._pairs
        self._posting_terms.extend([rows.setdefault(term, len(rows)) for term in counts])
        self._posting_pairs.extend([pairs.setdefault((n, length), len(pairs)) for n in counts.values()])

    def build(self) -> Index:
        """Sorts what was added."""
        order = np.array(sorted(range(len(self._ids)), key=self._ids.__getitem__), dtype=np.int32)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order), dtype=np.int32)
        # Code points sort as their UTF-8 bytes do.
        vocabulary = sorted(self._terms)
        row = np.empty(len(vocabulary), dtype=np.int64)
        row[[self._terms[term] for term in vocabulary]] = np.arange(len(vocabulary))
        encoded = [term.encode("utf-8", "surrogatepass") for term in vocabulary]

        rows = row[_ints(self._posting_terms)]
        documents = np.repeat(rank, _ints(self._sizes))
        sorted_by_term = np.argsort(rows * len(order) + documents)
        counts = np.bincount(rows, minlength=len(vocabulary))
        small = len(self._pairs) <= np.iinfo(np.uint16).max + 1
        return Index(
            letters=np.frombuffer(b"".join(encoded), dtype=np.uint8),
            ends=np.cumsum([len(term) for term in encoded], dtype=np.int64),
            starts=np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
            documents=documents[sorted_by_term],
            codes=_ints(self._posting_pairs)[sorted_by_term].astype(np.uint16 if small else np.uint32),
            saturation=self._saturation(),
            filled=np.array([self._filled], dtype=np.int64),
            positions=order,
        )

    def _saturation(self) -> np.ndarray:
        """The value of each pair (tf, length code), step by step as Lucene rounds them."""
        if not self._pairs:
            return np.ones(0, dtype=np.float32)
        f = np.float32
        mean = f(self._total / self._filled)
        tf, code = np.array(list(self._pairs)).T
        length = np.array([code_length(int(c)) for c in code], dtype=f)
        relative = f(1) / (f(K1) * ((f(1) - f(B)) + f(B) * length / mean))
        return f(1) + tf.astype(f) * relative


def _ints(values: Sequence[int]) -> np.ndarray:
    return np.frombuffer(values, dtype=np.int32) if len(values) else np.zeros(0, dtype=np.int32)
