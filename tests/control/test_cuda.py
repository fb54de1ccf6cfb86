"""On a GPU: the weights and a whole training step can be captured in a CUDA graph, with the same results."""

from __future__ import annotations

import pytest
import torch
from control.cases import FORMS, images, vit
from torch import nn

from unsmooth.control import control_of, reparametrize

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("form", FORMS)
def test_a_captured_step_does_what_an_eager_one_does(form: str) -> None:
    models = [reparametrize(vit(), form=form, std=0.3, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    x, y = images(4).cuda(), torch.arange(4, device="cuda")
    optimisers = [torch.optim.SGD(model.cuda().parameters(), lr=0.05) for model in models]

    def step(index: int) -> None:
        optimisers[index].zero_grad(set_to_none=True)
        nn.functional.cross_entropy(models[index](x), y).backward()
        optimisers[index].step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(0)
    for _ in range(2):
        graph.replay()
    for _ in range(5):
        step(1)
    torch.cuda.synchronize()
    for name, value in models[0].state_dict().items():
        torch.testing.assert_close(value, models[1].state_dict()[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_weights_on_the_gpu_are_those_of_the_cpu(form: str) -> None:
    model = reparametrize(vit(dim=192, heads=3), form=form, std=0.3)
    expected = [w.detach() for w in control_of(model).weights()]
    for ours, theirs in zip(control_of(model.cuda()).weights(), expected, strict=True):
        torch.testing.assert_close(ours.detach().cpu(), theirs, rtol=1e-4, atol=1e-4)
