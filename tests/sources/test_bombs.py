"""Small files that unpack to much take little memory: the peak of a process of its own, read from the system."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image
from small_models import images, vit

import unsmooth

pytest.importorskip("resource", reason="peaks of memory are read by a POSIX module")

CODE = """
import json, resource, sys, unsmooth
from unsmooth.sources import load_model, open_data

unit = 1 if sys.platform == "darwin" else 1024
model = load_model("timm:test_vit", random_init=True)

def grown(act, harmless, bomb):
    act(harmless)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = act(bomb)
    return [found, unit * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)]

def measurement(path):
    try:
        return unsmooth.load(path).samples
    except unsmooth.UnsmoothError as error:
        return str(error)

def picture(path):
    (batch,) = open_data(path, model)
    return [list(batch.shape), batch.std().item()]

print(json.dumps([grown(measurement, *sys.argv[1:3]), grown(picture, *sys.argv[3:5])]))
"""


def zeros(count: int) -> bytes:
    """What zlib.compress(bytes(count)) unpacks to, without taking `count` bytes here: one block again and again."""
    block, times = 1 << 24, count >> 24
    packer = zlib.compressobj(9)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(block)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    return head + piece * times + end + struct.pack(">I", (times * block % 65521) << 16 | 1)


def test_bombs_take_no_more_memory_than_what_they_hold(tmp_path: Path) -> None:
    """Before there were bounds: 13 GB for the measurement, a file of 9 MB, and 15 GB for the picture of 118 bytes."""
    good, bad, small, long = (tmp_path / name for name in ("good.json", "bad.json", "small.png", "long.png"))
    unsmooth.measure(vit(), images(2)).save(good)
    found = json.loads(good.read_text())
    found["per_sample"] |= dict.fromkeys(("keys", "values"), base64.b64encode(zeros(13 << 28)).decode())
    bad.write_text(json.dumps(found))
    assert bad.stat().st_size < 10e6
    Image.new("L", (32, 32), 128).save(small)
    Image.new("L", (1, 20_000), 128).save(long, optimize=True)
    assert long.stat().st_size < 200
    done = subprocess.run(
        [sys.executable, "-c", CODE, good, bad, small, long], capture_output=True, text=True, check=True, timeout=600
    )
    (error, measured), ((shape, deviation), pictured) = json.loads(done.stdout)
    assert "damaged (expected a whole stream of at most 16,777,216 bytes)" in error
    assert shape == [1, 3, 160, 160]
    assert deviation < 2  # one colour, normalised by channel
    assert measured < 500e6
    assert pictured < 500e6
