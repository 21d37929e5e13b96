"""Libraries that the device fits itself to, one folder each. None imports another, and the core imports none."""
