"""One forward pass, to which any number of listeners listen."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from torch import nn

from unsmooth.errors import UnsmoothError
from unsmooth.models.forward import call, to_model


class Listener(Protocol):
    """What a forward pass can be shared by: Measurer, Explainer, TokenViewer. Their hooks are there meanwhile."""

    def before(self, inputs: Any) -> None:
        """The model is about to run on these inputs."""

    def after(self, batch: Any, inputs: Any) -> None:
        """It did; `batch` is how the inputs came."""

    def abandon(self) -> None:
        """It failed: forget what this pass left, so that the next one starts clean."""


def walk(model: nn.Module, batch: Any, listeners: Sequence[Listener]) -> None:
    """Run the model once on a batch; everybody's results are taken in, or nobody's hooks keep a trace of it."""
    inputs = to_model(batch, model)
    try:
        for listener in listeners:
            listener.before(inputs)
        call(model, inputs)
        for listener in listeners:
            listener.after(batch, inputs)
    except BaseException:
        for listener in listeners:
            listener.abandon()
        raise


def require_hooks(listener: Listener, hooks: ExitStack | None) -> ExitStack:
    """The hooks of a listener that was entered; an error outside its `with`, where a forward pass would be missed."""
    if hooks is None:
        name = type(listener).__name__
        raise UnsmoothError(f"{name} listens inside its `with` only: with {name}(model) as m: m.update(batch)")
    return hooks
