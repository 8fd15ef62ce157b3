"""What an observation admits, blanks included."""

import pytest

from envs.base import Observation, fill

SHOP = Observation("", "", ("search[<your query>]", "click[< prev]", "click[next >]", "click[red]"))


@pytest.mark.parametrize("action", ["search[red mug]", "search[<your query>]", "click[red]", "click[< prev]"])
def test_what_is_listed_or_fills_a_blank_is_admitted(action):
    assert SHOP.admits(action)


@pytest.mark.parametrize(
    "action", ["search[]", "search[red", "Search[red]", "click[blue]", "click[ prev]", ""]
)
def test_nothing_else_is(action):
    assert not SHOP.admits(action)


def test_without_a_blank_the_list_is_all():
    assert not Observation("", "", ("look", "go to shelf 1")).admits("go to shelf 2")


def test_a_blank_is_filled_and_a_command_without_one_stays():
    assert fill("search[<your query>]", r"a \1 [b]") == r"search[a \1 [b]]"
    assert fill("click[< prev]", "x") == "click[< prev]"
