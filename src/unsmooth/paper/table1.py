"""Table 1: change in HFC/LFC by kind of layer."""

from __future__ import annotations

from unsmooth.paper.changes import table_item

ITEM = table_item("table1", "hfc_lfc", "HFC/LFC")
