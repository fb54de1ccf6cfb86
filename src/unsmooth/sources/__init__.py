"""A reference becomes a model, files become batches."""

from unsmooth.sources.batches import Data, open_data
from unsmooth.sources.load import load_model
from unsmooth.sources.loaded import ImageInput, LoadedModel
from unsmooth.sources.pictures import PICTURES

__all__ = ["PICTURES", "Data", "ImageInput", "LoadedModel", "load_model", "open_data"]
