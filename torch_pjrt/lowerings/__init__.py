"""How operators are computed: pure functions of arrays in jax.lax, one file per family.

No torch, no jax.numpy, no device here. A row is added with @row (ops/registry.py); its parameters are named as in the schema.
"""
