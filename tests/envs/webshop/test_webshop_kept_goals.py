"""Goals kept beside the products of a shop: written once, by whoever is first, and never half written."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from envs.webshop.arrays import appearing
from envs.webshop.catalogue import Catalogue
from envs.webshop.generate import NOUN_SOURCE
from envs.webshop.product import ShopError
from envs.webshop.shop import open_shop
from envs.webshop.store import Store, write_store
from tests.envs.webshop.small_shop import GENERATED, HELD, PRODUCTS

KEPT = "goals-2-synthetic-0-233"


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
