"""Does control help a pretrained model? Fine-tuning it plain, and with penalties, adapters and published fixes."""

from unsmooth.training.finetuning.arms import Arm, arm_names
from unsmooth.training.finetuning.images import ImageJob
from unsmooth.training.finetuning.study import FineTuned, load_runs, run_study
from unsmooth.training.finetuning.text import TextJob

__all__ = ["Arm", "FineTuned", "ImageJob", "TextJob", "arm_names", "load_runs", "run_study"]
