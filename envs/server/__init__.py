"""An environment server: its HTTP interface, and the thread that plays the sessions of all clients."""
