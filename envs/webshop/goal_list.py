"""The goals of a shop as a sequence: a goal is made when it is read, so a million cost only megabytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envs.subset import Roster
from envs.webshop.draws import Draws
from envs.webshop.goals import SPLITS, Goal, Kind, Products, goal_id, make_goal


class Goals(Sequence[Goal]):
    """Goals in an order that is the same every time; slices and selections are such sequences again.

    Attributes:
        splits: Place in `SPLITS` of each goal's split, uint8 [n].
    """

    def __init__(
        self, catalogue: Products, kind: Kind, draws: Draws, numbers: np.ndarray, splits: np.ndarray
    ) -> None:
        """Use `open_shop`.

        Args:
            catalogue: The products.
            kind: Of all goals.
            draws: What seeds decide about them.
            numbers: Which goals, as `draws` numbers them, int32 [n].
            splits: See the attribute.
        """
        self._catalogue = catalogue
        self._kind = kind
        self._draws = draws
        self._numbers = numbers
        self.splits = splits

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return self._chosen(at)
        number, split = int(self._numbers[at]), SPLITS[self.splits[at]]
        draws = self._draws
        owner = self._owners(number)
        product = self._catalogue[self._catalogue.asins[draws.products[owner]]]
        n = int(draws.entries[owner] + number - draws.starts[owner])
        return make_goal(product, self._kind, n, float(draws.limits[owner]), split)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Goals):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    def of_split(self, split: str) -> Goals:
        """Returns the goals of a split, in order."""
        return self._chosen(self.splits == SPLITS.index(split))

    def in_load_order(self) -> Goals:
        """Returns the same goals product by product, which is faster to go through."""
        return self._chosen(np.argsort(self._numbers))

    def with_splits(self, splits: np.ndarray) -> Goals:
        """Returns the same goals with other splits."""
        return Goals(self._catalogue, self._kind, self._draws, self._numbers, splits)

    def roster(self) -> Roster:
        """Returns what they are called, found without making any of them."""
        return Roster(len(self), self._names, self._chosen)

    @property
    def families(self) -> tuple[str, ...]:
        """Families that goals of the shop have, in whichever split."""
        return tuple(name.decode() for name in self._draws.family_names.tolist())

    def product_places(self) -> np.ndarray:
        """Returns the place in load order of each goal's product, int32 [n]."""
        return np.repeat(self._draws.products, np.diff(self._draws.starts))[self._numbers]

    def asin(self, place: int) -> str:
        """Returns the id of the product at a place in load order."""
        return self._catalogue.asins[place]

    def _names(self) -> tuple[list[str], list[str]]:
        draws, asins = self._draws, self._catalogue.asins
        owners = self._owners(self._numbers)
        within = draws.entries[owners] + self._numbers - draws.starts[owners]
        products = zip(draws.products[owners].tolist(), within.tolist(), strict=True)
        ids = [goal_id(self._kind, asins[place], n) for place, n in products]
        names = self.families
        return ids, [names[place] for place in draws.families[owners].tolist()]

    def _owners(self, numbers: Any) -> Any:
        """Which instruction makes the goal of a number."""
        # Right of equal starts: instructions that make no goal come before the one that does.
        return self._draws.starts.searchsorted(numbers, "right") - 1

    def _chosen(self, which: Sequence[int] | slice | np.ndarray) -> Goals:
        if isinstance(which, list):
            which = np.array(which, dtype=np.int64)  # an empty list would be one of floats
        return Goals(self._catalogue, self._kind, self._draws, self._numbers[which], self.splits[which])
