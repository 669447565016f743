"""How fast large transformers train on today's machines, by software stack: FLOPs, traffic, plans, memory."""
