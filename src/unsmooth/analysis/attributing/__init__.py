"""Who changed the features: the shares of every part, and what becomes of them where a part is taken out."""
