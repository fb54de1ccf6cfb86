"""One forward pass, to which any number of listeners listen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor, nn

from unsmooth.errors import FeatureError, UnsmoothError
from unsmooth.models import ModelView
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.models.sums import check_sums, is_proven


class Listener(Protocol):
    """What a forward pass can be shared by; its hooks are there meanwhile."""

    @abstractmethod
    def before(self, inputs: Any) -> None:
        """The model is about to run on these inputs."""

    @abstractmethod
    def after(self, batch: Any, inputs: Any) -> None:
        """It did; `batch` is how the inputs came."""

    @abstractmethod
    def abandon(self) -> None:
        """It failed: forget what this pass left, so that the next one starts clean."""


def walk(model: nn.Module, batch: Any, listeners: Sequence[Listener]) -> None:
    """Run the model once on a batch; everybody's results are taken in, or nobody's hooks keep a trace of it."""
    inputs = to_model(batch, model)
    _prove(listeners, inputs)
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


def _prove(listeners: Sequence[Listener], inputs: Any) -> None:
    """Before the first batch, of a row that nobody tested on this model: PointError unless its points add up."""
    new = [listener for listener in listeners if isinstance(listener, Hooked) and not listener.proven]
    for v in {id(listener.view.backbone): listener.view for listener in new}.values():
        if not is_proven(v):
            check_sums(v, inputs)
    for listener in new:
        listener.proven = True


def nothing(done: str) -> FeatureError:
    """The error where there was nothing to measure, explain or attribute."""
    return FeatureError(f"nothing was {done}: there was no batch; give at least one (a generator gives its own once)")


class Hooked(Listener):
    """A listener whose hooks are in the model inside its `with`, and the model evaluates meanwhile."""

    view: ModelView
    batches: int = 0  # that were taken in
    proven: bool = False  # whether the points of its model add up
    _stack: ExitStack | None = None

    @abstractmethod
    def hooks(self) -> Iterable[AbstractContextManager[Any]]:
        """What listens, not yet entered."""

    def update(self, batch: Any) -> None:
        """One forward pass, all of whose samples are taken in, or none."""
        walk(self.view.model, batch, [self])

    @contextmanager
    def numbered(self) -> Iterator[None]:
        """What is wrong with the features of a batch is said with its number, also where others share the pass."""
        try:
            yield
        except FeatureError as error:
            raise FeatureError(f"{error} (batch {self.batches})") from None

    def require_hooks(self) -> ExitStack:
        """Those of a listener that was entered; an error outside its `with`, where a forward pass would be missed."""
        if self._stack is None:
            name = type(self).__name__
            raise UnsmoothError(f"{name} listens inside its `with` only: with {name}(model) as m: m.update(batch)")
        return self._stack

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(evaluating(self.view.model))
            for hook in self.hooks():
                stack.enter_context(hook)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()
        hooks, self._stack = self.require_hooks(), None
        hooks.__exit__(kind, error, trace)


class Seen(NamedTuple):
    """A tensor as it was at a point. The reference keeps its memory from being reused."""

    point: str
    x: Tensor
    version: int | None

    @classmethod
    def now(cls, point: str, x: Tensor) -> Seen:
        """Of this moment; tensors of inference mode do not count what is written to them."""
        return cls(point, x, None if x.is_inference() else x._version)

    def is_still(self, x: Tensor) -> bool:
        """Whether `x` is the same memory, and nothing was added to it in place since."""
        same = x is self.x or (
            x.data_ptr() == self.x.data_ptr() and x.shape == self.x.shape and x.stride() == self.x.stride()
        )
        return same and self.version is not None and x._version == self.version
