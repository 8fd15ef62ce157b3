"""Embedded policies: their architecture, and supervised learning on an expert's walks."""
