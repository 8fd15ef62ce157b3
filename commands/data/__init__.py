"""`run.py data`: makes or imports a world's data, or looks into it."""
