"""Every figure, drawn from results."""
