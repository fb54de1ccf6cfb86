"""What one could do about what was found: to change nothing is always one of the choices."""

from __future__ import annotations

from collections.abc import Sequence

from unsmooth.analysis.measuring.outliers import WITHOUT, carried
from unsmooth.analysis.subject import NOT_EXPLAINED, Subject
from unsmooth.metrics.registry import METRICS
from unsmooth.page.course import Curve, Stretch, course, is_slight, ways
from unsmooth.page.words.course import WHO, alike, made_by
from unsmooth.page.words.phrases import listed
from unsmooth.page.words.theory import HARDLY, eigenvalue_shares


def advice(subjects: Sequence[Subject], metrics: Sequence[str], policies: Sequence[str]) -> str:
    """What one could do about what was found; to change nothing is always one of the choices."""
    metric = metrics[0]
    found = [(subject, each) for subject in subjects for each in course(subject.measurement, metric, policies[0])]
    smoothing = [(subject, stretch) for subject, stretch in found if stretch.way > 0 and not stretch.slight]
    makers = {
        kind
        for subject, stretch in smoothing
        for kind in made_by(subject.measurement, metric, policies[0], stretch)[0] or ()
    }
    base = next((policy for policy in policies if policy != WITHOUT), WITHOUT)
    if smoothing and (not makers or "Attention" in makers):
        said = f"What one could do: smoothing is no fault in itself; {_controls(smoothing)}"
    elif smoothing:
        said = (
            f"What one could do: smoothing is no fault in itself, and here {listed([WHO[k] for k in sorted(makers)])} "
            "makes it, which no control of H reaches; look at those weights first"
        )
    elif all(alike(subject.measurement, metric, policies[0]) for subject in subjects):
        said = (
            "What one could do: measure inputs whose tokens differ; of tokens that are alike nothing more can be said"
        )
    elif _others_smooth(subjects, metrics, policies[0]):
        said = (
            "What one could do: the metrics disagree, so decide first which of them the task needs; the words below "
            "say what each of them counts"
        )
    elif any(stretch.slight for _, stretch in found) and all(stretch.slight or not stretch.way for _, stretch in found):
        said = "What one could do: nothing has to be done, for the changes are small"
    elif sharpening := [(subject, stretch) for subject, stretch in found if stretch.way < 0]:
        said = "What one could do: nothing has to be done"
        if not _one_sided(sharpening, 1):
            said += "; where tokens should come closer together, train anew with <code>unsmooth.reparametrize(model, "
            said += '"smoothing")</code>, or fine-tune with <code>unsmooth.adapt(model, "smoothing")</code>'
    elif all(_hardly_changes(subject, each, policies[0]) for subject in subjects for each in metrics):
        said = "What one could do: nothing has to be done, for what changes, if anything does, is small"
    else:
        said = "What one could do: measure more samples, which would tell these changes from chance"
    if any(carried(subject.measurement, base, sums=False) for subject in subjects):
        said += "; and leave tokens of extreme norm out before averaging features"
    return f"{said}."


def _others_smooth(subjects: Sequence[Subject], metrics: Sequence[str], policy: str) -> bool:
    """Whether another metric clearly smooths, by more than slightly, where the first one tells something else."""
    return any(
        stretch.way > 0 and not stretch.slight
        for subject in subjects
        if not _seems_to_smooth(subject, metrics[0], policy)
        for other in metrics[1:]
        if not Curve(subject.measurement, other, policy).untested
        for stretch in course(subject.measurement, other, policy)
    )


def _seems_to_smooth(subject: Subject, metric: str, policy: str) -> bool:
    """Whether a metric goes that way by more than is slight, which samples do not make clear: it contradicts none."""
    stretches = course(subject.measurement, metric, policy)
    before, after = stretches[0].before, stretches[-1].after
    smoother = (after - before) * METRICS[metric].sign > 0
    return not ways(stretches) and smoother and not is_slight(metric, before, after)


def _hardly_changes(subject: Subject, metric: str, policy: str) -> bool:
    """Whether all values of a curve are within what the words call slight."""
    means = Curve(subject.measurement, metric, policy).means
    return is_slight(metric, min(means), max(means))


def _controls(smoothing: Sequence[tuple[Subject, Stretch]]) -> str:
    """What acts on attention, where one could act on it."""
    if all(any(note.startswith(NOT_EXPLAINED) for note in subject.measurement.notes) for subject, _ in smoothing):
        return "what changes H needs attention’s weights and matrices, which could not be read here"
    said = "where tokens must stay apart, "
    said += (
        "try a published remedy (<code>unsmooth.apply_fix</code>): H’s eigenvalues are on the sharpening side already"
        if _one_sided(smoothing, -1)
        else 'train anew with <code>unsmooth.reparametrize(model, "sharpening")</code>, which keeps H’s eigenvalues '
        'from being positive, fine-tune with <code>unsmooth.adapt(model, "sharpening")</code>, which adds negative '
        "ones, or try a published remedy (<code>unsmooth.apply_fix</code>)"
    )
    if any(subject.measurement.about.model.placement.startswith("parallel") for subject, _ in smoothing):
        said += (
            "; attention and the MLP add at the same time here, and all of these reach attention alone: "
            "<code>unsmooth attribute</code> says how much each of them does"
        )
    return said


def _one_sided(found: Sequence[tuple[Subject, Stretch]], side: int) -> bool:
    """Whether hardly any eigenvalue of these models is on the other side: a control of them has little to do."""
    shares = [eigenvalue_shares(s.explanation)[:2] if s.explanation is not None else (1.0, 1.0) for s, _ in found]
    return all((right if side < 0 else left) <= HARDLY * (left + right) > 0 for left, right in shares)
