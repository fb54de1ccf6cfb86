"""Threads for small eigenproblems: how many each side has, and that it is put back."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from unsmooth.metrics import workers
from unsmooth.metrics.workers import small_problems, spread


@pytest.fixture
def four_threads() -> Iterator[None]:
    """Torch with four threads, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
def test_beside_an_accelerator_a_lapack_call_has_one_thread_and_spread_has_all() -> None:
    meeting = threading.Barrier(4, timeout=20)  # passed only by four threads at once
    with small_problems(torch.device("cuda")):
        assert torch.get_num_threads() == 1
        assert len(set(spread(lambda _: meeting.wait(), range(4)))) == 4
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_products_on_the_cpu_keep_their_threads() -> None:
    with small_problems(torch.device("cpu")):
        assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_threads_are_put_back_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError), small_problems(torch.device("cuda")):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 4
    assert spread(abs, [-1]) == [1]


@pytest.mark.usefixtures("four_threads")
def test_cuda_s_linear_algebra_is_loaded_once_before_the_threads_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch fails where several threads are the first to call it."""
    events: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(workers, "load_cuda_linalg", lambda: events.append("loaded"))
    spread(lambda part: events.append(part), ["a", "b"])
    assert events[0] == "loaded"
    assert sorted(events[1:]) == ["a", "b"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.usefixtures("four_threads")
def test_threads_that_are_the_first_to_invert_on_a_gpu() -> None:
    torch.zeros(1, device="cuda")  # CUDA is in use, its linear algebra not yet
    found = spread(lambda n: torch.linalg.inv(n * torch.eye(2, device="cuda")).trace().item(), [1.0, 2.0, 4.0, 8.0])
    assert found == [2.0, 1.0, 0.5, 0.25]
