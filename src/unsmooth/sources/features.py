"""Features that others saved, by the names of our points: vLLM's files, caches of TransformerLens and nnsight, others.

Understood are our own names (`blocks.3.post`), TransformerLens's (`blocks.3.hook_resid_post`), hidden states by number
(`hidden_states.4`, of which 0 is the embedding) and modules by path (`model.layers.3`, `h.3.attn`), whose output it
is. Several layers in one tensor called `hidden_states`, (tokens, layers, width) as vLLM writes them, need their ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from unsmooth.errors import DataError, OptionError
from unsmooth.sources.state_files import read_state

MASKS = ("attention_mask", "mask")
_IGNORED = ("token_ids", "input_ids", "positions", "special_tokens_mask", "labels")
_SUFFIX = (".safetensors", ".pt", ".pth", ".bin")
_PARTS = {
    "post": r"(?:hook_)?resid_post|post|output(?:\.0)?|output_0|hidden_states|",
    "pre": r"(?:hook_)?resid_pre|pre|input(?:\.0)?|input_0",
    "mid": r"(?:hook_)?resid_mid|mid",
    "attn": r"(?:hook_)?attn_out|attn|self_attn|attention|self_attn\.output(?:\.0)?",
    "mlp": r"(?:hook_)?mlp_out|mlp|mlp\.output",
    "norm1": r"norm1|ln1|ln_1|ln1\.hook_normalized|input_layernorm",
    "norm2": r"norm2|ln2|ln_2|ln2\.hook_normalized|post_attention_layernorm",
}
_BLOCK = re.compile(r"(?:.*[._])?(?:blocks|block|layers|layer|h)[._]?(?P<index>\d+)(?:[._](?P<part>.*))?|(?P<bare>\d+)")
_STATE = re.compile(r"(?:.*[._])?hidden_states?[._]?(?P<index>\d+)")
_WHOLE = {
    "embed": r"embed|embeddings|(?:.*\.)?hook_embed_sum",
    "final_norm": r"final_norm|(?:.*\.)?(?:ln_final\.hook_normalized|ln_f|norm)",
}


def point_named(name: str) -> str | None:
    """The point that a name stands for; None if it is none that we know.

    >>> [point_named(n) for n in ("blocks.2.hook_resid_mid", "hidden_states.0", "model.layers.3", "7")]
    ['blocks.2.mid', 'embed', 'blocks.3.post', 'blocks.7.post']
    """
    for point, pattern in _WHOLE.items():
        if re.fullmatch(pattern, name):
            return point
    if found := _STATE.fullmatch(name):
        return _state(int(found["index"]))
    if found := _BLOCK.fullmatch(name):
        index = found["index"] or found["bare"]
        for point, pattern in _PARTS.items():
            if re.fullmatch(pattern, found["part"] or ""):
                return f"blocks.{int(index)}.{point}"
    return None


def by_point(
    tensors: Mapping[str, Tensor], layers: Sequence[int] | None = None, where: str = "features"
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Features (batch, tokens, width) by point, in the order of the network, and the tokens that count, if said."""
    mask = next((tensors[name] for name in MASKS if name in tensors), None)
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in MASKS or name in _IGNORED:
            continue
        for point, x in _unpacked(name, tensor, layers, where):
            if point in found:
                raise DataError(f"{where}: two tensors are {point} (the second is {name!r}): leave one out")
            found[point] = x
    if not found:
        raise DataError(f"{where} holds no features: expected tensors of (tokens, width) by layer")
    return dict(sorted(found.items(), key=lambda item: _place(item[0]))), None if mask is None else mask.bool()


def read_features(
    path: str | Path, layers: Sequence[int] | None = None
) -> Iterator[tuple[dict[str, Tensor], Tensor | None]]:
    """One batch for each file: the file itself, or all of a folder in the order of their names."""
    path = Path(path)
    files = sorted(p for p in path.iterdir() if p.suffix in _SUFFIX) if path.is_dir() else [path]
    if not files:
        raise DataError(f"no features in {path}: expected files that end in {', '.join(_SUFFIX)}")
    for file in files:
        yield by_point(read_state(file), layers, str(file))


def _unpacked(name: str, tensor: Tensor, layers: Sequence[int] | None, where: str) -> Iterator[tuple[str, Tensor]]:
    if re.fullmatch(r"hidden_states?", name) and tensor.dim() == 3:
        if layers is None or len(layers) != tensor.shape[1]:
            raise OptionError(
                f"{where}: {name} is of shape {tuple(tensor.shape)}, (tokens, layers, width): say which layers these "
                f"are (layers=, --layer-ids, {tensor.shape[1]} numbers; 0 is the embedding, i what layer i − 1 gives)"
            )
        for index, x in zip(layers, tensor.unbind(1), strict=True):
            yield _state(index), x[None]
        return
    point = point_named(name)
    if point is None:
        raise DataError(
            f"{where}: {name!r} is no point that is known: leave it out, or call it blocks.3.post, "
            "hidden_states.4, blocks.3.hook_resid_post or layers.3"
        )
    if tensor.dim() not in (2, 3) or not tensor.is_floating_point():
        raise DataError(
            f"{where}: {name} is {tensor.dtype} of shape {tuple(tensor.shape)}: expected floating-point features of "
            "(tokens, width) or (batch, tokens, width)"
        )
    yield point, tensor if tensor.dim() == 3 else tensor[None]


def _state(index: int) -> str:
    """Of hidden states as transformers counts them: 0 goes into the first layer, i comes out of layer i − 1."""
    return f"blocks.{index - 1}.post" if index else "embed"


def _place(point: str) -> tuple[float, int]:
    parts = ("pre", "norm1", "attn", "mid", "norm2", "mlp", "post")
    if point in ("embed", "final_norm"):
        return (-1.0 if point == "embed" else float("inf"), 0)
    _, index, part = point.split(".")
    return float(index), parts.index(part)
