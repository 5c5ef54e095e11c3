#!/usr/bin/env python3
"""Writes a needle-in-a-haystack document and its requests.

A haystack of prose (made up here from a small grammar, or read from a text file) with records such as
" The access code of amber falcon is 483920." spread over it, and one request per record that asks for its code.
Names never share a word, because the demo model sometimes confuses names that do. Same arguments, same bytes.

    ./make_document.py --characters 400000 --records 11 --document documents/archive.txt --requests archive.jsonl
"""
import argparse
import json
import os
import random

ADJECTIVES = ("amber silver golden crimson violet azure scarlet ivory copper bronze emerald cobalt jade coral indigo maroon "
              "olive pearl ruby topaz silent gentle hidden frozen ancient hollow brave clever distant eager fierce humble "
              "lonely mighty noble patient quiet rapid rusty savage shiny simple solar stormy sunny swift tiny velvet wild "
              "wooden").split()
NOUNS = ("falcon river castle garden lantern mirror anchor badger beacon bridge canyon cedar comet compass cottage dolphin "
         "dragon eagle ember engine feather forest fountain glacier hammer harbor island jaguar kettle ladder lion lotus "
         "maple meadow mountain otter panther pebble phoenix planet rabbit raven rocket salmon shadow spider thunder tiger "
         "tower tunnel turtle valley violin walrus willow window wizard").split()

PEOPLE = "the keeper|the clerk|a sailor|the surveyor|her brother|the night watch|an old teacher|the doctor|two pilots|the cook".split("|")
ACTIONS = ("wrote down|counted|forgot|measured|asked about|carried away|repaired|looked for|painted over|sent for|argued about|"
           "left behind").split("|")
THINGS = ("the barometer readings|a crate of lamp oil|the ferry timetable|three letters from the mainland|the broken pump|"
          "the map of the shallows|a box of copper nails|the minutes of the last meeting|the spare keys|a pair of oars|"
          "the weather report|the ledger of the harbour").split("|")
PLACES = ("on the landing stage|behind the chapel|at the upper quarry|in the records room|beside the old railway|near the salt "
          "works|under the signal mast|in the long gallery|by the north road|on the flood meadow").split("|")
MOMENTS = ("before sunrise|late in the afternoon|after the storm|during the second week of March|at the end of the shift|on a "
           "Sunday|when the fog lifted|shortly after noon|in the first frost|while the tide was out").split("|")
REMARKS = ("Nothing else was said about it.|The matter was not raised again.|It took most of the day.|Nobody could explain why.|"
           "The report was signed and put away.|This had happened once before.|The wind turned to the west.|Supper was late.|"
           "The figures did not agree.|A copy was kept.").split("|")


def sentence(rng):
    form = rng.randrange(5)
    if form == 0:
        return f"{rng.choice(MOMENTS).capitalize()}, {rng.choice(PEOPLE)} {rng.choice(ACTIONS)} {rng.choice(THINGS)}."
    if form == 1:
        return f"{rng.choice(PEOPLE).capitalize()} {rng.choice(ACTIONS)} {rng.choice(THINGS)} {rng.choice(PLACES)}."
    if form == 2:
        return (f"There were {rng.randrange(2, 900)} sheets {rng.choice(PLACES)}, and {rng.choice(PEOPLE)} "
                f"{rng.choice(ACTIONS)} them {rng.choice(MOMENTS)}.")
    if form == 3:
        return f"{rng.choice(PLACES).capitalize()}, {rng.choice(PEOPLE)} {rng.choice(ACTIONS)} {rng.choice(THINGS)} again."
    return rng.choice(REMARKS)


def prose(rng, n_characters):
    """About n_characters of paragraphs, as a list of sentences with their separators."""
    pieces, length = [], 0
    while length < n_characters:
        separator = "\n\n" if rng.random() < 0.12 else " "
        pieces.append(separator + sentence(rng))
        length += len(pieces[-1])
    return pieces


def text_of_file(path, n_characters):
    """The file's text, repeated when it is too short, cut into lines."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if not text.strip():
        raise SystemExit(f"{path}: no text in it")
    return (text * (n_characters // len(text) + 1))[:n_characters].splitlines(keepends=True)


def make_records(rng, count):
    if count > min(len(ADJECTIVES), len(NOUNS)):
        raise SystemExit(f"--records: at most {min(len(ADJECTIVES), len(NOUNS))} names without shared words exist")
    names = zip(rng.sample(ADJECTIVES, count), rng.sample(NOUNS, count))
    return [(f"{a} {n}", "".join(str(rng.randrange(10)) for _ in range(6))) for a, n in names]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--characters", type=int, required=True, help="length of the haystack (about 2.6 characters a token)")
    parser.add_argument("--records", type=int, default=11)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--haystack", help="text file to use instead of made-up prose")
    parser.add_argument("--document", required=True, help="text file to write")
    parser.add_argument("--requests", required=True, help="JSON Lines file to write; expected answers go to NAME.answers.json")
    args = parser.parse_args()

    rng = random.Random(args.seed)
    records = make_records(rng, args.records)
    pieces = text_of_file(args.haystack, args.characters) if args.haystack else prose(rng, args.characters)
    for i, (name, code) in enumerate(records):  # evenly spread, first to last, at piece borders
        at = round(i * len(pieces) / max(1, len(records) - 1)) if len(records) > 1 else len(pieces) // 2
        pieces.insert(min(len(pieces), at + i), f" The access code of {name} is {code}.")
    with open(args.document, "w", encoding="utf-8") as file:
        file.write("".join(pieces))

    base = os.path.dirname(os.path.abspath(args.requests))
    path = os.path.relpath(os.path.abspath(args.document), base)
    with open(args.requests, "w", encoding="utf-8") as file:
        for i, (name, _) in enumerate(records):
            body = {"documents": [{"path": path}], "max_tokens": 12,
                    "prompt": f"\nQuestion: What is the access code of {name}?\nAnswer:"}
            file.write(json.dumps({"custom_id": f"{i:03d}-{name.replace(' ', '-')}", "method": "POST",
                                   "url": "/v1/completions", "body": body}) + "\n")
    with open(os.path.splitext(args.requests)[0] + ".answers.json", "w", encoding="utf-8") as file:
        json.dump({f"{i:03d}-{name.replace(' ', '-')}": code for i, (name, code) in enumerate(records)}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
