"""`run.py check-env`: an environment compared with its contract."""
