"""The attention matrices of a layer in parts: all of them together are heads · n² numbers, which need not be held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unsmooth.theory.stochastic import widened

Part = Float[Tensor, "batch some query token"]
Mask = Bool[Tensor, "batch token"] | None
Form = Callable[[slice, slice], Part]  # heads and queries asked for
PART_BYTES = {"cpu": 2**26, "cuda": 2**30}


@dataclass(frozen=True)
class HeadMatrices:
    """A of every input and head, held as one tensor or formed whenever a part of it is asked for."""

    form: Form
    shape: tuple[int, ...]  # batch, heads, tokens, tokens
    dtype: torch.dtype
    device: torch.device
    held: Float[Tensor, "batch head token token"] | None = None

    @classmethod
    def of(cls, a: Float[Tensor, "batch head token token"]) -> HeadMatrices:
        """Those of a tensor."""
        return cls(lambda heads, queries: a[:, heads, queries], a.shape, a.dtype, a.device, a)

    def parts(self) -> Iterator[tuple[slice, slice, Part]]:
        """Heads, queries and their rows of A: as many heads at a time as fit, or some queries of one head."""
        if self.held is not None:
            yield slice(0, self.shape[1]), slice(0, self.shape[2]), self.held
            return
        batch, heads, queries, keys = self.shape
        rows = max(1, PART_BYTES.get(self.device.type, 2**26) // (batch * keys * self.dtype.itemsize))
        step = max(1, min(heads, rows // queries))
        rows = queries if step > 1 else min(rows, queries)
        for query in range(0, queries, rows):
            for head in range(0, heads, step):
                part = slice(head, min(head + step, heads)), slice(query, min(query + rows, queries))
                yield *part, self.form(*part)

    def each(self, change: Callable[[Part, slice], Part], dtype: torch.dtype | None = None) -> HeadMatrices:
        """Rows changed by `change(rows, queries)`, which sees all keys of a query."""
        if self.held is not None:
            return HeadMatrices.of(change(self.held, slice(0, self.shape[2])))
        return HeadMatrices(
            lambda heads, queries: change(self.form(heads, queries), queries),
            self.shape, dtype or self.dtype, self.device,
        )  # fmt: skip

    def widened(self, mask: Mask) -> HeadMatrices:
        """As they were seen, in float32 at least; those that are formed in parts are that already."""
        return self if self.held is None else HeadMatrices.of(widened(self.held, mask))

    def prepared(self, dtype: torch.dtype, mask: Mask) -> HeadMatrices:
        """In another dtype, and 0 in the rows of padding: they may be NaN there, and no kept query looks at it."""

        def rows(a: Part, queries: slice) -> Part:
            a = a.to(dtype)
            return a if mask is None else torch.where(mask[:, None, queries, None], a, 0)

        return self.each(rows, dtype)

    def inputs(self, rows: Int[Tensor, " batch"] | None) -> HeadMatrices:
        """Of these inputs only; None: of all."""
        if rows is None:
            return self
        if self.held is not None:
            return HeadMatrices.of(self.held[rows])
        shape = (len(rows), *self.shape[1:])
        return HeadMatrices(lambda *part: self.form(*part)[rows], shape, self.dtype, self.device)

    def mix(self, values: Float[Tensor, "batch head token key"]) -> Float[Tensor, "batch head token key"]:
        """`A_h V_h` of every head."""
        if self.held is not None:
            return self.held @ values
        mixed = torch.empty_like(values)
        for heads, queries, a in self.parts():
            mixed[:, heads, queries] = a @ values[:, heads]
        return mixed
