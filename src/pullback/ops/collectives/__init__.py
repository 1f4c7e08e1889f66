"""Collectives: communication of torch.distributed with the derivative that belongs to it."""
