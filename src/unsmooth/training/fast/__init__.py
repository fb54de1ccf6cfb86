"""Short cuts of the training step: the same gradients for less."""
