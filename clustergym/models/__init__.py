"""The models that jobs train: what a trace asks for, and what they compute."""
