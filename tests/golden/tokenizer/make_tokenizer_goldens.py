"""Makes the stored tokenizers, strings and results of the folder `stored` with the `tokenizers` library (0.23.3).
Run: python make_tokenizer_goldens.py [folder of real models]. The same Python gives the same files.

NAME.json          tokenizer.json of a family, or {"base", "replace"} for a variant of one
strings.bin        u32 count; per string u32 length and bytes (some are not UTF-8)
NAME.hashes        per string three u64: FNV-1a of the ids (little-endian int32) with special tokens in the text as text,
                   the same with special tokens parsed, and of decoded texts (see `decoded`)
NAME.ids           the parsed ids in full of the first strings: per string u16 count and u16 ids
Real models (needle, stories260K) get .hashes and .ids only."""
import json
import pathlib
import struct
import sys

from tokenizers import Tokenizer

import families
from sample_text import test_strings

FOLDER = pathlib.Path(__file__).resolve().parent / "stored"
N_STRINGS = 10_000
N_VARIANT_STRINGS = 1_500
N_FULL = 250
REAL_MODELS = ["needle", "stories260K"]


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def random_ids(index, n_ids):
    """A few ids that no text gave; the test computes the same."""
    state = index * 2654435761 + 12345
    ids = []
    for _ in range(index % 24):
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        ids.append((state >> 33) % n_ids)
    return ids


def decoded(tokenizer, index, ids):
    texts = [tokenizer.decode(each, skip_special_tokens=skip)
             for each in (ids, random_ids(index, tokenizer.get_vocab_size())) for skip in (True, False)]
    return "\0".join(texts).encode("utf-8")


def write_results(name, tokenizer, strings):
    hashes, full = bytearray(), bytearray()
    for index, raw in enumerate(strings):
        text = raw.decode("utf-8", "replace")
        tokenizer.encode_special_tokens = True
        as_text = tokenizer.encode(text).ids
        tokenizer.encode_special_tokens = False
        parsed = tokenizer.encode(text).ids
        for ids in (as_text, parsed):
            hashes += struct.pack("<Q", fnv1a(struct.pack(f"<{len(ids)}i", *ids)))
        hashes += struct.pack("<Q", fnv1a(decoded(tokenizer, index, parsed)))
        if index < N_FULL:
            full += struct.pack(f"<H{len(parsed)}H", len(parsed), *parsed)
    (FOLDER / f"{name}.hashes").write_bytes(hashes)
    (FOLDER / f"{name}.ids").write_bytes(full)
    print(name, len(strings), "strings")


def main():
    strings = test_strings(N_STRINGS)
    (FOLDER / "strings.bin").write_bytes(
        struct.pack("<I", len(strings)) + b"".join(struct.pack("<I", len(s)) + s for s in strings))
    bases = {name: make() for name, make in families.BASES.items()}
    for name, tokenizer in bases.items():
        data = json.loads(tokenizer.to_str())
        if name in ("gpt2", "llama3", "llama2"):  # the older spelling of merges
            data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
        (FOLDER / f"{name}.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
        write_results(name, tokenizer, strings)
    for name, (base, replace) in families.variants(bases).items():
        spec = {"base": base, "replace": replace}
        (FOLDER / f"{name}.json").write_text(json.dumps(spec, ensure_ascii=False, indent=1), encoding="utf-8")
        tokenizer = Tokenizer.from_str(families.variant_json(bases[base], replace))
        write_results(name, tokenizer, strings[:N_VARIANT_STRINGS])
    if len(sys.argv) > 1:
        for name in REAL_MODELS:
            path = pathlib.Path(sys.argv[1]) / name / "tokenizer.json"
            write_results(name, Tokenizer.from_file(str(path)), strings[:N_VARIANT_STRINGS])


main()
