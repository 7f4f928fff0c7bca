"""How near coresets' posteriors are to that of all training images, beside real subsets."""
