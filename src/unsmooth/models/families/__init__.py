"""One row per family of models, by kin; and what is refused, with the reason."""

from unsmooth.models.families import (
    decoders,
    early_decoders,
    encoder_decoder,
    fused,
    gemma,
    parallel,
    speech,
    text,
    text_relatives,
    timm,
    torch,
    towers,
    vision,
)
from unsmooth.models.family import Family

# In the order in which they are tried.
FAMILIES: tuple[Family, ...] = (
    *timm.FAMILIES,
    *vision.FAMILIES,
    *towers.FAMILIES,
    *encoder_decoder.FAMILIES,
    *speech.FAMILIES,
    *torch.FAMILIES,
    *text.FAMILIES,
    *text_relatives.FAMILIES,
    *decoders.FAMILIES,
    *early_decoders.FAMILIES,
    *gemma.FAMILIES,
    *fused.FAMILIES,
    *parallel.FAMILIES,
)
