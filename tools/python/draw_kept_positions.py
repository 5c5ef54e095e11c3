#!/usr/bin/env python3
"""Draws which positions of a document each KV head keeps, as an SVG picture: an example of longhaul_kv.

  python3 draw_kept_positions.py caches/doc-0123456789abcdef.h5 kept.svg

A row for each head; what is kept is coloured by the head's role, however few positions it is: at least two dots of the picture.
"""
import sys

import numpy as np

import longhaul_kv

WIDTH, ROW, LEFT, TOP, BOTTOM, LEAST = 900, 10, 120, 44, 34, 2.0
COLOURS = {"retrieval": "#1f5fa8", "streaming": "#d9822b", "window": "#5b8c3a"}


def runs(positions):
    """[begin, end) of neighbouring positions."""
    if not len(positions):
        return []
    cuts = np.flatnonzero(np.diff(positions) != 1) + 1
    return [(piece[0], piece[-1] + 1) for piece in np.split(positions, cuts)]


def text(x, y, words, anchor="start", size=10):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def row(document, layer, kv_head, y, role, n_tokens):
    """The head's grey row and, on it, what it keeps."""
    yield f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{ROW - 2}" fill="#eeeeee"/>'
    for begin, end in runs(document.positions(layer, kv_head)):
        width = max(LEAST, WIDTH * (end - begin) / n_tokens)
        x = min(LEFT + WIDTH * begin / n_tokens, LEFT + WIDTH - width)
        yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 2}" fill="{COLOURS[role]}"/>'


def legend(roles):
    x = LEFT
    for role, colour in COLOURS.items():
        n = sum(layer.count(role) for layer in roles)
        if n:
            yield f'<rect x="{x}" y="{TOP - 18}" width="10" height="10" fill="{colour}"/>'
            yield text(x + 14, TOP - 9, f"{n} {role}")
            x += 110


def axis(y, n_tokens):
    """Marks at round positions, at most nine."""
    step = next(s * 10**e for e in range(12) for s in (1, 2, 5) if n_tokens / (s * 10**e) <= 8)
    for position in range(0, n_tokens + 1, step):
        x = LEFT + WIDTH * position / n_tokens
        yield f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + 4}" stroke="black"/>'
        yield text(x, y + 15, f"{position:,}", "middle")
    yield text(LEFT + WIDTH / 2, y + 29, "position in the document, tokens", "middle")


def draw(document):
    n_tokens, roles = int(document.attrs["seq_len"]), document.roles()
    lines = [text(LEFT, 14, f"{document.path.stem}: what each KV head keeps of {n_tokens:,} tokens", size=12), *legend(roles)]
    y = TOP
    for layer in range(document.n_layers):
        lines.append(text(LEFT - 8, y + ROW - 2, f"layer {layer}, head 0", "end", 9))
        for kv_head in range(document.n_kv_heads):
            lines.extend(row(document, layer, kv_head, y, roles[layer][kv_head], n_tokens))
            y += ROW
        y += 4
    lines.extend(axis(y, n_tokens))
    size = f'width="{LEFT + WIDTH + 40}" height="{y + BOTTOM}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">',
                      '<rect width="100%" height="100%" fill="white"/>', *lines, "</svg>"]) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with longhaul_kv.open(sys.argv[1]) as document:
        picture = draw(document)
    with open(sys.argv[2], "w") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
