"""Policies over HTTP: the server (`app`, `engine`, `weights`, `serve`), its wire, and the client's `line`."""
