"""The plot of what each way of using both backends would choose and give, by the number in flight."""

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from proxy.lab.calibration.advice import choices
from proxy.lab.calibration.advice.choices import Way
from proxy.lab.calibration.report import drawing
from proxy.lab.calibration.report.drawing import Palette
from proxy.lab.calibration.report.lines import IN_FLIGHT, WAYS, Scene, draw

# The ways that are not the same at every load; the others' shares would be lines along the edges.
SPREADING = (Way.THRESHOLD, Way.OVERFLOW, Way.MARGINAL)


def ways(scene: Scene, palette: Palette) -> Figure | None:
    """Speed of a request under each way, and the share that goes to speculative."""
    totals = choices.totals_of(scene.context, scene.placement)
    rows = choices.at(scene.context, totals, scene.placement)
    if not {Way.ONLY_SPECULATIVE, Way.ONLY_BASELINE} <= {row.way for row in rows}:
        return None
    figure, (speeds, shares) = drawing.figure(2, height=4.8)
    best = {total: max(row.request_tok_s for row in rows if row.total == total) for total in totals}
    for way, line in WAYS.items():
        ours = [row for row in rows if row.way is way]
        at = [row.total for row in ours]
        if ours:
            draw(
                speeds, at, [100 * row.request_tok_s / best[row.total] for row in ours], line, palette, label=way.value
            )
        if ours and way in SPREADING:
            draw(shares, at, [100 * row.speculative / row.total for row in ours], line, palette)
    speeds.set_ylim(0, 107)
    speeds.set_ylabel("speed, % of the best")
    shares.set_ylim(-5, 107)
    shares.set_ylabel("% on speculative")
    for axes in (speeds, shares):
        axes.yaxis.set_major_locator(MaxNLocator(5))
        drawing.in_flight(axes, totals, f"{IN_FLIGHT}, both together" if axes is shares else "")
    drawing.legend(figure, speeds)
    return figure
