"""The classics: elementwise functions, affine maps, random ones, and splitting."""
