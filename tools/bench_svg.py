"""Draws the tables of bench.py as horizontal bars, in one SVG that is legible on light and on dark pages."""

import dataclasses
from xml.sax.saxutils import escape

WIDTH, LABELS, VALUES = 860, 220, 150
LINE, BAR, TITLE, GAP = 22, 14, 30, 18


@dataclasses.dataclass
class Bar:
    """A contestant: `around` is the spread on both sides of `value`, `note` stands behind the number."""

    name: str
    value: float
    around: float
    note: str


@dataclasses.dataclass
class Chart:
    """A table. Bars of one chart share a scale."""

    title: str
    unit: str
    bars: list


STYLE = """
text { font: 13px system-ui, sans-serif; fill: #222 }
.title { font-weight: 600 } .about { font-size: 11px; fill: #666 }
.bar { fill: #9aa7b5 } .ours { fill: #2f7d4f } .spread { stroke: #222; stroke-width: 1.5 } .back { fill: #fff }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .about { fill: #999 } .bar { fill: #5c6975 } .ours { fill: #4fb37a } .spread { stroke: #ddd } .back { fill: #16191d }
}
"""


def wrapped(text, columns=130):
    """Lines of at most so many characters, cut at spaces."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > columns:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def draw(title, about, charts):
    """The whole picture as text."""
    parts, y = [], TITLE
    parts.append(f'<text class="title" x="10" y="{y}">{escape(title)}</text>')
    for line in wrapped(about):
        y += 16
        parts.append(f'<text class="about" x="10" y="{y}">{escape(line)}</text>')
    for chart in charts:
        y += TITLE + GAP
        parts.append(f'<text class="title" x="10" y="{y}">{escape(chart.title)}</text>')
        most = max((bar.value + bar.around for bar in chart.bars), default=0) or 1
        scale = (WIDTH - LABELS - VALUES) / most
        for bar in chart.bars:
            y += LINE
            middle = y - 5
            kind = "bar ours" if bar.name.startswith("warplink") else "bar"
            parts.append(f'<text x="{LABELS - 8}" y="{y}" text-anchor="end">{escape(bar.name)}</text>')
            parts.append(f'<rect class="{kind}" x="{LABELS}" y="{middle - BAR / 2:.1f}" width="{bar.value * scale:.1f}" height="{BAR}"/>')
            low, high = (LABELS + max(0, bar.value + side * bar.around) * scale for side in (-1, 1))
            if bar.around:
                parts.append(f'<path class="spread" d="M{low:.1f} {middle}H{high:.1f}"/>')
            digits = 2 if bar.value < 10 else 0
            note = f" ({bar.note})" if bar.note else ""
            parts.append(f'<text x="{high + 6:.1f}" y="{y}">{bar.value:.{digits}f} {escape(chart.unit + note)}</text>')
    height = y + GAP
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
            f"<style>{STYLE}</style><rect class=\"back\" width=\"100%\" height=\"100%\"/>" + "\n".join(parts) + "</svg>\n")
