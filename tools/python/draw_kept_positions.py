#!/usr/bin/env python3
"""Draws which positions of a document each KV head keeps, as an SVG picture: an example of longhaul_kv.

  python3 draw_kept_positions.py caches/doc-0123456789abcdef.h5 kept.svg
"""
import sys

import numpy as np

import longhaul_kv

WIDTH, ROW, LABEL = 900, 10, 110
COLOURS = {"retrieval": "#1f5fa8", "streaming": "#d9822b", "window": "#5b8c3a"}


def runs(positions):
    """[begin, end) of neighbouring positions."""
    if not len(positions):
        return []
    cuts = np.flatnonzero(np.diff(positions) != 1) + 1
    return [(piece[0], piece[-1] + 1) for piece in np.split(positions, cuts)]


def draw(document):
    n_tokens = int(document.attrs["seq_len"])
    roles = document.roles()
    lines = []
    for layer in range(document.n_layers):
        for kv_head in range(document.n_kv_heads):
            y = ROW * (layer * document.n_kv_heads + kv_head)
            if kv_head == 0:
                lines.append(f'<text x="4" y="{y + ROW - 1}" font-size="9">layer {layer}</text>')
            for begin, end in runs(document.positions(layer, kv_head)):
                x, width = LABEL + WIDTH * begin / n_tokens, max(1.0, WIDTH * (end - begin) / n_tokens)
                lines.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 2}" '
                             f'fill="{COLOURS[roles[layer][kv_head]]}"/>')
    height = ROW * document.n_layers * document.n_kv_heads
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 10}" height="{height}" '
                      'font-family="sans-serif">', *lines, "</svg>"]) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with longhaul_kv.open(sys.argv[1]) as document:
        picture = draw(document)
    with open(sys.argv[2], "w") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
