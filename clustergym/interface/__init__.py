"""The interface of schedulers: the View they see, the Decision they return, and their registry."""
