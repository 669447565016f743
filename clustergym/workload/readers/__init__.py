"""Readers of published trace formats, one module each: `NAME`, `sniff` and `read`."""
