"""Writes model/tokenizer/newer_unicode.cc: the characters that the `tokenizers` library (0.23.3: Unicode 16) knows
and Unicode 14, which this Python (3.11) and PCRE2 10.42 know, does not. Run with a Python that has `tokenizers`."""
import pathlib
import unicodedata

from tokenizers import Regex, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf".split()
BLOCK = 4096


def members(category):
    """All characters that the library's \\p{category} matches."""
    split = pre_tokenizers.Split(Regex(r"\p{%s}" % category), "removed")
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    found = set()
    for start in range(0, len(characters), BLOCK):
        block = characters[start:start + BLOCK]
        left = set("".join(piece for piece, _ in split.pre_tokenize_str("".join(block))))
        found.update(c for c in block if c not in left)
    return found


def ranges(category):
    newer = sorted(ord(c) for c in members(category) if unicodedata.category(c) == "Cn")
    first = last = None
    for c in newer + [None]:
        if last is not None and c != last + 1:
            yield first, last
            first = None
        if c is not None and first is None:
            first = c
        last = c


assert unicodedata.unidata_version == "14.0.0", "needs a Python with Unicode 14"
target = pathlib.Path(__file__).resolve().parents[3] / "model/tokenizer/newer_unicode.cc"
lines = ['#include "model/tokenizer/newer_unicode.h"', "", "namespace longhaul::tokenization {", "namespace {", "",
         "constexpr CategoryRange kNewer[] = {"]
for category in CATEGORIES:
    for first, last in ranges(category):
        lines.append(f'    {{"{category}", 0x{first:X}, 0x{last:X}}},')
lines += ["};", "", "}  // namespace", "", "std::span<const CategoryRange> newer_characters() { return kNewer; }", "",
          "}  // namespace longhaul::tokenization", ""]
target.write_text("\n".join(lines))
