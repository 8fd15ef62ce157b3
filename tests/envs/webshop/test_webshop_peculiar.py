"""Peculiarities of the published shop, one by one, and what is refused where it crashes."""

from __future__ import annotations

from envs.webshop.actions import act, admissible
from tests.envs.webshop.visit import SHOP, Visit, at_gift, at_mug


def test_products_by_query_and_category():
    visit = Visit().do("search[<q> Mugs]")
    assert visit.state.found == tuple(a for a in SHOP.catalogue.asins if SHOP.catalogue[a].query == "mugs")
    assert visit.do("search[<q>]").state.found == ()
    assert visit.do("search[<c> fashion and more]").state.found == ("B000000006",)
    assert visit.do("search[<c> nothing]").state.found == ()
    assert "Page 2" in visit.do("search[<c> garden]", "click[next >]").text


def test_random_listing_comes_from_the_seed():
    first = Visit(seed=5).do("search[<r>]")
    assert sorted(first.state.found) == sorted(SHOP.catalogue.asins)  # 50 of them, or all
    assert first.state.found == Visit(seed=5).do("search[<r> whatever]").state.found
    assert first.state.found != Visit(seed=6).do("search[<r>]").state.found
    before = first.state.found
    assert first.do("click[next >]").state.found != before  # drawn anew, as published
    after = first.state.found
    assert Visit(seed=5).do("search[<r>]", "click[back to search]", "search[<r>]").state.found == after


def test_values_named_like_buttons_are_those_buttons():
    gift = at_gift()
    assert gift.do("click[features]").state.sub == "Features"
    assert at_gift().do("click[attributes]").state.sub == "Attributes"  # though there is no such button
    assert at_gift().do("click[next >]").state.options == (("style", "next >"),)  # not at the results
    assert at_gift().do("click[buy now]").place == "done"


def test_of_equal_values_the_last_option_gets_it():
    gift = at_gift()
    assert list(gift.targets).count("red") == 1
    assert gift.do("click[red]").state.options == (("trim", "red"),)
    assert gift.rich.count("[clicked button] red") == 2  # and both look selected


def test_unclickable_values_are_not_offered():
    gift = at_gift()
    offered = admissible(gift.targets, gift.state)
    assert {"", "a [b] c"} <= gift.targets.keys()
    assert not {"click[]", "click[a [b] c]"} & set(offered)
    assert gift.do("click[a [b] c]").refused


def test_selection_marks_depend_on_the_address():
    gift = at_gift().do('click[12" wide]', "click[größe]")
    assert gift.state.options == (("trim", '12" wide'), ("color", "größe"))
    assert "clicked" not in gift.rich  # both are written otherwise in the address
    quoted = Visit().do('search[gift "red"]', "click[b000000003]")
    assert quoted.state.options == () and "[clicked button] red" in quoted.rich


def test_page_names_in_the_query_mislead_prev():
    results = Visit().do("search[search_results mug]")
    asin = next(n for n, part in results.targets.items() if part.kind == "product")
    there = results.do(f"click[{asin}]", "click[< prev]")
    assert there.text.endswith("Page 0 (Total results: 24) [SEP] Next >")
    assert "Page 1" in there.do("click[next >]").text
    sub = Visit().do("search[item_page stone]", "click[b000000001]", "click[description]", "click[< prev]")
    assert sub.place == "results"  # not the item page


def test_an_id_in_lower_case_can_be_opened():
    visit = Visit().do("search[lower]", "click[b00lower05]")
    assert visit.state.asin == "b00lower05"


def test_every_admissible_action_is_accepted():
    for visit in (
        Visit(),
        Visit().do("search[mug]"),
        at_mug(),
        at_gift(),
        at_gift().do("click[description]"),
    ):
        for action in admissible(visit.targets, visit.state):
            assert act(SHOP, visit.state, visit.targets, action) is not None, action


def test_long_and_strange_queries():
    for query in ("mug " * 2500, "é" * 10_000, "🙂 \u202e {0} %s", "]" * 50, "\x00\t", "mug\u2028stone"):
        assert Visit().do(f"search[{query}]").place == "results"
