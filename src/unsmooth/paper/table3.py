"""Table 3: change in cosine similarity by kind of layer."""

from __future__ import annotations

from unsmooth.paper.changes import table_item

ITEM = table_item("table3", "cosine_similarity", "cosine similarity")
