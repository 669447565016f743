"""Placement of LLM pre-training jobs over minipods: groups, instances, spread and algorithms."""
