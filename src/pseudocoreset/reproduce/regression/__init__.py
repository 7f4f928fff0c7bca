"""A small network on a table of numbers: coresets beside all points, by exact HMC."""
