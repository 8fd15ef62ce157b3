"""`run.py data webshop`: make a shop, import the published files, look into a shop, and clear errors."""

from __future__ import annotations

import json

import pytest

import run
from envs.webshop.catalogue import Catalogue
from envs.webshop.generate import NOUN_SOURCE, generate_products
from envs.webshop.nouns import Nouns


@pytest.fixture
def command(capsys, monkeypatch):
    """Runs `run.py data webshop …`; returns exit code, output and errors."""

    def running(*arguments):
        monkeypatch.setattr("sys.argv", ["run.py", "data", "webshop", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            run.main()
        return caught.value.code, *capsys.readouterr()

    return running


def write_files(folder, rows):
    for name, body in (("products", rows), ("attributes", {}), ("human", {})):
        (folder / f"{name}.json").write_text(json.dumps(body))
    return [f"--{name}={folder / name}.json" for name in ("products", "attributes", "human")]


ROW = {
    "asin": "A1",
    "name": "Oak Lamp",
    "full_description": "Bright.",
    "small_description": [],
    "pricing": "",
    "category": "garden",
    "product_category": "Home",
    "query": "lamps",
    "customization_options": "",
}


def test_generate_and_look(command, tmp_path):
    folder = tmp_path / "shop"
    code, out, _ = command("--generate", "--out", folder, "--n", 40, "--seed", 3)
    assert code == 0
    assert out.startswith(f"wrote 40 products to {folder} (")
    made = Catalogue.open(folder)
    assert list(made.products()) == list(generate_products(40, seed=3))
    assert made.noun_source == NOUN_SOURCE
    code, out, _ = command("--data", folder)
    assert code == 0 and f"40 products, nouns by {NOUN_SOURCE}" in out and "grocery" in out
    asin = made.asins[7]
    code, out, _ = command("--data", folder, "--show", asin)
    assert code == 0 and made[asin].title in out
    code, out, _ = command("--data", folder, "--show", made[asin].title)
    assert code == 0 and out.startswith(asin)
    code, _, err = command("--generate", "--out", folder)
    assert code == 2 and "exists and is not empty" in err


def test_import(command, tmp_path):
    files = write_files(tmp_path, [ROW, ROW | {"asin": "A2", "query": None}])
    nouns = tmp_path / "nouns.json"
    Nouns("tagger", "1", {"Oak Lamp": ("oak", "lamp")}).save(nouns)
    out_folder = tmp_path / "shop"
    code, _, err = command(*files, "--nouns", nouns, "--out", out_folder)
    assert code == 2 and "record 2 ('A2')" in err and not out_folder.exists()
    with pytest.warns(UserWarning, match="1 malformed products left out"):
        code, out, _ = command(*files, "--nouns", nouns, "--out", out_folder, "--skip-malformed")
    assert code == 0 and out.startswith("wrote 1 products") and "nouns by tagger 1" in out
    assert Catalogue.open(out_folder)["A1"].nouns == ("oak", "lamp")


def test_nouns_found_at_import_are_kept(command, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "commands.data.webshop.tag", lambda titles: Nouns("tagger", "2", dict.fromkeys(titles, ("lamp",)))
    )
    files = write_files(tmp_path, [ROW])
    code, out, _ = command(*files, "--out", tmp_path / "made" / "shop")
    assert code == 0 and "nouns of 1 titles by tagger 2 kept in" in out
    code, out, _ = command(
        *files, "--out", tmp_path / "more", "--nouns", tmp_path / "made" / "shop-nouns.json.gz"
    )
    assert code == 0 and "nouns by tagger 2" in out


def test_mistakes(command, tmp_path):
    for arguments in ([], ["--generate", "--data", tmp_path], ["--products", "x", "--generate"]):
        code, _, err = command(*arguments)
        assert code == 2 and "say one of" in err
    code, _, err = command("--products", "x")
    assert code == 2 and "also needs --attributes" in err
    code, _, err = command("--data", tmp_path / "nowhere")
    assert code == 2 and "no shop at" in err
    write_files(tmp_path, [ROW])
    files = [f"--products={tmp_path}/products.json", f"--attributes={tmp_path}/nope.json"]
    code, _, err = command(*files, "--out", tmp_path / "shop", "--nouns", tmp_path / "none.json")
    assert code == 2 and "none.json" in err
    Nouns("tagger", "1", {}).save(tmp_path / "none.json")
    code, _, err = command(*files, "--out", tmp_path / "shop", "--nouns", tmp_path / "none.json")
    assert code == 2 and "nope.json" in err
