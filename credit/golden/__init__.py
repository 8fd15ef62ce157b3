"""Reference numbers of public code, and the comparison of every method with them."""
