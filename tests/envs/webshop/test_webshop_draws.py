"""Goals made on access: equal to all of them made at once, kept beside the products, never half written."""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
import os
import pickle
import random
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.webshop.arrays import appearing
from envs.webshop.catalogue import Catalogue
from envs.webshop.draws import make_draws
from envs.webshop.generate import NOUN_SOURCE, generate_products
from envs.webshop.goals import KINDS, NO_LIMIT
from envs.webshop.product import HumanInstruction, ShopError
from envs.webshop.shop import open_shop
from envs.webshop.splits import SPLITS
from envs.webshop.store import Store, write_store
from tests.envs.webshop.small_shop import PRODUCTS, product, small_catalogue, small_shop

GENERATED = list(generate_products(60, seed=4))
HELD = Catalogue.from_products(GENERATED, noun_source=NOUN_SOURCE)
ODD = [
    product("A1", "No combination", options={"size": ()}, instruction="x", instruction_attributes=("y",)),
    product("A2", "Dear", prices=(990.0, 5000.0), instruction="Find me z", instruction_attributes=("y",)),
    product(
        "A3", "Talked of", human=tuple(HumanInstruction(f"{n}..", ("y",) * (n % 3), ()) for n in range(7))
    ),
]
KEPT = "goals-2-synthetic-0-233"


def all_at_once(products, kind, seed, order):
    """The published procedure: id, instruction, attributes, options, limit of every goal; and the prices."""
    rng = random.Random(seed)
    drawn = {p.asin: rng.uniform(*p.prices) for p in products if len(p.prices) == 2}
    goals = []
    for p in products:
        price = drawn.get(p.asin, p.prices[0] if p.prices else 100.0)
        names = sorted(p.options)
        asked = []
        if kind == "human":
            asked = [[(n, w.text.strip("."), w.attributes, w.options)] for n, w in enumerate(p.human)]
            asked = [group for group in asked if group[0][2]]
        elif p.instruction is not None:
            combinations = itertools.product(*(p.options[name] for name in names))
            chosen = [tuple(zip(names, values, strict=True)) for values in combinations]
            texts = [", and ".join(f"{name}: {value}" for name, value in pairs) for pairs in chosen]
            asked = [
                [
                    (n, p.instruction + (f" with {text}" if text else ""), p.instruction_attributes, pairs)
                    for n, (text, pairs) in enumerate(zip(texts, chosen, strict=True))
                ]
            ]
        for group in asked:
            tens = [ten for ten in range(10, 1000, 10) if ten > price][:4]
            limit = float(max(rng.sample(tens, 2))) if len(tens) > 1 else NO_LIMIT
            end = "" if limit == NO_LIMIT else f", and price lower than {limit:.2f} dollars"
            goals += [(f"{kind}/{p.asin}/{n}", text + end, a, o, limit) for n, text, a, o in group]
    random.Random(order).shuffle(goals)
    return goals, drawn


@pytest.mark.parametrize("products", [GENERATED, list(PRODUCTS), ODD], ids=["generated", "small", "odd"])
@pytest.mark.parametrize("kind", KINDS)
def test_goals_are_those_made_all_at_once(products, kind):
    shop = open_shop(small_catalogue(products), kind=kind, seed=5, order=8)
    goals, drawn = all_at_once(products, kind, seed=5, order=8)
    made = [(g.id, g.instruction, g.attributes, g.options, g.price_limit) for g in shop.goals]
    assert made == goals
    assert shop.drawn == drawn and len(shop.drawn) == len(drawn)
    for p in products:
        assert (p.asin in shop.drawn) == (p.asin in drawn)


@pytest.mark.parametrize(
    ("kind", "sizes", "digest"),
    [
        ("synthetic", [213, 13, 17], "7adc4e1be7bc49c7a76405947e1f9a0d"),
        ("human", [28, 7, 5], "6a4654500ba83c259baee7bd2316fbe4"),
    ],
)
def test_seeds_decide_the_same_for_ever(kind, sizes, digest):
    """Recorded when all goals were made at once. If this has to change, raise `draws.VERSION`."""
    shop = open_shop(HELD, kind=kind, seed=7)
    told = "".join(map(repr, shop.goals)) + repr(sorted(shop.drawn.items()))
    assert [len(shop.of_split(split)) for split in SPLITS] == sizes
    assert hashlib.sha256(told.encode()).hexdigest()[:32] == digest


SHOP = small_shop()
GOALS = list(SHOP.goals)
BOUND = st.none() | st.integers(-50, 50)


@settings(deadline=None)
@given(BOUND, BOUND, st.none() | st.integers(-5, 5).filter(bool))
def test_a_slice_is_what_a_list_would_give(start, stop, step):
    part = SHOP.goals[start:stop:step]
    assert list(part) == GOALS[start:stop:step]
    assert len(part) == len(GOALS[start:stop:step])
    assert part == SHOP.goals[start:stop:step]


def test_goals_are_a_sequence():
    goals = SHOP.goals
    assert goals[-1] == GOALS[-1] and goals[np.int64(3)] == GOALS[3]
    assert goals.index(GOALS[9]) == 9 and GOALS[9] in goals and replace(GOALS[9], id="") not in goals
    assert goals != goals[1:] and goals != goals[::-1] and goals != GOALS
    assert not goals[5:5] and list(reversed(goals)) == GOALS[::-1]
    assert sorted(goals.in_load_order(), key=GOALS.index) == GOALS
    for at in (len(GOALS), -len(GOALS) - 1):
        with pytest.raises(IndexError):
            goals[at]
    for split in {goal.split for goal in GOALS}:
        assert list(SHOP.of_split(split)[:3]) == [goal for goal in GOALS if goal.split == split][:3]


@pytest.mark.parametrize("products", [GENERATED, list(PRODUCTS), ODD], ids=["generated", "small", "odd"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_goals_are_called_is_known_before_they_are_made(products, kind):
    class Unread(Catalogue):
        def __getitem__(self, asin):
            raise AssertionError("a product was looked at to name its goals")

    shop = open_shop(small_catalogue(products), kind=kind, seed=5, order=8)
    expected = [(goal.id, goal.family) for goal in shop.goals]
    shop.goals._catalogue.__class__ = Unread
    roster = shop.goals.roster()
    assert roster.size == len(expected)
    assert list(zip(*roster.names(), strict=True)) == expected
    assert set(shop.goals.families) == {family for _, family in expected}
    some = sorted({len(expected) - 1, 0}, reverse=True)
    assert list(zip(*roster.take(some).roster().names(), strict=True)) == [expected[at] for at in some]
    assert len(roster.take([])) == 0


def test_too_many_combinations_are_named_at_once():
    options = {f"option {i}": tuple(map(str, range(50))) for i in range(20)}
    endless = product("B1", "Mug", options=options, instruction="x", instruction_attributes=("y",))
    with pytest.raises(ShopError, match="product 'B1' alone has 9536743164062500000000000000000000, one for"):
        make_draws(small_catalogue([endless]), "synthetic", 0, 233)


# --- kept in the store -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draws") / "shop"
    write_store(folder, GENERATED, noun_source=NOUN_SOURCE)
    return folder


@pytest.fixture
def copy(written, tmp_path):
    return shutil.copytree(written, tmp_path / "shop")


MEMORY = open_shop(HELD)


def equal(shop):
    return shop.goals == MEMORY.goals and shop.drawn == MEMORY.drawn


def kept(folder):
    return sorted(name for name in os.listdir(folder) if "goals" in name)


def test_the_second_opening_reads_what_the_first_has_kept(copy, monkeypatch):
    manifest = (copy / "manifest.json").read_bytes()
    assert equal(open_shop(Catalogue.open(copy)))
    assert kept(copy) == [KEPT]
    assert (copy / "manifest.json").read_bytes() == manifest  # servers compare it

    def refuse(self):
        raise AssertionError("all products are read again")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "values", refuse)
        shop = open_shop(Catalogue.open(copy), rule="papers")
    assert [goal.id for goal in shop.goals] == [goal.id for goal in MEMORY.goals]
    assert isinstance(np.load(copy / KEPT / "order.npy", mmap_mode="r"), np.memmap)


def test_other_seeds_and_kinds_are_kept_apart(copy):
    catalogue = Catalogue.open(copy)
    for options in ({}, {"kind": "human"}, {"seed": 1}, {"order": 1}) * 2:
        shop = open_shop(catalogue, **options)
        held = open_shop(HELD, **options)
        assert (shop.goals, shop.drawn) == (held.goals, held.drawn)
    assert kept(copy) == sorted(
        [KEPT, "goals-2-human-0-233", "goals-2-synthetic-1-233", "goals-2-synthetic-0-1"]
    )


def test_a_shop_without_price_ranges_is_kept(tmp_path):
    write_store(tmp_path / "shop", [p for p in PRODUCTS if len(p.prices) < 2], noun_source="by hand")
    for _ in range(2):
        shop = open_shop(Catalogue.open(tmp_path / "shop"))
        assert dict(shop.drawn) == {} and shop.price("B000000001") == 12.5


def open_at_once(folder, barrier, answers):
    catalogue = Catalogue.open(folder)
    barrier.wait(60)
    answers.put(equal(open_shop(catalogue)))


def test_processes_that_open_a_new_shop_at_once(copy):
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(4), context.Queue()
    workers = [context.Process(target=open_at_once, args=(copy, barrier, answers)) for _ in range(4)]
    for worker in workers:
        worker.start()
    assert [answers.get(timeout=120) for _ in workers] == [True] * 4
    for worker in workers:
        worker.join()
    assert kept(copy) == [KEPT]


def test_threads_that_open_a_new_shop_at_once(copy, recwarn):
    catalogue = Catalogue.open(copy)
    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(lambda _: equal(open_shop(catalogue)), range(6)))
    assert kept(copy) == [KEPT]
    assert not recwarn.list


def test_the_first_to_finish_a_folder_wins(tmp_path):
    with appearing(tmp_path / "a") as first:
        (first / "file").write_text("first")
        with pytest.raises(OSError, match="not empty"), appearing(tmp_path / "a") as second:  # noqa: PT012
            (second / "file").write_text("second")
            os.replace(first, tmp_path / "a")
            first.mkdir()
        (tmp_path / "a" / "file").rename(first / "file")
    assert (tmp_path / "a" / "file").read_text() == "first"
    assert os.listdir(tmp_path) == ["a"]


def test_what_a_killed_process_left_does_not_matter(copy):
    (copy / f".{KEPT}.partial-0").mkdir()
    (copy / f".{KEPT}.partial-0" / "order.npy").write_bytes(b"half")
    assert equal(open_shop(Catalogue.open(copy)))


def open_as_nobody(folder, answers):
    if os.getuid() == 0:
        os.setuid(65534)  # root may write anywhere
    catalogue = Catalogue.open(folder)
    with pytest.warns(UserWarning, match="cannot be kept there") as told:
        answers.put(equal(open_shop(catalogue)))
    answers.put([str(warning.message) for warning in told])


def test_a_folder_that_cannot_be_written_is_said_once_and_works(written):
    with tempfile.TemporaryDirectory() as own:  # pytest's folders can be entered by their owner only
        folder = shutil.copytree(written, Path(own) / "shop", ignore=shutil.ignore_patterns("goals-*"))
        os.chmod(own, 0o755)
        folder.chmod(0o555)
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        worker = context.Process(target=open_as_nobody, args=(folder, answers))
        worker.start()
        assert answers.get(timeout=120)
        (said,) = answers.get(timeout=120)
        worker.join()
        assert f"goals of '{folder}' cannot be kept there (" in said and "Open it once where" in said
        assert kept(folder) == []
        folder.chmod(0o755)


def test_a_shop_can_be_sent_to_a_process(copy):
    for catalogue in (Catalogue.open(copy), HELD):
        shop = open_shop(catalogue)
        sent = pickle.loads(pickle.dumps(shop))
        assert equal(sent) and sent.catalogue.folder == catalogue.folder
        assert sent.of_split("train")[:5] == shop.of_split("train")[:5]


def test_damage_is_named_with_its_remedy(written, tmp_path):
    open_shop(Catalogue.open(written))
    for number, name in enumerate(sorted(os.listdir(written / KEPT))):
        for damage in (lambda file: file.write_bytes(file.read_bytes()[:-3]), Path.unlink):
            folder = shutil.copytree(written, tmp_path / f"{number}-{damage.__name__.strip('<>')}")
            damage(folder / KEPT / name)
            with pytest.raises(ShopError, match=f"{name}'.*Delete this folder; its goals are made again"):
                open_shop(Catalogue.open(folder))
            shutil.rmtree(folder / KEPT)
            assert equal(open_shop(Catalogue.open(folder)))


@pytest.mark.parametrize("text", ["[]", "{}", '{"shop": 1, "checksums": {"order": 1}}', "\xff"])
def test_a_manifest_in_ruins_is_named(copy, text):
    open_shop(Catalogue.open(copy))
    (copy / KEPT / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ShopError, match="manifest.json' is damaged: .*Delete this folder"):
        open_shop(Catalogue.open(copy))


def test_goals_of_another_shop_are_refused(copy, tmp_path):
    open_shop(Catalogue.open(copy))
    write_store(tmp_path / "other", PRODUCTS, noun_source="by hand")
    shutil.copytree(copy / KEPT, tmp_path / "other" / KEPT)
    with pytest.raises(ShopError, match=f"{KEPT}' holds the goals of another shop. Delete this folder"):
        open_shop(Catalogue.open(tmp_path / "other"))
    assert json.loads((copy / KEPT / "manifest.json").read_text()).keys() == {"shop", "checksums"}
