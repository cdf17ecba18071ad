"""``python -m kernelsieve``."""

from kernelsieve.cli import main

if __name__ == "__main__":
    main()
