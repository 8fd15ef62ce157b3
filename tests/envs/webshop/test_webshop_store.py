"""Catalogues in folders: the same answers as in memory, shared by processes, and nothing damaged is read."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from envs.webshop.catalogue import Catalogue
from envs.webshop.generate import NOUN_SOURCE, generate_products
from envs.webshop.product import HumanInstruction, Product, ShopError
from envs.webshop.store import open_store, write_store

PRODUCTS = [
    *generate_products(60, seed=4),
    Product(
        *("", "\ud800 ★ \"'", "", (), "$1.0 to $2.0", (1.0, 2.0), "", "", ""),
        *({"a": (), "b": ("x", "é | y")}, (), None, (), (HumanInstruction("", (), ()),), ()),
    ),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store") / "deep" / "shop"
    assert write_store(folder, iter(PRODUCTS), noun_source=NOUN_SOURCE) == len(PRODUCTS)
    return folder


@pytest.fixture
def copy(written, tmp_path):
    return shutil.copytree(written, tmp_path / "shop")


def test_a_folder_answers_like_memory(written):
    memory = Catalogue.from_products(PRODUCTS, noun_source=NOUN_SOURCE)
    store = Catalogue.open(written)
    assert len(store) == len(memory) == len(PRODUCTS)
    assert store.noun_source == memory.noun_source == NOUN_SOURCE
    assert list(store.asins) == list(memory.asins) == [p.asin for p in PRODUCTS]
    assert store.asins[3:6] == list(memory.asins[3:6])
    assert list(store.products()) == list(memory.products()) == PRODUCTS
    for product in PRODUCTS:
        assert product.asin in store and product.asin in memory
        assert store[product.asin] == memory[product.asin] == product
        for query in (product.title, product.query, product.description, "red lamp"):
            assert store.search(query.split(" ")) == memory.search(query.split(" "))
            assert store.search(query.split(" "), 3) == memory.search(query.split(" "), 3)
    for catalogue in (store, memory):
        assert "nowhere" not in catalogue
        assert None not in catalogue
        with pytest.raises(KeyError, match="nowhere"):
            catalogue["nowhere"]


def test_nothing_but_the_folder_is_left_and_the_same_shop_makes_the_same_arrays(written, tmp_path):
    assert os.listdir(written.parent) == ["shop"]
    write_store(tmp_path / "again", PRODUCTS, noun_source=NOUN_SOURCE)
    assert (tmp_path / "again" / "manifest.json").read_text() == (written / "manifest.json").read_text()


def search_in_worker(catalogue):
    return catalogue.search(["red", "lamp"]), catalogue[catalogue.asins[5]], os.getpid()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_share_a_folder(written, method):
    catalogue = Catalogue.open(written)
    here = search_in_worker(catalogue)  # opens the connection that a fork must not use
    with multiprocessing.get_context(method).Pool(2) as pool:
        for found, product, process in pool.map(search_in_worker, [catalogue] * 4):
            assert (found, product) == here[:2]
            assert process != os.getpid()


def test_threads_share_a_catalogue(written):
    catalogue = Catalogue.open(written)
    with ThreadPoolExecutor(8) as threads:
        for products in threads.map(lambda _: [catalogue[asin] for asin in catalogue.asins], range(16)):
            assert products == PRODUCTS


def test_a_catalogue_in_memory_is_copied():
    memory = Catalogue.from_products(PRODUCTS[:5], noun_source="me")
    copied = pickle.loads(pickle.dumps(memory))
    assert list(copied.products()) == PRODUCTS[:5]
    assert copied.search([PRODUCTS[2].title]) == memory.search([PRODUCTS[2].title])
    assert copied.noun_source == "me"


# --- what is refused ---------------------------------------------------------------------------------------


def test_a_folder_in_use_is_not_overwritten(copy):
    with pytest.raises(ShopError, match="shop' exists and is not empty"):
        write_store(copy, PRODUCTS, noun_source="")
    assert len(Catalogue.open(copy)) == len(PRODUCTS)
    file = copy / "manifest.json"
    with pytest.raises(ShopError, match="exists"):
        write_store(file, PRODUCTS, noun_source="")


@pytest.mark.parametrize(
    "write",
    [
        lambda folder, p: write_store(folder, p, noun_source=""),
        lambda folder, p: Catalogue.from_products(p, noun_source=""),
    ],
)
def test_what_makes_no_shop(tmp_path, write):
    with pytest.raises(ShopError, match="0 products"):
        write(tmp_path / "shop", [])
    with pytest.raises(ShopError, match=f"two products have the id '{PRODUCTS[1].asin}'"):
        write(tmp_path / "shop", [*PRODUCTS[:3], PRODUCTS[1]])
    assert os.listdir(tmp_path) == []


def test_an_import_that_fails_leaves_nothing(tmp_path):
    def failing():
        yield from PRODUCTS[:10]
        raise RuntimeError("power cut")

    (tmp_path / "shop").mkdir()  # an empty folder may be filled
    with pytest.raises(RuntimeError, match="power cut"):
        write_store(tmp_path / "shop", failing(), noun_source="")
    assert os.listdir(tmp_path) == ["shop"]
    assert write_store(tmp_path / "shop", PRODUCTS, noun_source="") == len(PRODUCTS)


def test_other_folders_are_named(tmp_path, copy):
    for folder in (tmp_path / "nowhere", tmp_path, copy / "manifest.json"):
        with pytest.raises(ShopError, match=f"no shop at '{folder}'.*--generate"):
            open_store(folder)


def change(copy, **changes):
    manifest = json.loads((copy / "manifest.json").read_text()) | changes
    (copy / "manifest.json").write_text(json.dumps({k: v for k, v in manifest.items() if v is not None}))


def test_other_formats_and_versions_are_named(copy):
    change(copy, version=7)
    with pytest.raises(ShopError, match="shop' has version 7 of the format, this program reads 1"):
        open_store(copy)
    change(copy, version=1, format="album")
    with pytest.raises(ShopError, match="shop' holds a 'album', expected a 'webshop store'"):
        open_store(copy)
    change(copy, format="webshop store", bytes=None)
    with pytest.raises(ShopError, match="manifest.json' is damaged: no bytes"):
        open_store(copy)
    change(copy, bytes=1, checksums={"ids": 1})
    with pytest.raises(ShopError, match="manifest.json' is damaged: no codes, documents, ends"):
        open_store(copy)
    (copy / "manifest.json").write_text("[]")
    with pytest.raises(ShopError, match="shop' holds a None"):
        open_store(copy)
    (copy / "manifest.json").write_text("{")
    with pytest.raises(ShopError, match="manifest.json' is damaged"):
        open_store(copy)


def test_every_damaged_or_missing_file_is_named(written, tmp_path):
    for name in sorted(os.listdir(written)):
        if name == "manifest.json":
            continue
        for number, damage in enumerate((lambda b: b[:-1], lambda b: b"", lambda b: None)):
            folder = shutil.copytree(written, tmp_path / f"{name}-{number}")
            changed = damage((folder / name).read_bytes())
            (folder / name).unlink()
            if changed is not None:
                (folder / name).write_bytes(changed)
            with pytest.raises(ShopError, match=f"{name}'.*import the shop again"):
                open_store(folder)


def test_a_flipped_bit_is_noticed_where_it_is_read(copy):
    array = copy / "documents.npy"
    body = bytearray(array.read_bytes())
    body[-3] ^= 4
    array.write_bytes(body)
    with pytest.raises(ShopError, match="documents.npy' has another checksum"):
        open_store(copy)


def test_a_changed_product_is_noticed_when_it_is_read(copy):
    file = copy / "products.sqlite"
    wanted = PRODUCTS[7].title.encode()
    body = file.read_bytes()
    assert body.count(wanted) == 1
    file.write_bytes(body.replace(wanted, wanted.swapcase()))
    catalogue = Catalogue.open(copy)
    assert catalogue[PRODUCTS[6].asin] == PRODUCTS[6]
    for read in (lambda: catalogue[PRODUCTS[7].asin], lambda: list(catalogue.products())):
        with pytest.raises(ShopError, match=f"product '{PRODUCTS[7].asin}' has another checksum"):
            read()


def test_a_table_in_ruins_is_noticed(copy):
    file = copy / "products.sqlite"
    file.write_bytes(b"\0" * file.stat().st_size)
    with pytest.raises(ShopError, match="products.sqlite' is damaged"):
        Catalogue.open(copy)[PRODUCTS[0].asin]


def test_postings_are_mapped_not_copied(written):
    index = open_store(written).index
    assert isinstance(index.documents.base, np.memmap)
    assert not index.documents.flags.writeable
    assert index.codes.dtype == np.uint16


def test_the_table_can_be_read_by_other_programs(written):
    with sqlite3.connect(f"file:{written}/products.sqlite?mode=ro", uri=True) as table:
        (n,) = table.execute("SELECT count(*) FROM products").fetchone()
    assert n == len(PRODUCTS)
