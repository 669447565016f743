"""Jobs, traces, their readers and their generators."""
