"""What a scheduler is: the View it is shown, the Decision it returns, and how it is found by name."""
