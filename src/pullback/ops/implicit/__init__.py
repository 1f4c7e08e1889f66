"""Implicit ops: solutions of equations, differentiated by the implicit function theorem."""
