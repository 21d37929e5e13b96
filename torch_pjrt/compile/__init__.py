"""torch.compile on the device: graphs from AOTAutograd become Programs by running them once on stand-in tensors."""
