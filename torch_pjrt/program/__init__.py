"""A computation as a value: what a Program is, how one is evaluated, named and cut. No device is touched here."""
