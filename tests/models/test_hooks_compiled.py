"""Hooks on compiled code, and on torch's own fast path."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import CASES
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from unsmooth.models import hook_points, view
from unsmooth.models.forward import call
from unsmooth.models.wrappers import eagerly

BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize("how", ["whole", "in place", "part", "parts in place", "forward"])
def test_hooks_fire_in_compiled_modules_and_nothing_is_compiled_again(how: str) -> None:
    model: Any = BY_NAME["timm-vit"].model().eval()
    expected: dict[str, torch.Tensor] = {}
    images = BY_NAME["timm-vit"].inputs()
    with hook_points(view(model), view(model).points, lambda point, x: expected.__setitem__(point, x.clone())):
        model(images)
    graphs = CompileCounter()
    if how == "whole":
        model = torch.compile(model, backend=graphs)
    elif how == "in place":
        model.compile(backend=graphs)
    elif how == "part":
        model.blocks[1] = torch.compile(model.blocks[1], backend=graphs)
    elif how == "parts in place":
        for block in model.blocks:
            block.compile(backend=graphs)
    else:
        model.blocks[1].forward = torch.compile(model.blocks[1].forward, backend=graphs)
    with torch.no_grad():
        model(images)
    compiled = graphs.frame_count
    assert compiled
    seen: dict[str, torch.Tensor] = {}
    v = view(model)
    with torch.no_grad(), hook_points(v, v.points, lambda point, x: seen.__setitem__(point, x.clone())):
        v.model(images)
    assert seen.keys() == expected.keys()
    assert all(torch.equal(seen[point], x) for point, x in expected.items())
    with torch.no_grad():
        model(images)
    assert graphs.frame_count == compiled


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", ["torch-post", "torch-post-padded"])
def test_torchs_fast_path_is_off_only_meanwhile(name: str) -> None:
    case = BY_NAME[name]
    v = view(case.model())
    inputs = case.inputs()
    with torch.no_grad():
        fast = call(v.model, inputs)
        assert torch.backends.mha.get_fastpath_enabled()
        seen: dict[str, Tensor] = {}
        with hook_points(v, ["final_norm"], seen.__setitem__):
            assert not torch.backends.mha.get_fastpath_enabled()
            call(v.model, inputs)
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.allclose(fast[0], seen["final_norm"][0], atol=1e-5)


def test_compiled_code_runs_again_whoever_stopped_listening_first() -> None:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    graphs = CompileCounter()
    compiled = torch.compile(lambda x: x.square() + 1, backend=graphs)
    first, second = eagerly(), eagerly()
    first.__enter__()
    second.__enter__()
    compiled(torch.ones(2))
    first.__exit__(None, None, None)
    compiled(torch.ones(2))
    assert graphs.frame_count == 0
    second.__exit__(None, None, None)
    compiled(torch.ones(2))
    assert graphs.frame_count == 1
