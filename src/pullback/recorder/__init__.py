"""Record what a program really does with custom derivatives, and check that."""
