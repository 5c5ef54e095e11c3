#!/usr/bin/env python3
"""Compares forms with two oracles: Python's re (random expressions and words), and jsonschema (random schemas; every
sample of a form must parse and be valid).   check_forms.py FORMS_PROBE re|jsonschema

LONGHAUL_TEST_SEED repeats a run, LONGHAUL_TEST_INTENSITY (1 to 4) tries more.
"""
import json
import os
import random
import re
import subprocess
import sys
import warnings

ATOMS = ["a", "b", "ab", ".", "[ab]", "[^a]", "[a-c0-2]", r"\d", r"\w", r"\s", r"\W", r"\.", r"\n", "é", "[é€]", r"\x41", r"[\]\-x]"]
COUNTS = ["*", "+", "?", "{2}", "{1,3}", "{2,}", "{,2}", "*?", "+?"]
LETTERS = list("aabbcxA01. \n-]é€😀_")


def expression(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.35:
        text = rng.choice(ATOMS)
    elif kind < 0.6:
        text = expression(rng, depth - 1) + expression(rng, depth - 1)
    elif kind < 0.8:
        text = f"({expression(rng, depth - 1)}|{expression(rng, depth - 1)})"
    else:
        text = f"(?:{expression(rng, depth - 1)})"
    return f"(?:{text}){rng.choice(COUNTS)}" if rng.random() < 0.35 else text


def words_near(rng, pattern):
    """Random words, and some that have a good chance: pieces of the expression itself."""
    words = [""]
    plain = re.sub(r"[\\\[\]{}()?*+|^:,]", "", pattern)
    for _ in range(40):
        words.append("".join(rng.choice(LETTERS) for _ in range(rng.randint(0, 6))))
        if plain:
            begin = rng.randrange(len(plain))
            words.append(plain[begin:begin + rng.randint(1, 5)])
        words.append("".join(rng.choice("ab") for _ in range(rng.randint(0, 8))))
    return words


class Probe:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def check_re(probe, rng, n):
    n_words = n_matches = 0
    warnings.simplefilter("ignore")
    for _ in range(n):
        pattern = expression(rng, 3)
        words = words_near(rng, pattern)
        answer = probe.ask({"kind": "regex", "text": pattern, "words": words})
        assert "has" in answer, f"{pattern}: {answer}"
        compiled = re.compile(pattern, re.ASCII)
        for word, got in zip(words, answer["has"]):
            want = compiled.fullmatch(word) is not None
            assert got == want, f"{pattern!r} and {word!r}: {got}, Python's re says {want}"
            n_words += 1
            n_matches += want
    print(f"{n} expressions, {n_words} words, {n_matches} of them match: as Python's re")
    assert n_matches > n_words // 50


def constant(rng):
    return rng.choice([None, True, 0, -3, 2.5, "", "a\"\n", "é", [], [1, "x"], {"k": 1}])


def schema(rng, depth):
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const"]
    if depth > 0:
        kinds += ["array", "array", "object", "object", "object", "anyOf", "types", "$ref", "any"]
    kind = rng.choice(kinds)
    if kind == "string":
        result = {"type": "string"}
        if rng.random() < 0.3:
            result["minLength"] = rng.randint(0, 4)
        if rng.random() < 0.4:
            result["maxLength"] = rng.randint(4, 9)
        if rng.random() < 0.3:
            result["pattern"] = rng.choice(["^[a-c]{0,6}$", "^a.*\"$", "b", r"^\d{4}", "^x|y$", r"\\"])
        elif rng.random() < 0.2:
            result["format"] = rng.choice(["date", "time", "date-time", "uuid", "ipv4", "email", "hostname"])
            result.pop("maxLength", None)
        return result
    if kind in ("integer", "number"):
        result = {"type": kind}
        low = rng.choice([-1000, -7, -0.5, 0, 0.25, 3, 99])
        if rng.random() < 0.5:
            result[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.5:
            result[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([2, 10.5, 12345])
        return result
    if kind in ("boolean", "null"):
        return {"type": kind}
    if kind == "enum":
        return {"enum": [constant(rng) for _ in range(rng.randint(1, 4))]}
    if kind == "const":
        return {"const": constant(rng)}
    if kind == "any":
        return rng.choice([True, {}])
    if kind == "anyOf":
        return {rng.choice(["anyOf", "allOf"]): [schema(rng, depth - 1)]} if rng.random() < 0.3 else {
            "anyOf": [schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    if kind == "types":
        return {"type": rng.sample(["string", "integer", "boolean", "null", "object", "array"], 3)}
    if kind == "$ref":
        return {"$ref": rng.choice(["#/$defs/tree", "#/$defs/word"])}
    if kind == "array":
        result = {"type": "array"}
        if rng.random() < 0.8:
            result["items"] = schema(rng, depth - 1)
        if rng.random() < 0.3:
            result["prefixItems"] = [schema(rng, depth - 1) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.4:
            result["minItems"] = rng.randint(0, 2)
        result["maxItems"] = rng.randint(2, 4)
        return result
    names = rng.sample(["a", "b", "c d", "é", "q\"", "\n"], rng.randint(0, 4))
    result = {"type": "object", "properties": {name: schema(rng, depth - 1) for name in names}}
    result["required"] = [name for name in names if rng.random() < 0.6]
    if rng.random() < 0.1:
        result["required"].append("more")
    if rng.random() < 0.4:
        result["additionalProperties"] = False if rng.random() < 0.5 and "more" not in result["required"] else schema(rng, 0)
    return result


def check_jsonschema(probe, rng, n):
    try:
        import jsonschema
    except ImportError:
        print("SKIPPED: jsonschema is not installed")
        return
    n_samples = n_refused = 0
    for i in range(n):
        text = schema(rng, 3)
        if isinstance(text, dict):
            text["$defs"] = {
                "tree": {"type": "object", "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 9}, "next": {
                    "anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}}, "required": ["v", "next"]},
                "word": {"type": "string", "pattern": "^[a-z]{1,4}$"}}
        answer = probe.ask({"kind": "schema", "text": json.dumps(text), "samples": 12, "seed": i})
        if "error" in answer:
            assert "no text" in answer["error"], f"{json.dumps(text)}: {answer['error']}"
            n_refused += 1
            continue
        validator = jsonschema.Draft202012Validator(text)
        for sample in answer["samples"]:
            errors = list(validator.iter_errors(json.loads(sample)))
            assert not errors, f"{json.dumps(text)}\n{sample}\n{errors[0].message}"
            n_samples += 1
    print(f"{n} schemas, {n_refused} of them without any value; {n_samples} samples, all valid for jsonschema")
    assert n_samples > 8 * (n - n_refused)


def main():
    probe = Probe(sys.argv[1])
    seed = int(os.environ.get("LONGHAUL_TEST_SEED", "1"))
    intensity = int(os.environ.get("LONGHAUL_TEST_INTENSITY", "1"))
    rng = random.Random(seed)
    print(f"seed {seed}")
    if sys.argv[2] == "re":
        check_re(probe, rng, 400 * intensity)
    else:
        check_jsonschema(probe, rng, 300 * intensity)


if __name__ == "__main__":
    main()
