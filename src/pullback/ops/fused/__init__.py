"""Fused, lean ops: several steps in one node, keeping little."""
