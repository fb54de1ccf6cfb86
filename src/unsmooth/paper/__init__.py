"""Every figure and table of the paper and the poster as one module each, beside the published numbers."""

from unsmooth.paper.index import find_item, items
from unsmooth.paper.item import Context, Item, Result, Table

__all__ = ["Context", "Item", "Result", "Table", "find_item", "items"]
