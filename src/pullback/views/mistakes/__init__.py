"""Mistakes with autograd: what torch says about each, what happened, where, and what to do."""
