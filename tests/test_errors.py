"""Messages of errors."""

from __future__ import annotations

from unsmooth.errors import MissingExtraError


def test_a_package_that_is_there_but_broken_is_not_called_missing() -> None:
    try:
        raise ImportError("it wants a newer NumPy")
    except ImportError:
        broken = str(MissingExtraError.needed("pyarrow", "data", "reading parquet"))
    assert "pyarrow, which is installed but cannot be imported (it wants a newer NumPy): pip install" in broken
    try:
        raise ModuleNotFoundError("No module named 'its_own_need'")
    except ImportError:
        lacking = str(MissingExtraError.needed("pyarrow", "data", "reading parquet"))
        absent = str(MissingExtraError.needed("no_such_arrow", "data", "reading parquet"))
    assert "pyarrow, which is installed but cannot be imported (No module named 'its_own_need')" in lacking
    assert "which is not installed" in absent
