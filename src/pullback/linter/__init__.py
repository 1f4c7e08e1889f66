"""Lint: faults of custom derivatives that can be read off the source, without importing it and without torch."""
