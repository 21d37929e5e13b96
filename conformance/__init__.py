"""OpInfo, ModuleInfo and OptimizerInfo on the device, compared with CPU torch: `./dev conformance`."""
