"""One row per family of models, by kin; and what is refused, with the reason."""
