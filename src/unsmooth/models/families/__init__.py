"""One row per family of models, by kin; and what is refused, with the reason."""

from unsmooth.models.families import (
    decoders,
    encoder_decoder,
    fused,
    gemma,
    parallel,
    speech,
    text,
    timm,
    torch,
    towers,
    vision,
)
from unsmooth.models.family import Family

# In the order in which they are tried: files as listed here, rows as they stand in a file or are taken over into it.
_FILES = (timm, vision, towers, encoder_decoder, speech, torch, text, decoders, gemma, fused, parallel)
FAMILIES: tuple[Family, ...] = tuple(
    {row.name: row for file in _FILES for row in vars(file).values() if isinstance(row, Family)}.values()
)
