"""Files on disk become batches: images, text, or random inputs, streamed."""

from unsmooth.data.batches import Data, open_data
from unsmooth.data.pictures import picture_files

__all__ = ["Data", "open_data", "picture_files"]
