"""Compare posteriors of coresets and of real subsets with that of all training images."""
