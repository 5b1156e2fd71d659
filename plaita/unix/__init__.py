"""Linux calls: processes, signals, descriptors, limits, service notification. Knows nothing of flows or Redis."""
