"""The verbs, put together."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import cleandoc
from textwrap import wrap
from typing import Any

import typer
from typer.core import TyperGroup

from unsmooth.cli.options import refuse_several

# One file per verb, each with one function `command`; a line that the list of verbs shows whole on 80 columns.
VERBS = {
    "demo": "Analyse the models that ship, and write a page to open.",
    "measure": "Measure how similar tokens are, at every layer.",
    "explain": "Explain from the weights which layers smooth or sharpen.",
    "attribute": "Say which heads, MLPs and norms changed the similarity.",
    "sweep": "Measure what edits of the weights cost on a task.",
    "simulate": "Repeat one attention layer: does it smooth or sharpen?",
    "report": "Write one HTML page about one or several models.",
    "track": "Measure all checkpoints of a training run.",
    "compare": "Compare two runs or two models, with intervals.",
    "check": "Check a measurement against bounds, for CI.",
    "train": "Train a ViT or text model, plain or with control.",
    "finetune": "Fine-tune with and without control: does it help?",
    "evaluate": "Evaluate a trained model on its test set.",
    "push": "Publish a trained model on the Hugging Face hub.",
    "reproduce": "Reproduce a figure or table of the paper or poster.",
}


# What to type, at the head of each verb's help. Those without a path run as they stand.
EXAMPLES = {
    "demo": ("unsmooth demo", "unsmooth demo --text"),
    "measure": (
        "unsmooth measure zoo:cifar100-plain --data bundled",
        "unsmooth measure timm:vit_base_patch16_224 --data photos/ --samples 64 --out run.json",
        "unsmooth measure hf:gpt2 --data book.txt --tokens all,no-outliers",
    ),
    "explain": (
        "unsmooth explain zoo:cifar100-plain --data bundled --samples 4",
        "unsmooth explain hf:gpt2 --data book.txt --layers 0,5,11 --full",
    ),
    "attribute": (
        "unsmooth attribute zoo:cifar100-plain --data bundled --samples 4",
        "unsmooth attribute hf:gpt2 --data book.txt --tokens all,no-outliers --carriers",
    ),
    "sweep": ("unsmooth sweep timm:vit_base_patch16_224 --data photos/ --task knn:labelled/ --edit low=0",),
    "simulate": ("unsmooth simulate --form general --norm pre",),
    "report": (
        "unsmooth report zoo:cifar100-plain zoo:cifar100-smoothing --data bundled",
        "unsmooth report timm:vit_base_patch16_224 --weights my.safetensors --data photos/ --out mine.html",
    ),
    "track": ("unsmooth track runs/my-training --data photos/ --out track.html",),
    "compare": (
        "unsmooth compare zoo:cifar100-plain zoo:cifar100-sharpening --data bundled",
        "unsmooth compare before.json after.json --out comparison.html",
    ),
    "check": ("unsmooth check run.json --max cosine_similarity=0.95@blocks.11.post --min effective_rank=20",),
    "train": (
        "unsmooth train cifar100 --variant sharpening --data cifar100/ --seed 0 --out runs/sharpening-0",
        "unsmooth train cifar100-fast --data cifar100/ --budget 10m",
        "unsmooth train crammed-bert --variant smoothing --data texts/ --budget 15m",
    ),
    "finetune": (
        "unsmooth finetune timm:vit_base_patch16_224 --data labelled/ --out study/ --seeds 3",
        "unsmooth finetune hf:bert-base-uncased --superglue superglue/ --tasks RTE --out study/",
    ),
    "evaluate": (
        "unsmooth evaluate zoo:text-plain --data bundled",
        "unsmooth evaluate runs/mine --data cifar100/",
        "unsmooth evaluate hf:bert-base-uncased --superglue superglue/ --out bert.json",
    ),
    "push": ("unsmooth push runs/mine me/my-vit --dry-run",),
    "reproduce": ("unsmooth reproduce list", "unsmooth reproduce fig4", "unsmooth reproduce fig4 --about"),
}

PARALLEL = ("measure", "explain", "attribute", "report", "track", "train")  # what several processes do together


class Verbs(TyperGroup):
    """The verbs; `--limit` of version 0.1 still stands for `--samples`, until version 0.3."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments under their names of today."""
        return super().parse_args(ctx, [re.sub(r"^--limit(?==|$)", "--samples", text) for text in args])

    def invoke(self, ctx: Any) -> Any:
        """Ctrl-C where a verb has nothing to keep; those that have, say what became of it themselves."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted: what was not finished is not written", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="unsmooth",
    cls=Verbs,
    help="Does my Transformer oversmooth? Where, why, and what can I do about it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from unsmooth import __version__

        typer.echo(f"unsmooth {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    if ctx.invoked_subcommand not in PARALLEL:
        refuse_several(f"{ctx.invoked_subcommand} is done", f". Several share the work of {', '.join(PARALLEL)}")


for _verb, _line in VERBS.items():
    _command = import_module(f"unsmooth.cli.{_verb}").command
    _shown = "\n".join(" \\\n      ".join(wrap(f"  {text}", 76, break_on_hyphens=False)) for text in EXAMPLES[_verb])
    app.command(_verb, short_help=_line, help=f"{cleandoc(_command.__doc__)}\n\n\b\n{_shown}")(_command)
