#!/usr/bin/env python3
"""figure.py [FILE]: draws docs/step_times.svg, or FILE (-: stdout), from docs/results/README.md:
the table of training steps beside other frameworks, each time over that of the fused step."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
results = (root / "docs/results/README.md").read_text()
table = re.search(r"^\| batch \| jax jit-step .*?(?=\n\n)", results, re.M | re.S).group(0)
titles, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in
                    table.splitlines()]
titles = titles[1:7]
COLOURS = ["#9aa0a6", "#e8a87c", "#d9705a", "#c9a0dc", "#6aa5d8", "#1f6fb2"]
BAR, GAP, LEFT, SCALE = 11, 16, 100, 36

out, y = [], 46
for row in rows:
    times = [float(cell) for cell in row[1:7]]
    out.append(f'<text x="{LEFT - 10}" y="{y + 38}" text-anchor="end">batch {row[0]}</text>')
    for i, time in enumerate(times):
        width = SCALE * time / times[-1]
        out.append(f'<rect x="{LEFT}" y="{y + i * BAR}" width="{width:.1f}" height="{BAR - 2}" '
                   f'fill="{COLOURS[i]}"/>')
        out.append(f'<text x="{LEFT + width + 4:.1f}" y="{y + i * BAR + 8}" font-size="9">'
                   f'{time / times[-1]:.1f}x, {time:.0f} us</text>')
    y += len(times) * BAR + GAP
for i, title in enumerate(titles):
    at = LEFT + i * 104
    out.append(f'<rect x="{at}" y="26" width="9" height="9" fill="{COLOURS[i]}"/>')
    out.append(f'<text x="{at + 13}" y="34" font-size="10">{title}</text>')
svg = "\n".join([
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 {y}" width="740" height="{y}" '
    'font-family="sans-serif" font-size="12" fill="#222">',
    f'<rect width="740" height="{y}" fill="#fff"/>',
    '<text x="10" y="16" font-size="13">Time of a training step over that of sinter fused: '
    'shorter is faster</text>', *out, "</svg>", ""])
if sys.argv[1:] == ["-"]:
    sys.stdout.write(svg)
else:
    pathlib.Path(sys.argv[1] if sys.argv[1:] else root / "docs/step_times.svg").write_text(svg)
