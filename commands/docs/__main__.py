"""`python -m commands.docs`."""

from commands.docs.pages import main

main()
