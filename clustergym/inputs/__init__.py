"""Read files and values from outside, and write files; any mistake in them is reported in one clear line."""
