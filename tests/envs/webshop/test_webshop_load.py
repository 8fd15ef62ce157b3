"""The published files: what the published loader makes of them, and one clear error for everything else."""

from __future__ import annotations

import gzip
import json

import pytest

from envs.webshop import files
from envs.webshop.load import read_products
from envs.webshop.nouns import Nouns
from envs.webshop.product import HumanInstruction, ShopError, search_text


def record(asin="A1", **changes):
    """A product as the published file has it."""
    row = {
        "asin": asin,
        "name": f"Oak Lamp {asin}",
        "full_description": "Bright.",
        "small_description": ["Warm light", "Short cable"],
        "pricing": "$12.50",
        "category": "garden",
        "product_category": "Home › Lamps",
        "query": " Table LAMPS ",
        "customization_options": "",
        "images": [],
    }
    return {key: value for key, value in (row | changes).items() if value is not ...}


@pytest.fixture
def read(tmp_path):
    """Writes the three files and reads them."""

    def reading(rows, attributes=None, human=None, **options):
        paths = []
        for name, body in (("products", rows), ("attributes", attributes or {}), ("human", human or {})):
            paths.append(tmp_path / f"{name}.json")
            paths[-1].write_text(body if isinstance(body, str) else json.dumps(body))
        return list(read_products(*paths, **options))

    return reading


# --- what is read ------------------------------------------------------------------------------------------


def test_every_field(read):
    options = {
        "Color": [{"value": " Red/BLUE ", "image": "x"}, {"value": "Teal"}],
        "SIZE": None,
        "Fit": [],
        "color": [{"value": "Green"}],
    }
    asked = {
        "attributes": ["hand made"],
        "instruction": "Find me lamps",
        "instruction_attributes": ["hand made"],
    }
    human = {"instruction": "a lamp.", "instruction_attributes": [], "instruction_options": ["green"]}
    nouns = Nouns("tagger", "1", {"Oak Lamp A1": ("oak", "lamp")})
    (product,) = read(
        [record(customization_options=options)],
        {"A1": asked},
        {"A1": [human | {"worker_id": "w"}]},
        nouns=nouns,
    )
    assert product.asin == "A1"
    assert product.title == "Oak Lamp A1"
    assert product.description == "Bright."
    assert product.bullets == ("Warm light", "Short cable")
    assert (product.category, product.product_category, product.query) == (
        "garden",
        "Home › Lamps",
        "table lamps",
    )
    # The later of two names that differ in case takes the earlier one's place.
    assert product.options == {"color": ("green",), "fit": ()}
    assert list(product.options) == ["color", "fit"]
    assert product.attributes == ("hand made",)
    assert (product.instruction, product.instruction_attributes) == ("Find me lamps", ("hand made",))
    assert product.human == (HumanInstruction("a lamp.", (), ("green",)),)
    assert product.nouns == ("oak", "lamp")
    assert search_text(product) == "oak lamp a1 bright. warm light color: green, and fit: "


@pytest.mark.parametrize(
    ("pricing", "text", "prices"),
    [
        ("$12.50", "$12.5", (12.5,)),
        ("$1,035.20", "$1035.2", (1035.2,)),
        ("$10.00 - $20.00", "$10.0 to $20.0", (10.0, 20.0)),
        ("$72.37$109.08$118.08", "$72.37 to $109.08", (72.37, 109.08)),
        ("about $5", "$5.0", (5.0,)),
        ("", "$100.0", ()),
        (None, "$100.0", ()),
        (..., "$100.0", ()),
    ],
)
def test_prices(read, pricing, text, prices):
    (product,) = read([record(pricing=pricing)])
    assert (product.price_text, product.prices) == (text, prices)


def test_what_is_dropped_and_what_may_be_missing(read):
    rows = [
        record("nan"),
        record("B" * 11),
        {"asin": "nan"},  # dropped before its columns are looked at
        record("A1"),
        record("A1", name="again"),
        record("A2", small_description="alone", images=...),
        record("A3", small_description=[]),
    ]
    attributes = {
        "A2": {"instruction": "Find me lamps", "instruction_attributes": ["bright"]},
        "A3": {"attributes": []},
    }
    products = read(rows, attributes)
    assert [product.title for product in products] == ["Oak Lamp A1", "Oak Lamp A2", "Oak Lamp A3"]
    assert [product.bullets for product in products] == [("Warm light", "Short cable"), ("alone",), ()]
    assert [product.attributes for product in products] == [("DUMMY_ATTR",), ("DUMMY_ATTR",), ()]
    assert [product.nouns for product in products] == [(), (), ()]
    assert [p.asin for p in read(rows, limit=5)] == ["A1"]  # the limit counts what is dropped


def test_packed_files_and_files_larger_than_a_piece(read, tmp_path, monkeypatch):
    rows = [record(f"A{i}", full_description='\\" ] } é' * 20) for i in range(30)]
    expected = read(rows)
    for piece in (1, 7, 64, 1000):
        monkeypatch.setattr(files, "_CHUNK", piece)
        assert read(rows) == expected
        assert read(json.dumps(rows, indent=2, ensure_ascii=False)) == expected
    packed = tmp_path / "products.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(rows).encode()))
    assert list(read_products(packed, tmp_path / "attributes.json")) == expected


# --- errors ------------------------------------------------------------------------------------------------

MALFORMED = [
    (record(query=...), "no 'query'; it has 'asin', 'name'"),
    (record(asin=5), "'asin' is 5, expected a string"),
    (record(asin=...), "no asin.*no 'asin'"),
    (record(full_description=None), "'full_description' is None, expected a string"),
    (record(small_description=[1]), r"'small_description' is \[1\], expected a list of strings"),
    (record(small_description=None), "'small_description' is None"),
    (record(pricing="$1.2.3"), "'pricing' is '\\$1.2.3', expected '\\$12.50'"),
    (record(pricing="free"), "'pricing' is 'free'"),
    (record(pricing="$"), "'pricing' is '\\$'"),
    (record(pricing=12.5), "'pricing' is 12.5"),
    (record(customization_options=["red"]), "'customization_options' is a list, expected an object"),
    (record(customization_options={"Color": "red"}), "option 'Color' is a str, expected a list"),
    (record(customization_options={"Color": [{"name": "red"}]}), "no 'value'; it has 'name'"),
    (record(customization_options={"Color": ["red"]}), "got a str, expected an object"),
    ("a lamp", "no object.*got a str, expected an object"),
]


@pytest.mark.parametrize(("row", "message"), MALFORMED)
def test_a_malformed_product_is_named_or_left_out(read, row, message):
    rows = [record("A0"), row, record("A2")]
    with pytest.raises(ShopError, match=rf"products.json', record 2 \(.*{message}.*--skip-malformed"):
        read(rows)
    with pytest.warns(UserWarning, match="1 malformed products left out; the first: .*record 2"):
        assert [product.asin for product in read(rows, skip_malformed=True)] == ["A0", "A2"]


@pytest.mark.parametrize(
    ("attributes", "human", "message"),
    [
        (
            {"A1": {"attributes": "hand made"}},
            {},
            "attribute file: 'attributes' is 'hand made', expected a list",
        ),
        ({"A1": {"attributes": [], "instruction": "x"}}, {}, "attribute file: no 'instruction_attributes'"),
        ({"A1": []}, {}, "attribute file: got a list"),
        ({}, {"A1": {}}, "by people: got a dict, expected a list"),
        (
            {},
            {"A1": [{"instruction": "x", "instruction_attributes": []}]},
            "by people: no 'instruction_options'",
        ),
    ],
)
def test_malformed_records_of_the_other_files(read, attributes, human, message):
    with pytest.raises(ShopError, match=rf"record 1 \('A1'\): in its .*{message}"):
        read([record()], attributes, human)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "damaged after record 0: it starts with ''"),
        ('{"asin": 1}', "damaged after record 0.*expected a list"),
        ("[]", "0 products in"),
        ("[" + json.dumps(record()) + ", {", "damaged after record 1: it ends within the list"),
        ("[" + json.dumps(record()), "damaged after record 1: it ends within the list"),
        ("[" + json.dumps(record()) + " 5]", "damaged after record 1.*where , or ] was expected"),
    ],
)
def test_damaged_product_files(read, body, message):
    with pytest.raises(ShopError, match=message) as caught:
        read(body)
    assert "products.json'" in str(caught.value)


def test_damaged_missing_and_exchanged_files(read, tmp_path):
    with pytest.raises(ShopError, match=r"attributes.json' \(attributes\) is damaged"):
        read([record()], attributes="{")
    with pytest.raises(ShopError, match="attributes.json' holds a list, expected attributes: an object"):
        read([record()], attributes="[]")
    read([record()])
    with pytest.raises(ShopError, match=r"no file '.*nowhere.json' \(products\).*--generate"):
        list(read_products(tmp_path / "nowhere.json", tmp_path / "attributes.json"))
    with pytest.raises(ShopError, match="cannot be read|damaged"):
        list(read_products(tmp_path, tmp_path / "attributes.json"))
    (tmp_path / "plain.json.gz").write_text("[]")
    with pytest.raises(ShopError, match="plain.json.gz.*damaged"):
        list(read_products(tmp_path / "plain.json.gz", tmp_path / "attributes.json"))
    (tmp_path / "latin.json").write_bytes(b'["\xe9"]')
    with pytest.raises(ShopError, match="latin.json.*damaged"):
        list(read_products(tmp_path / "latin.json", tmp_path / "attributes.json"))


def test_a_record_that_never_ends_is_given_up(read, monkeypatch):
    monkeypatch.setattr(files, "_CHUNK", 100)
    monkeypatch.setattr(files, "_LONGEST", 1000)
    with pytest.raises(ShopError, match="damaged after record 1: .*Unterminated string"):
        read("[" + json.dumps(record()) + ', {"asin": "' + "x" * 5000)


def test_nouns_of_other_products_are_refused(read):
    with pytest.raises(
        ShopError, match="no nouns for the title 'Oak Lamp A1' among the 1 tagged by tagger 1"
    ):
        read([record()], nouns=Nouns("tagger", "1", {"Oak Table": ()}))


# --- the reference catalogue -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden(shared):
    return shared / "golden" / "webshop"


def test_products_are_as_the_published_environment_had_them(golden):
    folder = golden / "catalogue"
    names = ("items_shuffle", "items_ins", "items_human_ins")
    products = {p.asin: p for p in read_products(*(folder / f"{name}.json" for name in names))}
    assert len(products) == 300
    compared = 0
    for case in json.loads((golden / "golden_rewards.json").read_text())["cases"]:
        expected = case["product"]
        if not case["kind"].startswith(("synthetic", "human")):
            continue  # products changed by hand
        product = products[expected["asin"]]
        assert product.title == expected["Title"]
        assert product.description == expected["Description"]
        # The cases keep the first bullet points only.
        assert list(product.bullets[: len(expected["BulletPoints"])]) == expected["BulletPoints"]
        assert list(product.attributes) == expected["Attributes"]
        assert (product.query, product.product_category) == (expected["query"], expected["product_category"])
        compared += 1
    assert compared > 250
    setups = json.loads((golden / "golden_transcripts.json").read_text())["setups"]
    drawn = setups["synthetic"]["product_prices"]
    assert list(products) == list(drawn)
    for asin, price in drawn.items():
        low_high = products[asin].prices or (100.0,)
        assert min(low_high) <= price <= max(low_high)
