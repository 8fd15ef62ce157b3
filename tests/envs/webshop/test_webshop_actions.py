"""What actions do, page by page, in texts written by hand."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.webshop.actions import admissible, parse_action
from envs.webshop.pages import quoted_text
from envs.webshop.state import State
from tests.envs.webshop.visit import MUG, Visit, at_gift, at_mug

SENTENCE = MUG.instruction


def test_the_sentence_of_a_synthetic_goal():
    assert re.fullmatch(
        r"Find me hand made mugs with color: blue, and size: small, and price lower than \d0\.00 dollars",
        SENTENCE,
    )


def test_start_page():
    visit = Visit()
    assert visit.text == f"WebShop [SEP] Instruction: [SEP] {SENTENCE} [SEP] Search"
    assert visit.rich == f"WebShop\nInstruction: \n{SENTENCE}\n[button] Search [button_]\n"
    assert quoted_text(visit.parts, visit.state) == "'Search'"
    assert list(visit.targets) == ["search"]
    assert admissible(visit.targets, visit.state) == ("search[<your query>]",)
    assert visit.state.address == "http://127.0.0.1:3000/7"


def test_results_page():
    visit = Visit().do("search[Blue stone]")
    assert visit.text == (
        f"Instruction: [SEP] {SENTENCE} [SEP] Back to Search [SEP] Page 1 (Total results: 1) [SEP] "
        "Next > [SEP] B000000001 [SEP] Blue Stone Mug [SEP] $12.5"
    )
    assert visit.rich == (
        f"Instruction:\n{SENTENCE}\n[button] Back to Search [button_]\nPage 1 (Total results: 1)\n"
        "[button] Next > [button_]\n\n[button] B000000001 [button_]\nBlue Stone Mug\n$12.5\n"
    )
    assert quoted_text(visit.parts, visit.state) == (
        "'Back to Search' [SEP] 'Page 1 (Total results: 1)' [SEP] 'Next >' [SEP] "
        "'B000000001' [SEP] 'Blue Stone Mug' [SEP] '$12.5'"
    )
    assert admissible(visit.targets, visit.state) == (
        "click[back to search]",
        "click[next >]",
        "click[b000000001]",
    )
    assert visit.state.address == "http://127.0.0.1:3000/search_results/7/blue+stone/1"


def test_item_page_with_options_selected():
    visit = at_mug().do("click[x-large]", "click[red]")
    body = (
        "Back to Search [SEP] < Prev [SEP] color [SEP] blue [SEP] red [SEP] size [SEP] small [SEP] "
        "x-large [SEP] Blue Stone Mug [SEP] Price: $12.5 [SEP] Rating: N.A. [SEP] "
        "Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    assert visit.text == f"Instruction: [SEP] {SENTENCE} [SEP] {body}"
    assert visit.rich == (
        "You have clicked x-large.\nYou have clicked red.\n"
        f"Instruction:\n{SENTENCE}\n[button] Back to Search [button_]\n[button] < Prev [button_]\n"
        "color\n  [button] blue [button_]\n  [clicked button] red [clicked button_]\n"
        "size\n  [button] small [button_]\n  [clicked button] x-large [clicked button_]\n"
        "Blue Stone Mug\nPrice: $12.5\nRating: N.A.\n[button] Description [button_]\n"
        "[button] Features [button_]\n[button] Reviews [button_]\n[button] Buy Now [button_]\n"
    )
    assert list(visit.targets) == (
        ["back to search", "< prev", "description", "features", "reviews", "buy now"]
        + ["blue", "red", "small", "x-large"]
    )
    assert visit.state.address == (
        'http://127.0.0.1:3000/item_page/7/B000000001/blue+stone/1/{"size": "x-large", "color": "red"}'
    )


@pytest.mark.parametrize(
    ("button", "shown"),
    [
        ("Description", ["<b>Sturdy</b> & light, it's a tent"]),
        ("Features", ["HAND MADE - fired twice", "Easy to clean"]),
        ("Reviews", []),
        ("Attributes", ["DUMMY_ATTR", "fashion", "tents", "Outdoor › Tents"]),
    ],
)
def test_sub_pages(button, shown):
    visit = Visit(attributes=True).do("search[tents]", "click[b000000006]")
    assert button in visit.text.split(" [SEP] ")
    visit.do(f"click[{button}]")
    assert visit.text.split(" [SEP] ")[2:] == ["Back to Search", "< Prev", *shown]
    assert visit.state.address.endswith(f"/item_sub_page/7/B000000006/tents/1/{button}/{{}}")
    assert visit.do("click[< prev]").place == "item"


def test_lists_on_sub_pages_keep_their_leading_space_in_the_rich_form():
    visit = at_mug().do("click[features]")
    assert visit.rich.endswith("[button] < Prev [button_]\n HAND MADE - fired twice\n Easy to clean\n")


def test_nothing_is_shown_of_an_empty_description_or_list():
    visit = Visit().do("search[travel]", "click[b000000002]", "click[description]")
    assert visit.text.endswith("[SEP] < Prev")
    assert visit.do("click[< prev]", "click[features]").text.endswith("[SEP] < Prev")


def test_last_page():
    visit = Visit().do(
        "search[stone]", "click[b000000001]", "click[x-large]", "click[blue]", "click[buy now]"
    )
    assert visit.place == "done"
    assert visit.state.bought.total == 3 / 4  # of attribute, colour, size and price, the size is wrong
    start = "Thank you for shopping with us! [SEP] Your code: [SEP] None [SEP] (Paste it in your MTurk "
    assert visit.text.startswith(
        f"{start}interface.) [SEP] Purchased [SEP] asin [SEP] B000000001 [SEP] options [SEP] "
        '{"color": "blue", "size": "x-large"} [SEP] attrs [SEP] None [SEP]'
    )
    assert visit.text.endswith("Your score (min 0.0, max 1.0) [SEP] 0.75 [SEP] Reward Details [SEP] None")
    assert quoted_text(visit.parts, visit.state) == visit.text
    assert visit.targets == {}
    assert visit.state.address == (
        "http://127.0.0.1:3000/done/7/B000000001/{'size': 'x-large', 'color': 'blue'}"
    )
    assert visit.do("click[buy now]").refused
    assert visit.do("search[mug]").place == "results"  # there as well; the environment ends here


def test_options_on_the_last_page_are_written_for_html():
    visit = at_gift().do('click[12" wide]', "click[größe]", "click[buy now]")
    assert visit.place == "done"
    assert 'options [SEP] {"color": "gr\\u00f6\\u00dfe", "trim": "12\\" wide"} [SEP]' in visit.text


def test_paging():
    visit = Visit().do("search[mug]")
    first = visit.text
    assert "Page 1 (Total results: 24)" in first and "< Prev" not in first
    second = visit.do("click[next >]").text
    assert "Page 2 (Total results: 24) [SEP] < Prev [SEP] Next >" in second
    assert len(re.findall(r"B0\d{8}|B00LOWER05|b00lower05", second)) == 10
    assert visit.do("click[next >]", "click[next >]").text.endswith(
        "Page 4 (Total results: 24) [SEP] < Prev [SEP] Next >"  # past the end, and on without one
    )
    assert visit.do(*["click[< prev]"] * 2).text == second
    assert visit.do("click[< prev]").text == first
    assert visit.do("click[< prev]").refused


def test_back_to_the_results_keeps_the_page_and_drops_the_options():
    visit = Visit().do("search[mug]", "click[next >]")
    page_two, asin = visit.text, next(n for n, part in visit.targets.items() if part.kind == "product")
    visit.do(f"click[{asin}]", "click[description]", "click[< prev]", "click[< prev]")
    assert visit.text == page_two
    gift = at_gift().do("click[größe]", "click[description]", "click[< prev]")
    assert gift.state.options == (("color", "größe"),)
    assert gift.do("click[< prev]").state.options == ()


def test_products_looked_at_are_marked_until_the_next_start():
    visit = at_mug().do("click[< prev]")
    assert "[clicked button] B000000001 [clicked button_]" in visit.rich
    assert "[clicked button]" in visit.do("search[stone]").rich
    assert "[clicked button]" not in visit.do("click[back to search]", "search[stone]").rich


def test_back_to_search_forgets():
    visit = at_mug().do("click[red]", "click[back to search]")
    assert visit.state == State(MUG, 0, "7")


@pytest.mark.parametrize(
    "where", [(), ("search[tents]",), ("search[stone]", "click[b000000001]", "click[red]")]
)
def test_search_is_accepted_everywhere(where):
    visit = Visit().do(*where, "search[stone]")
    assert "B000000001 [SEP] Blue Stone Mug" in visit.text
    assert visit.state.options == ()


@pytest.mark.parametrize(
    "action",
    [
        "",
        "search",
        "search[]",
        " search[mug]",
        "Search[mug]",
        "click[search]",
        "click[Search]",
        "click[features]",
        "click[b000000001]",
        "look around",
        "search[dark [red] mug]",
        "search[mug",
        "search\n[mug]",
        "buy now",
        "search[<a> hand made]",
        "search[<a>]",
        "search[<c>]",
    ],
)
def test_what_is_refused_changes_nothing(action):
    visit = Visit()
    before = visit.state
    assert visit.do(action).refused
    assert visit.state is before


@pytest.mark.parametrize(
    "action", ["search[mug]", "search[MUG]x y", "search[mug] then click[b1", "search[mug]]"]
)
def test_what_is_accepted_all_the_same(action):
    assert Visit().do(action).place == "results"


def test_case_of_a_click_does_not_matter():
    assert at_mug().do("click[X-LARGE]").state.options == (("size", "x-large"),)


@given(st.text(st.sampled_from("ac[] \n\r")))
def test_actions_are_read_as_the_published_pattern_does(action):
    match = re.match(r"(.+)\[(.+)\]", action)
    assert parse_action(action) == ((match[1], match[2].lower()) if match else None)


def test_reading_takes_no_longer_for_brackets():
    """The published pattern takes quadratic time on this."""
    assert parse_action("search" + "[" * 1_000_000) is None
