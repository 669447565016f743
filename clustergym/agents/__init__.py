"""Learned policies at decision time: the auction, look-ahead, and the checkpoints that hold their weights."""
