"""Environments over HTTP: the server (`app`, `serve`), and what its client (`envs.pools.remote`) shares."""
