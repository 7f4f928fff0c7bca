"""Compare coresets with all points for a small network on a table, by HMC."""
