"""The roofline oracle: iteration times of simple parallel plans, with memory limits."""
