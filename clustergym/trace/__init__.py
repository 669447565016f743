"""Traces of jobs: their format, their readers and their generators."""
