"""Runs a command as the installed one does, with what `reproduce` has no option for made small."""

from shortened import shorten, shorten_on_ray

from pseudocoreset.cli import main_of_script

shorten()  # here, and in processes that are begun from here
if __name__ == "__main__":
    shorten_on_ray()
    print("begun", flush=True)
    main_of_script()
