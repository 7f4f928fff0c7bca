"""The words that go with a page's figures: title, description for screen readers, caption."""

from pseudocoreset.engine.text import printable
from pseudocoreset.report.run_report import RunReport

Words = tuple[str, str, str]


def loss_words(run: RunReport) -> Words:
    """Of the losses over the updates."""
    names = {key.split("/")[0] for row in run.metrics for key in row}
    caption = "What the method reports for each update."
    if "loss_x" in names:
        caption = (
            "The loss on the coreset of networks sampled from each posterior. The method makes "
            "the two posteriors similar, so the curves should approach each other."
        )
    elif "nll" in names:
        caption = (
            "The loss on real points of networks trained on the coreset (nll), which the method "
            "minimises, and their loss on the coreset itself."
        )
    return "Distillation", f"Curves over {len(run.metrics)} updates: {caption}", caption


def reliability_words(run: RunReport) -> Words:
    """Of the reliability diagram."""
    error, accuracy = run.score("ece"), run.score("accuracy")
    sentence = "" if error is None or accuracy is None else (
        f" Over all seeds, accuracy {accuracy:.1%}, expected calibration error {error:.3f}."
    )  # fmt: skip
    caption = (
        "Accuracy by confidence. A bar below the dashed line means predictions are overconfident; "
        "a bar above it means they are underconfident. First seed only."
    )
    return "Calibration", f"Bars of accuracy for each bin of confidence.{sentence}", caption


def kept_words() -> Words:
    """Of accuracy against the share of points kept."""
    caption = (
        "Accuracy when only the most confident predictions are kept (samples of all seeds pooled). "
        "The curve should fall from left to right: uncertain predictions should be the wrong ones."
    )
    return "Accuracy of the most confident predictions", f"A curve. {caption}", caption


def fitted_words() -> Words:
    """Of predictions against targets."""
    caption = (
        "Predicted against true targets of test points (samples of all seeds pooled). Bars show "
        "one standard deviation. On the dashed line predictions are exact."
    )
    return "Predictions", f"Points with error bars. {caption}", caption


def chain_words(run: RunReport) -> Words:
    """Of the loss along chains."""
    caption = "The loss along each chain should fall at first and then vary around one level."
    if run.protocol.get("every"):
        caption += f" A sample is kept every {printable(run.protocol['every'])} epochs."
    return "Sampling", f"Curves of the loss along the chains. {caption}", caption


def prediction_words(run: RunReport) -> Words:
    """Of predictions along chains."""
    what = "probability of the true class" if run.has_classes else "number"
    caption = (
        f"The predicted {what} along each chain, at two test points: the one with the median R̂ "
        "and the one with the largest. Chains that sample the same posterior overlap."
    )
    return "Do the chains agree?", f"Curves of the predictions along the chains. {caption}", caption
