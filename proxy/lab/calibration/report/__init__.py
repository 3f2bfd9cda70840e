"""Writes what a calibration found, for people and for the proxy: a page, a text, pictures, curves.yaml, a diff.

What it all means is decided elsewhere (advice/); equal findings give equal files.
"""

from pathlib import Path

from proxy.lab.calibration.advice.proposal import placement_of
from proxy.lab.calibration.report import curves_yaml, markdown, page, plots
from proxy.lab.calibration.report.told import tell
from proxy.lab.calibration.values import CURVES_FILE, Findings


def write(findings: Findings, folder: Path) -> list[Path]:
    """Writes all files into `folder`, made if need be, over those of an earlier call; returns their paths.

    There is no curves.yaml where no speed was measured and no proposal.diff where nothing is to change, and one that
    lies there is removed. Raises OSError.
    """
    told = tell(findings)
    drawn = {
        place: tuple(plots.draw(context, findings.measurements, placement_of(findings)))
        for place, context in enumerate(findings.main)
    }
    texts = {
        "report.html": page.render(findings, told, drawn),
        "report.md": markdown.render(findings, told),
        CURVES_FILE: curves_yaml.text(findings),
        "proposal.yaml": told.proposal.yaml(),
        "proposal.diff": told.diff or None,
    }
    pictures = folder / "plots"
    pictures.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in texts.items():
        if text is None:
            (folder / name).unlink(missing_ok=True)
            continue
        written.append(folder / name)
        written[-1].write_text(text, encoding="utf-8")
    for plot in (plot for of_context in drawn.values() for plot in of_context):
        for path, content in ((f"{plot.name}.svg", plot.svg.encode()), (f"{plot.name}.png", plot.png)):
            written.append(pictures / path)
            written[-1].write_bytes(content)
    return written
