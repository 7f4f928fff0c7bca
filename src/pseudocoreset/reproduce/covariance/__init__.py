"""Compare FBPC's variance over K steps with the linearised covariance."""
