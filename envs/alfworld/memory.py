"""What a player of ALFWorld has seen so far, read from the texts alone.

`Memory` follows one trajectory: it is told each action and the text that answered it, whoever chose the
action. It knows where objects were last seen, which receptacles are open, closed or not looked at yet, and
which stand where the agent is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAME = r"[a-z]+ \d+"
_NAMES = re.compile(_NAME)
_SEEN = re.compile(rf"(?:On the ({_NAME}),|The ({_NAME}) is open\. In it,) you see ([^.]*)\.")
_CLOSED = re.compile(rf"The ({_NAME}) is closed\.")
_TAKEN = re.compile(rf"You pick up the ({_NAME}) from the {_NAME}\.")
_PUT = re.compile(rf"You (?:move|put) the ({_NAME}) (?:to|in/on) the ({_NAME})\.")
_CHANGED = re.compile(rf"You (clean|heat|cool) the ({_NAME}) using the {_NAME}\.")
_FACING = re.compile(r"You are facing the ([^.]*)\. Next to it")
_CARRYING = re.compile(rf"You are carrying: an? ({_NAME})\.")
_INTRO = re.compile(r"Looking quickly around you, you see ([^.]*)\.")
_NOTHING = "Nothing happens."

UNSEEN, CLOSED, OPEN = "unseen", "closed", "open"


def kind(name: str) -> str:
    """Class of a shown name: `sinkbasin 1` → `sinkbasin`."""
    return name.rsplit(" ", 1)[0]


def number(name: str) -> int:
    """Number of a shown name: `sinkbasin 1` → 1."""
    return int(name.rsplit(" ", 1)[1])


class Memory:
    """State of knowledge along one trajectory.

    Attributes:
        receptacles: All receptacles, in the order of the introduction.
        status: `unseen`, `closed` or `open` (its content was read) of each.
        where: Receptacle in which each object was seen last; what is held has none.
        held: The object in hand, or "".
        changed: (verb, object) done so far: cleaned, heated, cooled.
        here: Receptacles known to stand where the agent is.
        refused: Commands answered by "Nothing happens." since the last one that was not.
        old_grammar: Whether the game speaks the grammar of before 0.4 ("put x in/on y").
    """

    def __init__(self, introduction: str) -> None:
        """Starts from the first observation.

        Raises:
            ValueError: no list of receptacles in it.
        """
        match = _INTRO.search(introduction)
        if not match:
            raise ValueError(f"not an introduction of ALFWorld: {introduction[:120]!r}")
        self.receptacles: list[str] = _NAMES.findall(match[1])
        self.status = dict.fromkeys(self.receptacles, UNSEEN)
        self.where: dict[str, str] = {}
        self.held = ""
        self.changed: set[tuple[str, str]] = set()
        self.here: set[str] = set()
        self.refused: list[str] = []
        self.old_grammar = False
        self._groups: dict[str, set[str]] = {r: {r} for r in self.receptacles}

    def update(self, action: str, text: str, admissible: Sequence[str] = ()) -> None:
        """Takes in one action and its answer.

        Args:
            action: The command that was played.
            text: The observation that followed.
            admissible: Commands legal now; when given, what they tell about this place is used too.
        """
        if text.strip() == _NOTHING:
            self._refuse(action)
        else:
            self.refused.clear()
            self._act(action, text)
            self._look(text)
        if admissible:
            self._read_admissible(admissible)

    def contents(self, receptacle: str) -> list[str]:
        """Objects last seen in a receptacle, by name."""
        return sorted(o for o, r in self.where.items() if r == receptacle)

    def forget_contents(self) -> None:
        """Makes every receptacle unseen again; what is known to be closed stays so."""
        for place, status in self.status.items():
            self.status[place] = CLOSED if status == CLOSED else UNSEEN
        self.where.clear()

    def _refuse(self, action: str) -> None:
        """Learns from "Nothing happens."."""
        self.refused.append(action)
        place = action.removeprefix("go to ")
        if place != action and place in self.status and self.here:
            self._stands_here(place)  # a legal name not gone to: it shares this location
        elif action.startswith("examine ") and action[8:] in self.status:
            self.here.discard(action[8:])  # it does not, after all
        match = re.fullmatch(rf"take ({_NAME}) from ({_NAME})", action)
        if match:
            self.where.pop(match[1], None)

    def _act(self, action: str, text: str) -> None:
        place = action.removeprefix("go to ")
        if place != action and text.startswith("You arrive at"):
            self.old_grammar = self.old_grammar or text.startswith("You arrive at loc ")
            self.here = set(self._groups.get(place, {place}))
        for match in _CLOSED.finditer(text):
            self._set_status(match[1], CLOSED)
        if action.startswith("close ") and text.startswith("You close"):
            self._set_status(action[6:], CLOSED)
        if match := _TAKEN.match(text):
            self.held = match[1]
            self.where.pop(match[1], None)
        if match := _PUT.match(text):
            self.held = ""
            self.where[match[1]] = match[2]
        if match := _CHANGED.match(text):
            self.changed.add((match[1], match[2]))
            if match[1] in ("heat", "cool"):
                self.changed.discard(("cool" if match[1] == "heat" else "heat", match[2]))

    def _look(self, text: str) -> None:
        """Reads contents, facing and inventory."""
        for match in _SEEN.finditer(text):
            place = match[1] or match[2]
            self._set_status(place, OPEN)
            for gone in self.contents(place):
                del self.where[gone]
            for name in _NAMES.findall(match[3]):
                if name != self.held:  # a thing can lie in two receptacles and stay listed in one
                    self.where[name] = place
        if match := _FACING.search(text):
            for name in _NAMES.findall(match[1]):
                self._stands_here(name)
        if match := _CARRYING.search(text):
            self.held = match[1]

    def _read_admissible(self, admissible: Sequence[str]) -> None:
        """Uses legal commands: what can be examined, opened, taken from is here."""
        for command in admissible:
            verb, _, rest = command.partition(" ")
            if verb == "examine" and rest in self.status:
                self._stands_here(rest)
            elif verb == "open":
                self._set_status(rest, CLOSED)
            elif verb == "close":
                self._set_status(rest, OPEN)
            elif verb == "take":
                name, _, place = rest.partition(" from ")
                self.where[name] = place
                self._set_status(place, OPEN)

    def _stands_here(self, place: str) -> None:
        self.here.add(place)
        group = set().union(*(self._groups.get(r, {r}) for r in self.here))
        for member in group:
            self._groups[member] = group
        self.here = set(group)

    def _set_status(self, place: str, status: str) -> None:
        self.status[place] = status
