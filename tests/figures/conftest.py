"""The page's subjects, whose figures are drawn here."""

from page.conftest import subjects, tiny, unexplained  # noqa: F401
