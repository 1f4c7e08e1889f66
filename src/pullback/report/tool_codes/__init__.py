"""PB0xx: what can go wrong in running pullback itself."""
