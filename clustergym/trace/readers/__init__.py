"""Readers of published trace formats, one module each with `NAME`, `sniff` and `read`."""
