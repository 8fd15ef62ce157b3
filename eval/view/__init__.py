"""The viewer, a local page over run folders: `app.py` serves, `templates/` and `static/` show."""
