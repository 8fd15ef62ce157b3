"""Environments over HTTP: the server (`app`, `serve`), and what its client (`envs.pool_remote`) shares."""
