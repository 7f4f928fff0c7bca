"""FBPC's variance over K steps beside the linearised covariance of the paper's background."""
