"""Compare posteriors of coresets with those of the data for models with a known posterior."""
