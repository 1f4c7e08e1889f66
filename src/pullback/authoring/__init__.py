"""Authoring: `pb.op`, a differentiable op written once."""
