"""Files on disk become batches: images, text, or random inputs, streamed."""

from unsmooth.data.batches import Data, open_data
from unsmooth.data.pictures import PICTURES

__all__ = ["PICTURES", "Data", "open_data"]
