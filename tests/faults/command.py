"""Runs a command as the installed one does, with what `reproduce` has no option for made small."""

from shortened import shorten

from pseudocoreset.cli import main_of_script

if __name__ == "__main__":
    shorten()
    print("begun", flush=True)
    main_of_script()
