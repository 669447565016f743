"""Read files and values from outside; any mistake in them is reported in one clear line."""
