"""torch-pjrt: a native PyTorch backend for every chip that has a PJRT plugin."""
