"""A trained model on the Hugging Face hub: its files, and a card that says what it is and where it comes from."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from unsmooth.errors import CheckpointError, MissingExtraError, OptionError

__all__ = ["Published", "card", "front_matter", "push"]

CARD, RECORD, MEASURED = "README.md", "record.json", "measurement.json"
_REPOSITORY = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)


class Published(NamedTuple):
    """What was, or with a dry run would be, uploaded: where to, names and sizes, and the card."""

    address: str
    files: dict[str, int]
    card: str


def push(
    reference: str | Path, repository: str, *, private: bool = False, dry_run: bool = False, api: Any = None
) -> Published:
    """Upload a model that `train` wrote, or one of the zoo, with its card, record, figure and measurement.

    Args:
        reference: `zoo:NAME`, or the folder that `train` wrote.
        repository: `OWNER/NAME` on the hub; made if it is not there, else it gets a new commit.
        private: whether a new repository is.
        dry_run: prepare everything, upload nothing.
        api: what uploads; `huggingface_hub.HfApi()` by default, which knows who is logged in.
    """
    if not _REPOSITORY.fullmatch(repository):
        raise OptionError(f"expected a repository as OWNER/NAME, got {repository!r}")
    if api is None and not dry_run:
        try:
            from huggingface_hub import HfApi
        except ImportError as error:
            raise MissingExtraError.needed("huggingface_hub", "hub", "uploading to the hub") from error
        api = HfApi()
    with tempfile.TemporaryDirectory() as draft:
        prepare(reference, Path(draft))
        written = (Path(draft) / CARD).read_text(encoding="utf-8").replace(_HERE, repository)
        (Path(draft) / CARD).write_text(written, encoding="utf-8")
        files = {path.name: path.stat().st_size for path in sorted(Path(draft).iterdir())}
        if not dry_run:
            api.create_repo(repository, private=private, exist_ok=True)
            api.upload_folder(repo_id=repository, folder_path=draft, commit_message="Model, card and record")
    return Published(f"https://huggingface.co/{repository}", files, written)


def prepare(reference: str | Path, out: Path) -> None:
    """Everything that is uploaded, in a folder; the model is loaded and measured, so that what is broken stays here."""
    from unsmooth.analysis import measure
    from unsmooth.sources import load_model, open_data
    from unsmooth.sources.trained import CONFIG, TEXT_ABOUT, WEIGHTS, is_text, trained_folder

    folder = trained_folder(reference)
    text = is_text(folder)
    keep = (CONFIG, WEIGHTS, *((TEXT_ABOUT, "tokenizer.json", "tokenizer_config.json") if text else ()))
    for name in keep:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, out / name)
    about, record = _read(folder)
    if record:
        (out / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    loaded = load_model(str(reference))
    measurement = measure(loaded, open_data("bundled", loaded), points="residual")
    measurement.save(out / MEASURED)
    figure = out / "depth.png"
    try:
        measurement.plot().save(figure)
    except MissingExtraError:
        figure = out / "depth.svg"
        measurement.plot().save(figure)
    own = folder / CARD
    body = own.read_text(encoding="utf-8") if own.is_file() else None
    (out / CARD).write_text(card(folder.name, about, record, body, figure.name, measurement.samples), encoding="utf-8")


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a folder says of its model, and the record of its run, empty if there is none."""
    from unsmooth.sources.files import read_json
    from unsmooth.sources.trained import TEXT_ABOUT, TEXT_SCHEMA, is_text, read_config, zoo_folder
    from unsmooth.training.engine.record import SCHEMA

    about = read_json(folder / TEXT_ABOUT, TEXT_SCHEMA) if is_text(folder) else read_config(folder)
    run = Path(str(about.get("run"))).name
    kept = zoo_folder() / "results" / "models" / re.sub(r"-seed\d+$", "", run) / RECORD
    for path in (folder / RECORD, zoo_folder() / "records" / f"{run}.json", kept):
        if path.is_file():
            return about, read_json(path, SCHEMA)
    return about, {}


def front_matter(about: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """The lines at the head of a card that the hub reads: YAML, every text quoted as JSON does it.

    >>> print(front_matter({"run": "tiny-plain-seed0", "variant": "plain"}, {}).splitlines()[1])
    license: apache-2.0
    """
    text = "arguments" not in about
    run, variant = str(about.get("run", "")), str(about.get("variant", "plain"))
    data = run.partition("-")[0] if not text else ""
    lines = ["---", "license: apache-2.0", "library_name: unsmooth"]
    lines.append(f"pipeline_tag: {'fill-mask' if text else 'image-classification'}")
    tags = ["unsmooth", "oversmoothing", "transformers" if text else "timm", variant]
    lines += ["tags:", *(f"- {_quoted(tag)}" for tag in tags)]
    if re.fullmatch(r"[a-z][a-z0-9]+", data):
        lines += ["datasets:", f"- {_quoted(data)}"]
    accuracy = (record.get("final") or {}).get("accuracy")
    if isinstance(accuracy, int | float) and not text:  # of a public test set
        lines += [
            "metrics:", "- accuracy", "model-index:", f"- name: {_quoted(run)}", "  results:", "  - task:",
            "      type: image-classification", "    dataset:", f"      name: {_quoted(data)}",
            f"      type: {_quoted(data)}", "      split: test", "    metrics:", "    - type: accuracy",
            f"      value: {100 * accuracy:.2f}",
        ]  # fmt: skip
    return "\n".join([*lines, "---", ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def card(
    name: str,
    about: Mapping[str, Any],
    record: Mapping[str, Any],
    body: str | None = None,
    figure: str | None = None,
    samples: int = 0,
) -> str:
    """The whole card; a body that somebody wrote is kept, with the front matter and the figure that it lacks."""
    if body is not None and body.startswith("---\n"):
        if "\n---" not in body[4:]:
            raise CheckpointError(f"the front matter of {name}'s README.md has no end: expected a second line of ---")
        text = body
    else:
        text = front_matter(about, record) + "\n" + (body or _body(name, about, record))
    if figure and f"({figure})" not in text:
        text = text.rstrip() + (
            f"\n\n![HFC/LFC, cosine similarity and effective rank by depth]({figure})\n\n*How alike tokens are along "
            f"the residual stream, on the {samples} inputs that ship with unsmooth (mean over them; {MEASURED} has the "
            "numbers and their definitions).*\n"
        )
    if "load_model(" not in text:
        text = text.rstrip() + "\n\n## Use\n" + _USE
    return text


_HERE = "OWNER/THIS-MODEL"
_USE = f"""```python
from huggingface_hub import snapshot_download
import unsmooth

model = unsmooth.load_model(snapshot_download("{_HERE}")).model
```
"""


def _body(name: str, about: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    from unsmooth.training.engine.record import in_words

    variant = str(about.get("variant", "plain"))
    lines = [
        f"# {name}",
        "",
        f"Trained with [unsmooth](https://github.com/unsmooth/unsmooth), variant `{variant}`.",
        "",
    ]
    final = record.get("final") or {}
    rows: dict[str, Any] = {}
    if "loss" in final:
        counted = next((f" ({final[kind]:,} {kind})" for kind in ("images", "sequences") if kind in final), "")
        rows["result"] = in_words(final) + counted
    rows["command"] = f"`{record['command']}`" if "command" in record else None
    rows["commit"], rows["date"], rows["hardware"] = (record.get(key) for key in ("commit", "date", "hardware"))
    rows["minutes"] = record.get("minutes")
    kept = [f"| {key} | {value} |" for key, value in rows.items() if value is not None]
    return "\n".join([*lines, *(["| | |", "|---|---|", *kept] if kept else [])]) + "\n"
