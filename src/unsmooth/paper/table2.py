"""Table 2: change in effective rank by kind of layer."""

from __future__ import annotations

from unsmooth.paper.changes import table_item

ITEM = table_item("table2", "effective_rank", "effective rank")
