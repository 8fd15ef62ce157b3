"""One file per stage: `credit/stages/NAME.py` defines the stage NAME. This folder is the registry."""
