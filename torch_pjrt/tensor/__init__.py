"""torch's side of the device: storages, layouts, transfers, generators, autocast, streams and memory figures."""
