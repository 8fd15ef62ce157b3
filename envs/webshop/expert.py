"""A buyer that plays from instruction and pages: searches, compares, reads, selects, buys.

It knows what it was shown and no more: neither the goal's product nor what the reward looks at. A product
suits if it has the options asked for, can cost no more than the limit, and if its title, features and
description say most of what else is in the instruction. It buys the first that suits, or the best it saw when
steps run out.

Its thought, a few words before each action, is one of

    find WORDS · look further · look elsewhere · look at NAME · read features of NAME
    read description of NAME · go back to NAME · leave NAME: no VALUE · leave NAME: too little said
    choose VALUE · buy NAME

NAME being what the list of results calls the product.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from envs.base import Observation
from envs.webshop.pages import BACK_TO_SEARCH, BUY, NEXT, PREVIOUS
from envs.webshop.reading import Offer, View, Wish, parse_wish, read_page, stem, stems, tokens

# Share of the telling words that a product has to have; not all, since its kind may have another name there.
_ENOUGH = 0.9

# What a lower rank and a missing option cost a product, in shares of the telling words.
# The search reads options and descriptions, which titles do not show, so rank says much.
_A_RANK = 0.15
_AN_OPTION = 0.15

# Fewest steps it takes to leave a list for another one and buy something there.
_TO_START_AGAIN = 5

_TO_READ = ("features", "description")
_LAST_PAGE = 3


@dataclass
class _Opened:
    """A product that was looked at.

    Attributes:
        offer: As listed.
        choice: Values to select there, by the option that gets them.
        lacking: Values asked for that it does not have.
        said: Words, without endings, that its pages have.
        read: Sub pages read.
        left: Whether it was rejected.
    """

    offer: Offer
    choice: dict[str, str]
    lacking: list[str]
    said: set[str]
    read: list[str] = field(default_factory=list)
    left: bool = False


class Buyer:
    """Plays one trajectory at a time; `reset`, then `act` once per step.

    Attributes:
        thought: What the last action is for, in words.
    """

    def __init__(self, *, seed: int = 0, noise: float = 0.0, max_steps: int = 15) -> None:
        """Sets the habits of this buyer.

        Args:
            seed: Of its own random draws; one stream over all trajectories.
            noise: Probability of opening any product of a page instead of the most promising one, and of
                buying what it looks at without reading on.
            max_steps: Step limit it plans for.

        Raises:
            ValueError: noise is no probability, or the steps do not suffice to buy anything.
        """
        if not 0.0 <= noise <= 1.0:
            raise ValueError(f"noise must be in [0, 1], got {noise}")
        if max_steps < 3:
            raise ValueError(f"max_steps must be at least 3 (search, look, buy), got {max_steps}")
        self._rng = random.Random(f"webshop expert {seed}")
        self._noise, self._max_steps = noise, max_steps
        self._wish: Wish | None = None
        self.thought = ""

    def reset(self, instruction: str) -> None:
        """Starts a trajectory with its instruction."""
        self._wish = parse_wish(instruction)
        self._wanted = {stem(word) for word in self._wish.words}
        self._met: set[str] = set()
        self._left = self._max_steps
        self._opened: dict[str, _Opened] = {}
        self._listed: dict[str, Offer] = {}
        self._queries = _queries(self._wish)
        self._action, self._here, self._place = "", "", "start"
        self._selected: dict[str, str] = {}
        self._hasty = self._astray = False
        self.thought = ""

    def act(self, observation: Observation) -> str:
        """Reads the page and chooses the next action; sets `thought`.

        Raises:
            RuntimeError: called before `reset`.
            ValueError: the page is not in mode "text".
        """
        if self._wish is None:
            raise RuntimeError("Buyer.act before reset")
        view = read_page(observation)
        self._take_in(self._action, view)
        decide = {"start": self._at_start, "results": self._at_results, "item": self._at_item}
        self.thought, self._action = decide.get(view.place, self._at_sub)(view)
        return self._action

    def observe(self, action: str, observation: Observation) -> None:
        """Takes in a step that someone else chose (`act` does it for its own)."""
        self._take_in(action, read_page(observation))

    def _take_in(self, action: str, view: View) -> None:
        own, self._action = action == self._action, ""
        if not action:
            return
        self._left -= 1
        name = action[6:-1] if action.startswith("click[") else ""
        if action.startswith("search["):
            self._astray = not own
        if view.place == "results":
            self._listed = {offer.name.lower(): offer for offer in view.offers}
            self._met.update(*(stems(offer.title) for offer in view.offers))
        if view.place in ("start", "results"):
            self._here, self._selected = "", {}
        elif view.place == "item" and name in self._listed and not self._here:
            self._open(self._listed[name], view)
        elif view.place == "item":
            self._selected |= {_getting(name, view): name for _, values in view.options if name in values}
        elif self._place == "item" and name in _TO_READ and self._here:
            opened = self._opened[self._here]
            opened.read.append(name)
            opened.said |= stems(view.text)
            self._met |= opened.said
        self._place = view.place

    def _open(self, offer: Offer, view: View) -> None:
        self._here = offer.key
        self._hasty = self._rng.random() < self._noise
        if offer.key in self._opened:
            self._opened[offer.key].offer = offer
        else:
            self._met.update(*(stems(value) for _, values in view.options for value in values))
            values, lacking = _choose(self._wish, dict(view.options))
            said = stems(offer.title) | {s for value in values for s in stems(value)}
            choice = {_getting(value, view): value for value in values}
            self._opened[offer.key] = _Opened(offer, choice, lacking, said)

    def _at_start(self, view: View) -> tuple[str, str]:
        query = self._queries[0]
        return f"find {query}", f"search[{query}]"

    def _at_results(self, view: View) -> tuple[str, str]:
        best = self._best()
        left = {name for name, opened in self._opened.items() if opened.left}
        here = {offer.key: offer for offer in view.offers}
        fresh = [offer for offer in view.offers if offer.key not in left]
        if self._astray and self._left > _TO_START_AGAIN:
            return self._click("look elsewhere", BACK_TO_SEARCH)
        affordable = [offer for offer in fresh if offer.low <= self._wish.limit]
        if best is not None and (self._suits(best) or not self._time_for_another(best)):
            if best.offer.key in here:
                return self._look_at(here[best.offer.key])
            if self._left > self._cost(best) + 1:  # it is not on this page: a search for its title finds it
                title = " ".join(tokens(best.offer.title))
                return f"find {title}", f"search[{title}]"
        if affordable:
            if self._rng.random() < self._noise:
                offer = self._rng.choice(affordable)
            else:
                offer = max(affordable, key=lambda offer: self._promise(offer, view))
            return self._look_at(offer)
        if view.number < _LAST_PAGE and view.number * len(view.offers) < view.total:
            return self._click("look further", NEXT)
        if len(self._queries) > 1:
            self._queries.pop(0)
            return self._click("look elsewhere", BACK_TO_SEARCH)
        if best is not None and best.offer.key in here:
            return self._look_at(here[best.offer.key])
        if fresh:
            return self._look_at(fresh[0])
        return self._click("look further", NEXT)

    def _at_item(self, view: View) -> tuple[str, str]:
        opened = self._opened.get(self._here)
        if opened is None:  # only after steps that someone else chose
            return self._click("look elsewhere", BACK_TO_SEARCH)
        name = opened.offer.name
        if self._left > self._cost(opened) and not self._hasty:
            unread = [page for page in _TO_READ if page not in opened.read]
            if opened.lacking and self._worth_leaving(opened):
                opened.left = True
                return self._click(f"leave {name}: no {opened.lacking[0]}", PREVIOUS)
            if not self._suits(opened) and unread and self._left >= self._cost(opened) + 2:
                return self._click(f"read {unread[0]} of {name}", unread[0])
            if not self._suits(opened) and self._worth_leaving(opened):
                opened.left = True
                return self._click(f"leave {name}: too little said", PREVIOUS)
        pending = self._pending(opened)
        if pending and self._left > 1:
            return self._click(f"choose {pending[0]}", pending[0])
        return self._click(f"buy {name}", BUY)

    def _at_sub(self, view: View) -> tuple[str, str]:
        opened = self._opened.get(self._here)
        return self._click(f"go back to {opened.offer.name if opened else 'the product'}", PREVIOUS)

    def _look_at(self, offer: Offer) -> tuple[str, str]:
        return self._click(f"look at {offer.name}", offer.name)

    def _click(self, thought: str, name: str) -> tuple[str, str]:
        return thought, f"click[{name.lower()}]"

    def _suits(self, opened: _Opened) -> bool:
        return not opened.lacking and self._share(opened.said) >= _ENOUGH

    def _share(self, said: set[str]) -> float:
        """Share of the telling words among some words.

        People write many words that say nothing about the product; only words that the shop uses too count.
        """
        wanted = self._wanted if self._wish.options else self._wanted & self._met
        return len(wanted & said) / len(wanted) if wanted else 1.0

    def _cost(self, opened: _Opened) -> int:
        """Steps to buy a product from its page."""
        return 1 + len(self._pending(opened))

    def _pending(self, opened: _Opened) -> list[str]:
        """Values of a product still to select."""
        selected = self._selected if opened.offer.key == self._here else {}
        return [value for name, value in opened.choice.items() if selected.get(name) != value]

    def _best(self) -> _Opened | None:
        def value(opened: _Opened) -> float:
            return self._share(opened.said) - _AN_OPTION * len(opened.lacking)

        return max(self._opened.values(), key=value, default=None)

    def _time_for_another(self, best: _Opened) -> bool:
        """Whether, at a list, another product can be looked at and the best one still be bought after it."""
        return self._left >= self._cost(best) + 3

    def _worth_leaving(self, opened: _Opened) -> bool:
        """Whether, at a product, there is time for another one, or a better one is known and in reach."""
        best = self._best()
        if best is not opened and best is not None:
            return self._left >= self._cost(best) + 2
        return self._left >= self._cost(opened) + 4

    def _promise(self, offer: Offer, view: View) -> float:
        """How promising a listed product is: words in the title, a price surely low enough, a high rank."""
        cheap = 0.2 * (offer.high <= self._wish.limit)
        return self._share(stems(offer.title)) + cheap - _A_RANK * view.offers.index(offer)


def _getting(value: str, view: View) -> str:
    """The option that gets a value clicked: of several that have it, the last."""
    return [name for name, values in view.options if value in values][-1]


def _queries(wish: Wish) -> list[str]:
    """Searches to try, best first: everything asked for, then without the options."""
    words = " ".join(wish.words)
    options = " ".join(word for value in wish.options.values() for word in tokens(value))
    return list(dict.fromkeys(query for query in (f"{words} {options}".strip(), words) if query)) or ["shop"]


def _choose(wish: Wish, options: dict[str, tuple[str, ...]]) -> tuple[list[str], list[str]]:
    """Values to select on a page, and those asked for that are not there.

    Options an instruction names have to be there under that name. Otherwise a value is taken where the
    instruction has all its words, the longest one of an option.
    """
    if wish.options:
        there = {name: value for name, value in wish.options.items() if value in options.get(name, ())}
        return list(there.values()), [value for name, value in wish.options.items() if name not in there]
    asked = stems(wish.text)
    choice = []
    for values in options.values():
        named = [value for value in values if tokens(value) and stems(value) <= asked]
        if named:
            choice.append(max(named, key=lambda value: len(tokens(value))))
    return choice, []
