"""Gradient control: identities in the forward, with a declared gradient."""
