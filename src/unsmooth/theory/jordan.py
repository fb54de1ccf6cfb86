"""Jordan blocks of the eigenvalues that dominate: what a defective H or A leaves of the limit's rank.

On a block of size p an eigenvalue grows like `ℓ^{p−1} ρ^ℓ`, along one eigenvector only. So of all pairs with the
largest modulus those with the largest power of ℓ win, and each block of theirs counts once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from unsmooth.theory.matching import term_rank


@dataclass(frozen=True)
class Block:
    """One Jordan block: its eigenvalue, and one of the indices that its eigenvalue has in the spectrum."""

    index: int
    value: complex
    size: int


def jordan_blocks(
    matrix: Float[Tensor, "size size"], values: Complex[Tensor, " size"], wanted: Bool[Tensor, " size"], near: float
) -> list[Block]:
    """The blocks of the wanted eigenvalues of a real matrix, those within `near` of each other taken for one.

    The mean of such a cluster is exact to rounding where its members are off by a root of it, so the nullities of
    `(M − λ)^k` count the blocks of size k and more.
    """
    found: list[Block] = []
    left = wanted.clone()
    while bool(left.any()):
        first = int(left.nonzero()[0])
        members = (values - values[first]).abs() <= near
        cluster = members.nonzero().flatten().tolist()
        left &= ~members
        centre = values[members].mean()
        sizes = [1] if len(cluster) == 1 else _sizes(matrix, centre, cluster)
        found += [Block(cluster[k], complex(centre), size) for k, size in enumerate(sizes)]
    return found


def _sizes(matrix: Tensor, centre: Tensor, cluster: list[int]) -> list[int]:
    """Block sizes by Weyr's counts: dim ker (M − λ)^k grows by the number of blocks of size at least k."""
    shifted = matrix.to(torch.complex128) - centre * torch.eye(len(matrix), dtype=torch.complex128)
    scale = float(torch.linalg.matrix_norm(matrix, 2)) + abs(complex(centre))
    power, counts, before = torch.eye(len(matrix), dtype=torch.complex128), [], 0
    for k in range(1, len(cluster) + 1):
        power = power @ shifted
        null = int((torch.linalg.svdvals(power) <= 1e-9 * scale**k).sum())
        counts.append(min(null, len(cluster)) - before)
        before += counts[-1]
        if before >= len(cluster) or counts[-1] <= 0:
            break
    blocks = counts[0] if counts[0] > 0 else len(cluster)  # nothing is null at this tolerance: simple after all
    sizes = [1] * blocks
    for count in counts[1:]:
        for i in range(max(count, 0)):
            sizes[i] += 1
    return sizes


def limit_rank(
    pattern: Bool[Tensor, "token dim"],
    a: tuple[Float[Tensor, "token token"], Complex[Tensor, " token"]],
    h: tuple[Float[Tensor, "dim dim"], Complex[Tensor, " dim"]],
    near: float,
) -> int:
    """The rank of the limit for a generic start: the term rank of the blocks of D with the largest power of ℓ."""
    over_a, over_h = jordan_blocks(*a, pattern.any(1), near), jordan_blocks(*h, pattern.any(0), near)
    if all(b.size == 1 for b in (*over_a, *over_h)):
        return term_rank(pattern)
    terms = [
        (*_term(block_a, block_h, near), r, c)
        for r, block_a in enumerate(over_a)
        for c, block_h in enumerate(over_h)
        if bool(pattern[block_a.index, block_h.index])
    ]
    highest = max(power for power, *_ in terms)
    starts_a, starts_h = (_starts([b.size for b in blocks]) for blocks in (over_a, over_h))
    leading = torch.zeros(starts_a[-1], starts_h[-1], dtype=torch.bool)
    for power, tall, wide, r, c in terms:
        if power == highest:
            leading[starts_a[r] : starts_a[r] + tall, starts_h[c] : starts_h[c] + wide] = True
    return term_rank(leading)


def _term(a: Block, h: Block, near: float) -> tuple[int, int, int]:
    """The power of ℓ on a pair of blocks, and the rows and columns of its leading term.

    `I + H ⊗ A` less its eigenvalue is nilpotent there. It loses one dimension on both sides with every power; where
    λ_H is 0 only H's nilpotent part is left in it, where λ_A is 0 only A's.
    """
    zero_h, zero_a = abs(h.value) <= near, abs(a.value) <= near
    if zero_h and zero_a:
        power = min(a.size, h.size) - 1
        return power, a.size - power, h.size - power
    if zero_h:
        return h.size - 1, a.size, 1
    if zero_a:
        return a.size - 1, 1, h.size
    return a.size + h.size - 2, 1, 1


def _starts(sizes: list[int]) -> list[int]:
    total = [0]
    for size in sizes:
        total.append(total[-1] + size)
    return total
