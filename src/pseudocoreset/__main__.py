"""`python -m pseudocoreset`."""

from pseudocoreset.cli import main_of_script

if __name__ == "__main__":
    main_of_script()
