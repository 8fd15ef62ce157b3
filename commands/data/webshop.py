"""`run.py data webshop`: makes a shop, or imports one, into a folder that all workers share."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from configs.text import ConfigError
from envs.webshop.catalogue import Catalogue
from envs.webshop.generate import NOUN_SOURCE, generate_products
from envs.webshop.goals import KINDS
from envs.webshop.load import read_products
from envs.webshop.nouns import Nouns, load_nouns, tag
from envs.webshop.product import Product
from envs.webshop.shop import open_shop
from envs.webshop.splits import RULES, assign_splits, split_report
from envs.webshop.store import check_free, write_store


def generate(out: Path, *, n: int, seed: int) -> None:
    """Writes a generated shop of `n` products."""
    _write(out, generate_products(n, seed=seed), NOUN_SOURCE, total=n)


def import_files(
    out: Path,
    *,
    products: Path,
    attributes: Path | None,
    human: Path | None,
    nouns: Path | None,
    limit: int | None,
    skip_malformed: bool,
) -> None:
    """Writes a shop from the published files; without a file of nouns, the tagger is asked.

    Raises:
        ConfigError: no attribute file is given.
        ShopError: a file or a record cannot be used, or there is no tagger.
    """
    if attributes is None:
        raise ConfigError("--products also needs --attributes FILE (items_ins*.json of the same set)")

    check_free(out)  # before the minutes that tagging takes

    def read(known: Nouns | None = None) -> Iterator[Product]:
        return read_products(
            products, attributes, human, nouns=known, limit=limit, skip_malformed=skip_malformed
        )

    if nouns is not None:
        found = load_nouns(nouns)
    else:
        print("finding the nouns of all titles (about 8 ms each) …")
        found = tag(product.title for product in read())
        out.parent.mkdir(parents=True, exist_ok=True)
        kept = out.with_name(f"{out.name}-nouns.json.gz")
        found.save(kept)
        print(f"nouns of {len(found.by_title)} titles by {found.source} kept in {kept}, for --nouns")
    _write(out, read(found), found.source)


def inspect(folder: Path, *, show: str | None) -> None:
    """Prints what a store holds, one of its products, or what a search finds.

    Args:
        folder: The store.
        show: The id of a product, or words to search for.
    """
    catalogue = Catalogue.open(folder)
    if show is None:
        Console().print(_summary(catalogue.products(), str(folder)))
        print(
            f"{len(catalogue)} products, nouns by {catalogue.noun_source or 'nobody'}. "
            f"Look at one, or search, with --show ID or --show WORDS, for example --show {catalogue.asins[0]}"
        )
    elif show in catalogue:
        product = catalogue[show]
        for name in Product.__dataclass_fields__:
            print(f"{name:24}{getattr(product, name)}")
    else:
        for asin in catalogue.search(show.lower().split(" "), 10):
            print(f"{asin}  {catalogue[asin].title}  {catalogue[asin].price_text}")


def report_splits(folder: Path) -> None:
    """Prints, for both kinds of goals and every split rule, what held-out goals share with training."""
    catalogue = Catalogue.open(folder)
    for kind in KINDS:
        if not any(
            product.human if kind == "human" else product.instruction for product in catalogue.products()
        ):
            print(f"{kind}: no instructions")
            continue
        goals = open_shop(catalogue, kind=kind).goals
        for rule in RULES:
            report = split_report(assign_splits(goals, rule)).replace("\n", "\n    ")
            print(f"{kind}, rule {rule}\n    {report}")


def _write(out: Path, products: Iterable[Product], noun_source: str, *, total: int | None = None) -> None:
    started = time.monotonic()
    seen = track(products, "writing products", total=total, transient=True, console=Console(stderr=True))
    n = write_store(out, seen, noun_source=noun_source)
    size = sum(file.stat().st_size for file in out.iterdir())
    seconds = time.monotonic() - started
    print(f"wrote {n} products to {out} ({size / 1e6:.1f} MB) in {seconds:.1f} s, nouns by {noun_source}")


def _summary(products: Iterable[Product], title: str) -> Table:
    counts: dict[str, Counter[str]] = {}
    for product in products:
        row = counts.setdefault(product.category, Counter())
        row["products"] += 1
        row["options"] += bool(product.options)
        row["range"] += len(product.prices) > 1
        row["no price"] += not product.prices
        row["synthetic"] += product.instruction is not None
        row["human"] += len(product.human)
    names = ("products", "options", "range", "no price", "synthetic", "human")
    table = Table("category", *names, title=title, title_justify="left")
    for category, row in sorted(counts.items()):
        table.add_row(category, *(str(row[name]) for name in names))
    return table
