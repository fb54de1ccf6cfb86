"""Training without any idea of data: a loop over steps, one captured step, checkpoints, a log, a record."""
