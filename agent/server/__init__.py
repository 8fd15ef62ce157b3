"""A policy server: its HTTP interface, the thread that decodes for all clients, its weights."""
