"""Tools that the tests and the conformance suite share. Not imported by the package itself."""
