from __future__ import annotations

from pathlib import Path

import pytest

from unsmooth.errors import DataError
from unsmooth.sources.patches import image_patches


def test_images_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no image at"):
        image_patches(tmp_path / "none.png")
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(DataError, match="not an image that pillow can read"):
        image_patches(tmp_path / "text.png")
