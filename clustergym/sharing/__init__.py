"""Parts of GPUs: nodes with CPU, memory and devices in thousandths, and placers of requests on them."""
