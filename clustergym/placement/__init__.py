"""Placement of LLM pre-training jobs over minipods: communication groups, instances, spread, algorithms."""
