"""WebShop: text pages made straight from the products, the published reward, a search in the same order.

Importing this package loads the standard library only.
"""
