"""``python -m kolumn``: the command line."""

from kolumn.cli import main

if __name__ == "__main__":
    main()
