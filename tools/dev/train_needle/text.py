"""The text that records are hidden in: documentation and Python sources of this machine, and made-up sentences, as token arrays."""
import gzip
import pathlib
import random
import re

import numpy as np

from names import ADJECTIVES, NOUNS

MEGABYTE = 1_000_000
FILE_LIMIT = 60_000  # characters taken of one file

VERBS = "crossed watched found carried followed painted opened closed visited repaired guarded measured".split()
PLACES = "market library station village temple kitchen workshop museum school theater office street".split()
TIMES = "morning evening night afternoon winter summer spring autumn".split()

# What is collected: files, characters in all. Manual pages first; none of it looks like C++, a licence or a log file.
SOURCES = [
    ("/usr/share/man/man[1578]", "*.gz", 5 * MEGABYTE),
    ("/usr/share/perl", "*.pod", MEGABYTE),
    ("/usr/share/doc", "README*", MEGABYTE),
    ("/usr/lib/python3*", "*.py", 2 * MEGABYTE),
]


def ascii_only(text):
    text = text.encode("ascii", "ignore").decode().replace("\r", "").replace("\t", " ")
    text = re.sub(r"[^\x20-\x7e\n]", "", re.sub(r".\x08", "", text))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" {2,}", " ", text))


def without_roff(text):
    """The words of a manual page."""
    kept = (".B", ".I", ".BR", ".IR", ".SH", ".SS", ".BI", ".RB", ".IP", ".TP")
    lines = []
    for line in text.split("\n"):
        if line.startswith("."):
            macro, _, line = line.partition(" ")
            line = line if macro in kept else ""
        line = re.sub(r"\\f.|\\&|\\[|/,^]", "", line).replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")
        lines.append(re.sub(r"\\\(..|\\\*.|\\s[+-]?\d", "", line).strip('"'))
    return "\n".join(lines)


def read_text(path):
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "ignore")
    return ascii_only(without_roff(text) if "/man/" in str(path) else text)[:FILE_LIMIT]


def collect(seed=0):
    """About 9 million characters of this machine's texts; another machine gives others, which does not matter much."""
    rng, texts = random.Random(seed), []
    for folder, pattern, limit in SOURCES:
        folder = pathlib.Path(folder)
        files = sorted(f for base in folder.parent.glob(folder.name) for f in base.rglob(pattern) if f.is_file())
        rng.shuffle(files)
        for file in files:
            if limit <= 0:
                break
            try:
                text = read_text(file)
            except OSError:
                continue
            if len(text) > 1000:
                texts.append(text)
                limit -= len(text)
    rng.shuffle(texts)
    return "\n\n".join(texts)


def sentence(rng):
    """A made-up sentence with the adjectives and nouns of names in it, so that a name alone is no sign of a record."""
    pick = rng.choice
    return pick([
        lambda: f" The {pick(ADJECTIVES)} {pick(NOUNS)} {pick(VERBS)} the {pick(NOUNS)} near the {pick(PLACES)}.",
        lambda: f" In the {pick(TIMES)}, a {pick(ADJECTIVES)} {pick(NOUNS)} {pick(VERBS)} the {pick(PLACES)}.",
        lambda: f" Nobody {pick(VERBS)} the {pick(ADJECTIVES)} {pick(PLACES)} that {pick(TIMES)}.",
        lambda: f" There were {rng.randrange(2, 9999)} people at the {pick(PLACES)} in {rng.randrange(1700, 2030)}.",
        lambda: f" The {pick(NOUNS)} and the {pick(NOUNS)} {pick(VERBS)} the {pick(ADJECTIVES)} {pick(PLACES)} again.",
        lambda: f" She said that the {pick(NOUNS)} was {pick(ADJECTIVES)} and the {pick(NOUNS)} was {pick(ADJECTIVES)}.",
        lambda: f" The price of the {pick(ADJECTIVES)} {pick(NOUNS)} is {rng.randrange(10, 99999)} coins.",
        lambda: f" They {pick(VERBS)} the {pick(NOUNS)} of the {pick(ADJECTIVES)} {pick(NOUNS)} for {rng.randrange(2, 400)} days.",
    ])()


def prepare(tokenizer, cache):
    """[tokens of collected text, tokens of made-up sentences, words of the collected text]; kept in the folder `cache`."""
    cache = pathlib.Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    text_file = cache / "text.txt"
    if not text_file.exists():
        text_file.write_text(collect())
    text = text_file.read_text()
    made_up = "".join(sentence(random.Random(i)) for i in range(40_000))
    arrays = []
    for name, source in (("text", text), ("made_up", made_up)):
        file = cache / f"{name}.npy"
        if not file.exists():
            np.save(file, np.array(tokenizer.encode(source), dtype=np.int32))
        arrays.append(np.load(file))
    return *arrays, sorted(set(re.findall(r" [a-zA-Z]{3,9}(?![a-zA-Z])", text[:3 * MEGABYTE])))
