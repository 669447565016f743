"""What plays as a learned policy: the auction, look-ahead and the checkpoints that hold its weights."""
