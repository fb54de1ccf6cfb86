"""Two processes that a launcher started write one result, and it is that of one process."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from processes import free_port, run_twice

import unsmooth
from unsmooth.cli.app import app
from unsmooth.errors import OptionError

transformers = pytest.importorskip("transformers")


def started(folder: Path, commands: list[str], size: int) -> None:
    """The commands one after the other in each of `size` processes; the first error of one ends all."""
    ports = [free_port() for _ in commands]  # one each: a process that is quick must not meet the last one's store
    run_twice(_commands, ports, folder, commands, size, processes=size)


def _commands(rank: int, ports: list[str], folder: Path, commands: list[str], size: int) -> None:
    launched = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {key: str(value) for key, value in launched.items()} | {"CUDA_VISIBLE_DEVICES": ""}
    torch.set_num_threads(1)
    os.chdir(folder)
    for words, port in zip(commands, ports, strict=True):
        os.environ["MASTER_PORT"] = port
        app(words.split(), standalone_mode=False)


def write_to_the_first(model: torch.nn.Module) -> None:
    """Position 0 has a feature of its own, by which one unit of the second MLP knows it and makes it long."""
    with torch.no_grad():
        model.wte.weight[:, 0], model.wpe.weight[:, 0] = 0, 0
        model.wpe.weight[0, 0] = 5
        mlp = model.h[1].mlp
        mlp.c_fc.weight[:, 0], mlp.c_fc.bias[0], mlp.c_proj.weight[0] = 0, -60, 0
        mlp.c_fc.weight[0, 0], mlp.c_proj.weight[0, 1] = 20, 1000


def test_two_processes_write_what_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    torch.manual_seed(0)
    for folder in ("model", "runs/checkpoint-1", "runs/checkpoint-2"):
        model = transformers.GPT2Model(config)
        write_to_the_first(model)
        model.save_pretrained(tmp_path / folder)
    given = "hf:model --data random --samples 10 --batch-size 3 --max-length 12 --device cpu --json --out"
    commands = [
        f"measure --metrics paper,dataset_rank {given} measured", f"explain {given} explained",
        f"attribute --tokens all,no-outliers --spectrum --total 2 --carriers {given} attributed",
        f"report {given.removesuffix('--out')} --explain-inputs 4 --metrics hfc_lfc --tokens all --out page",
        f"track runs {given.removeprefix('hf:model ')} tracked",
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for command in commands:
        app(f"{command}1.json".split(), standalone_mode=False)
        written = capsys.readouterr().out
    started(tmp_path, [f"{command}2.json" for command in commands], 2)
    one, two = (unsmooth.load(tmp_path / f"measured{size}.json") for size in (1, 2))
    assert two.samples == 10
    assert two.about.data == one.about.data
    for cell, moments in one.cells.items():
        assert two.cells[cell].count == moments.count
        assert two.cells[cell].mean == pytest.approx(moments.mean, rel=1e-5)  # float32 in other batches
    assert one.per_sample is not None
    assert two.per_sample is not None
    assert sorted(one.per_sample.keys) == sorted(two.per_sample.keys)
    one, two = (unsmooth.load(tmp_path / f"explained{size}.json") for size in (1, 2))
    for frame in ("frame", "head_frame"):
        rows, others = (getattr(e, frame)() for e in (one, two))
        assert rows["input"].tolist() == others["input"].tolist()
        assert rows["layer"].tolist() == others["layer"].tolist()
    assert two.frame()["exponent"].tolist() == pytest.approx(one.frame()["exponent"].tolist(), rel=1e-4, abs=1e-5)
    assert two.about.data == one.about.data
    one, two = (unsmooth.load(tmp_path / f"attributed{size}.json") for size in (1, 2))
    assert two.about.data == one.about.data
    assert two.inputs == 10
    for policy in one.policies:
        rows, others = (each.frame(policy, full=True) for each in (one, two))
        assert others[["layer", "part"]].equals(rows[["layer", "part"]])
        for column in ("mean", "std", "hfc", "lfc", "negative", "low", "high"):
            assert others[column].tolist() == pytest.approx(rows[column].tolist(), rel=1e-4, abs=1e-6, nan_ok=True)
        assert two.positions[policy] == pytest.approx(one.positions[policy], rel=1e-4, abs=1e-6)
        assert two.under(policy).change.mean == pytest.approx(one.under(policy).change.mean, rel=1e-5)
        tokens, other_tokens = (each.by_token(policy).set_index("token")["share"].to_dict() for each in (one, two))
        assert other_tokens == pytest.approx(tokens, rel=1e-4, abs=1e-6)
    assert [row["part"] for row in two.totals] == [row["part"] for row in one.totals]
    for name in ("direct", "total", "std"):
        assert [r[name] for r in two.totals] == pytest.approx([r[name] for r in one.totals], rel=1e-3, abs=1e-5)
    once, twice = (each.carriers for each in (one, two))
    assert (twice.account.layer, twice.account.inputs) == (once.account.layer, once.account.inputs) == (1, 10)
    for name in ("curves", "sink"):
        left, right = (getattr(each.account, name) for each in (once, twice))
        assert {k: pytest.approx(v, rel=1e-4, abs=1e-6) for k, v in left.items()} == right
    for row, other in zip(once.layers, twice.layers, strict=True):
        assert other == pytest.approx(row, rel=1e-4, abs=1e-6)
    assert np.array(twice.heads) == pytest.approx(np.array(once.heads), rel=1e-4, abs=1e-6)
    assert (tmp_path / "page2.json").stat().st_size == pytest.approx((tmp_path / "page1.json").stat().st_size, rel=0.02)
    told = json.loads(written)
    kept = {
        folder: sorted(p.name for p in (tmp_path / f"{folder}.results").iterdir())
        for folder in ("tracked1", "tracked2")
    }
    assert kept["tracked1"] == kept["tracked2"]
    for path in sorted((tmp_path / "tracked1.results").glob("*[0-9a-f].json")):
        if not path.name.endswith(".weights.json"):
            once, twice = unsmooth.load(path), unsmooth.load(tmp_path / "tracked2.results" / path.name)
            assert {c: m.mean for c, m in twice.cells.items()} == pytest.approx(
                {c: m.mean for c, m in once.cells.items()}, rel=1e-5
            )
    assert [each["step"] for each in told] == [1, 2]


def _one_is_interrupted(rank: int, port: str, folder: Path) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    torch.set_num_threads(1)
    from unsmooth.analysis.processes import launched
    from unsmooth.cli import attribute, explain, measure
    from unsmooth.cli.progress import Interruption

    loaded = unsmooth.load_model(f"hf:{folder / 'model'}")
    given = unsmooth.sources.open_data("random", loaded, samples=6, batch_size=1, max_length=8)

    class Later(Interruption):  # in the second process, once it has taken a batch
        def until(self, batches: Iterable[Any]) -> Iterator[Any]:
            for number, batch in enumerate(super().until(batches)):
                self.signal = signal.SIGINT if rank and number == 3 else None
                yield batch

    with launched() as team:
        found = {
            "measured": measure.run(loaded, given, "hfc_lfc", "all", "residual", "error", Later(), team=team),
            "explained": explain.run(loaded, given, 1, {}, Later(), team),
            "attributed": attribute.run(loaded, given, {}, (1, 32, "zero"), Later(), team),
        }
    said = {name: [result.partial, getattr(result, "totals", [])] for name, result in found.items()}
    (folder / f"{rank}.json").write_text(json.dumps(said))


def test_an_interruption_of_one_process_is_known_to_all(tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    transformers.GPT2Model(config).save_pretrained(tmp_path / "model")
    run_twice(_one_is_interrupted, free_port(), tmp_path)
    for rank in (0, 1):
        said = json.loads((tmp_path / f"{rank}.json").read_text())
        assert said == {name: [True, []] for name in ("measured", "explained", "attributed")}


def _too_few_batches(rank: int, ports: list[str], folder: Path, verbs: list[str]) -> None:
    given = "hf:model --data random --samples 2 --batch-size 2 --max-length 8 --device cpu --out out"
    for verb, port in zip(verbs, ports, strict=True):
        with pytest.raises(OptionError, match=r"2 processes, but batches for 1 only: start fewer"):
            _commands(rank, [port], folder, [f"{verb} {given}"], 2)
    (folder / f"refused-{rank}").touch()


def test_fewer_batches_than_processes_are_refused_on_every_process(tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    transformers.GPT2Model(config).save_pretrained(tmp_path / "model")
    verbs = ["measure", "explain", "attribute", "report"]
    run_twice(_too_few_batches, [free_port() for _ in verbs], tmp_path, verbs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "refused-0", "refused-1"]


@pytest.mark.parametrize("words", ["evaluate zoo:cifar100-plain", "measure --features x.safetensors"])
def test_what_one_process_does_is_refused_by_several(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0")):
        monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match=r"one process.* 2 were launched: start it without a launcher"):
        app(words.split(), standalone_mode=False)
