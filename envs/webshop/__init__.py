"""WebShop: text pages made straight from the products, the published reward, a search in the same order."""

from envs.webshop.catalogue import Catalogue
from envs.webshop.env import WebshopEnv
from envs.webshop.goals import Goal
from envs.webshop.product import Product, ShopError
from envs.webshop.sessions import SessionTable
from envs.webshop.shop import Shop, open_shop

__all__ = [
    "Catalogue",
    "Goal",
    "Product",
    "SessionTable",
    "Shop",
    "ShopError",
    "WebshopEnv",
    "open_shop",
]
