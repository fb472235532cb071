"""``python -m camapp`` is the command ``camapp``."""

from camapp.cli import main

if __name__ == "__main__":
    main()
