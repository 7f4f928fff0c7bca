"""Compare coresets with all points for small networks, by HMC."""
