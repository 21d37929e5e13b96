"""The only folder that talks to the JAX runtime. Knows arrays, executables and devices; knows nothing of torch."""
