"""What does an edit cost? Edits of growing strength, the smoothness and the task's score that each leaves."""

from unsmooth.sweeping.strengths import sweep
from unsmooth.sweeping.tasks import Task, knn_task, open_task, perplexity_task, retrieval_task

__all__ = ["Task", "knn_task", "open_task", "perplexity_task", "retrieval_task", "sweep"]
