"""The feature-learning engine: infinite-width training through the network's own forward code."""
