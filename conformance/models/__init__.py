"""Known models, forward and backward, eager and compiled, against CPU torch: `python -m conformance.models`."""
