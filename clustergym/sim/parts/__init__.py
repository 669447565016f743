"""Parts of GPUs: fragmentation, scores of nodes, and placers of requests on them."""
