"""A shop written for the tests: few products, with one of every peculiarity that pages and rewards know.

`HELD` is a larger one in memory, of generated products.
"""

from __future__ import annotations

from collections.abc import Sequence

from envs.webshop.catalogue import Catalogue
from envs.webshop.generate import NOUN_SOURCE, generate_products
from envs.webshop.goals import Goal
from envs.webshop.product import HumanInstruction, Product
from envs.webshop.shop import Shop, open_shop


def product(asin: str, title: str, **changes) -> Product:
    """A mug unless told otherwise."""
    fields = {
        "description": f"{title}. Keeps tea warm.",
        "bullets": ("HAND MADE - fired twice", "Easy to clean"),
        "price_text": "$12.5",
        "prices": (12.5,),
        "category": "garden",
        "product_category": "Home › Kitchen › Mugs",
        "query": "mugs",
        "options": {},
        "attributes": ("hand made", "dishwasher safe"),
        "instruction": None,
        "instruction_attributes": (),
        "human": (),
        "nouns": tuple(word.lower() for word in title.split()),
    }
    return Product(asin=asin, title=title, **(fields | changes))


PRODUCTS = (
    product(
        "B000000001",
        "Blue Stone Mug",
        options={"color": ("blue", "red"), "size": ("small", "x-large")},
        instruction="Find me hand made mugs",
        instruction_attributes=("hand made",),
        human=(
            HumanInstruction("i want a hand made mug in red.", ("hand made",), ("red",)),
            HumanInstruction("any mug will do", (), ()),
        ),
    ),
    product(
        "B000000002",
        "Travel Mug",
        price_text="$20.0 to $60.0",
        prices=(20.0, 60.0),
        bullets=(),
        description="",
        attributes=("leak proof",),
        instruction="Find me leak proof mugs",
        instruction_attributes=("leak proof",),
    ),
    product(
        "B000000003",
        "Gift Mug",
        price_text="$100.0",
        prices=(),
        # A value like a button, one like another option's, one with quotes, one not ASCII, two unclickable.
        options={
            "style": ("features", "buy now", "next >", "attributes"),
            "color": ("red", "größe"),
            "trim": ("red", '12" wide', "a [b] c", ""),
        },
        instruction="Find me dishwasher safe mugs",
        instruction_attributes=("dishwasher safe",),
    ),
    product(
        "B000000004",
        "Gold Teapot",
        price_text="$985.0",
        prices=(985.0,),
        product_category="Home › Kitchen › Teapots",
        query="teapots",
        instruction="Find me dishwasher safe teapots",
        instruction_attributes=("dishwasher safe", "gold"),
    ),
    product("b00lower05", "Lower Case Mug"),
    product(
        "B000000006",
        "Canvas Tent",
        category="fashion",
        product_category="Outdoor › Tents",
        query="tents",
        description="<b>Sturdy</b> & light, it's a tent",
        attributes=("DUMMY_ATTR",),
    ),
    *(product(f"B0000001{i:02d}", f"Plain Mug No {i}") for i in range(20)),
)

GENERATED = list(generate_products(60, seed=4))
HELD = Catalogue.from_products(GENERATED, noun_source=NOUN_SOURCE)


def small_catalogue(products: Sequence[Product] = PRODUCTS) -> Catalogue:
    """These products, and their search."""
    return Catalogue.from_products(products, noun_source="by hand")


def small_shop(**options) -> Shop:
    """The shop of all products above."""
    return open_shop(small_catalogue(), **options)


def goal_of(shop: Shop, asin: str, n: int = 0) -> Goal:
    """The n-th goal of a product."""
    return sorted((g for g in shop.goals if g.asin == asin), key=lambda g: g.id)[n]
