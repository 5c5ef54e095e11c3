"""Training sequences: records hidden in text, then questions about some of them; and short lists asked again and again."""
import dataclasses
import enum
import math

import numpy as np

from attention import padded
from names import ADJECTIVES, NOUNS

BOS, EOS = 0, 1
MILLION = 1_050_000  # positions that jumps may reach


class Kind(enum.IntEnum):
    """What a token is, which decides whether it is learned."""
    START = 0
    TEXT = 1
    RECORD = 2
    QUESTION = 3
    CODE = 4        # a digit of an answer
    ANSWER = 5      # its other tokens
    ASK = 6         # the last token of a list's question: a code follows


@dataclasses.dataclass
class Sequence:
    tokens: np.ndarray
    kinds: np.ndarray
    positions: np.ndarray
    log_copies: np.ndarray  # [padded(n_tokens)]


@dataclasses.dataclass
class Mix:
    """What sequences of a stage look like."""
    lists: float = 0.0         # share of short lists
    other_words: float = 0.0   # share of documents whose names are arbitrary words
    jumps: float = 0.0         # share of documents with jumps of positions
    replicated: float = 0.0    # share of documents whose text stands for more
    copies: float = 1.0        # most tokens that a document's text may stand for
    completions: float = 0.35  # share of questions of the form "The access code of amber falcon is"
    most_records: int = 100
    crowded: float = 0.0       # share of documents full of records whose names share words
    most_questions: int = 10


class Builder:
    """Makes sequences; random numbers come from the caller."""

    def __init__(self, tokenizer, text, made_up, words):
        encode = tokenizer.encode
        self.text, self.made_up = text, made_up
        self.adjectives = [encode(f" {w}") for w in ADJECTIVES]
        self.nouns = [encode(f" {w}") for w in NOUNS]
        self.words = [tokens for tokens in map(encode, words) if len(tokens) <= 4]
        starts = (" The access code of", "\nThe access code of", " Note that the access code of", " Remember: the access code of")
        self.record_forms = [(encode(s), encode(" is ")) for s in starts]
        self.question_forms = [(encode(f"\nQuestion: {s} the access code of"), encode(f"{end}\nAnswer:"))
                               for s, end in (("What is", "?"), ("what is", "?"), ("Tell me", "."))]
        self.completion_forms = [(encode(s), encode(" is")) for s in ("\nThe access code of", "\nAnswer: The access code of")]
        self.separators = [encode(s) for s in ("", "", " is", " is ", " is ", ":", " was", "=", "?\nAnswer: ", ": ")]
        self.list_starts = [encode(s) for s in ("", "", " of", ".", " The", " The access code of", " code of", "\n")]
        self.ends = [encode(s) for s in ("", ".", "\n")]
        self.digits = [encode(str(i))[0] for i in range(10)]
        self.space, self.dot = encode(" "), encode(".")

    def names(self, rng, n, other_words, crowded=False):
        """n different names; crowded, or half of the time, few first and last words, so that many names share one."""
        if other_words and not crowded and rng.random() < 0.5:
            return self.free_names(rng, n)
        firsts, lasts = (self.words, self.words) if other_words else (self.adjectives, self.nouns)
        if other_words or crowded or rng.random() < 0.5:
            few = max(2, math.ceil(math.sqrt(1.4 * n)))
            firsts, lasts = rng.sample(firsts, min(few, len(firsts))), rng.sample(lasts, min(few, len(lasts)))
        pairs = [(a, b) for a in range(len(firsts)) for b in range(len(lasts))]
        return [firsts[a] + lasts[b] for a, b in rng.sample(pairs, n)]

    def free_names(self, rng, n):
        """Names of one to three words of any kind, none the beginning of another."""
        names = []
        while len(names) < n:
            name = sum((rng.choice(self.words) for _ in range(rng.choice((1, 2, 2, 2, 3)))), [])
            if not any(name[:len(o)] == o or o[:len(name)] == name for o in names):
                names.append(name)
        return names

    def filler(self, rng, n):
        """n tokens of text in pieces."""
        pieces = []
        while n > 0:
            size = min(n, rng.randrange(20, 160))
            source = self.text if rng.random() < 0.5 else self.made_up
            at = rng.randrange(1, len(source) - size - 1)
            pieces.append(source[at:at + size])
            n -= size
        return pieces

    def code(self, rng, alphabet):
        return [self.digits[rng.choice(alphabet)] for _ in range(rng.choice((6, 6, 6, 6, 6, 5, 7, 4)))]

    def question(self, rng, name, completion):
        if completion:
            start, end = rng.choice(self.completion_forms)
        else:
            start, end = self.question_forms[0 if rng.random() < 0.7 else rng.randrange(1, 3)]
        return start + name + end

    def document(self, rng, n_tokens, mix):
        """A document of exactly n_tokens: records in text, then questions."""
        most = min(max(2, int(n_tokens * 0.4 / 15)), mix.most_records)
        crowded = rng.random() < mix.crowded
        n_records = most if crowded else rng.randrange(2, most + 2)
        n_questions = max(1, min(int(n_tokens * 0.45 / 24), mix.most_questions))
        names = self.names(rng, n_records, rng.random() < mix.other_words, crowded)
        # Codes of few digits: what a digit is followed by elsewhere then says little, the name has to be looked up
        alphabet = rng.sample(range(10), rng.choice((2, 3, 4))) if rng.random() < 0.4 else range(10)
        codes = [self.code(rng, alphabet) for _ in names]
        records = []
        for name, code in zip(names, codes):
            start, middle = self.record_forms[0 if rng.random() < 0.7 else rng.randrange(1, 4)]
            records.append(start + name + middle + code + self.dot)
        asked = rng.sample(range(n_records), min(n_questions, n_records))
        questions = [(self.question(rng, names[i], rng.random() < mix.completions), codes[i]) for i in asked]
        room = n_tokens - 1
        while sum(map(len, records)) + sum(len(q) + len(c) + 3 for q, c in questions) > room:
            if len(questions) > 1:
                questions.pop(), asked.pop()
            else:
                records.pop(next(i for i in reversed(range(len(records))) if i != asked[0]))
                asked[0] = min(asked[0], len(records) - 1)
        sequence, borders = Parts(), []
        for kind, piece in self.laid_out(rng, room - sum(map(len, records)) - sum(len(q) + len(c) + 3 for q, c in questions), records):
            borders.append(sequence.n)
            sequence.add(piece, kind)
        for question, code in questions:
            borders.append(sequence.n)
            sequence.add(question, Kind.QUESTION)
            sequence.add(self.space, Kind.ANSWER)
            sequence.add(code, Kind.CODE)
            sequence.add(self.dot + [EOS], Kind.ANSWER)
        result = sequence.finish(n_tokens)
        if rng.random() < mix.jumps:
            jump(rng, result.positions, borders)
        if rng.random() < mix.replicated:
            most = max(1.0, mix.copies / (n_tokens * 0.5))
            result.log_copies[:n_tokens][result.kinds == Kind.TEXT] = rng.uniform(0, math.log(most))
        return result

    def laid_out(self, rng, n_text, records):
        """(kind, tokens) of the records in their order with n_text tokens of text spread around them."""
        if rng.random() < 0.3:  # nearly all text in two places
            gaps = [0] * (len(records) + 1)
            gaps[rng.randrange(len(gaps))] += n_text // 2
            gaps[rng.randrange(len(gaps))] += n_text - n_text // 2
        else:
            cuts = [0] + sorted(rng.randrange(n_text + 1) for _ in records) + [n_text]
            gaps = [b - a for a, b in zip(cuts, cuts[1:])]
        for i, gap in enumerate(gaps):
            yield from ((Kind.TEXT, piece) for piece in self.filler(rng, gap))
            if i < len(records):
                yield Kind.RECORD, records[i]

    def list_of_pairs(self, rng, n_tokens):
        """A short list of names and one or two digits, asked again and again: teaches looking up a name quickly."""
        names = self.names(rng, rng.randrange(2, 9), rng.random() < 0.5)
        codes = [[rng.choice(self.digits) for _ in range(rng.choice((1, 1, 1, 2)))] for _ in names]
        separator, start, end = rng.choice(self.separators), rng.choice(self.list_starts), rng.choice(self.ends)
        sequence = Parts()
        for piece in self.filler(rng, rng.randrange(1, 40)) if rng.random() < 0.5 else []:
            sequence.add(piece, Kind.TEXT)
        for name, code in zip(names, codes):
            sequence.add(start + name + separator + code + end, Kind.RECORD)
        if rng.random() < 0.7:
            separator, start = rng.choice(self.separators), rng.choice(self.list_starts)
        for piece in self.filler(rng, rng.randrange(1, 60)) if rng.random() < 0.5 else []:
            sequence.add(piece, Kind.TEXT)
        last = None
        while sequence.n < n_tokens:
            last = rng.choice([i for i in range(len(names)) if i != last])
            question = start + names[last] + separator
            sequence.add(question[:-1], Kind.QUESTION)
            sequence.add(question[-1:], Kind.ASK)
            sequence.add(codes[last], Kind.CODE)
            sequence.add(end, Kind.QUESTION)
        return sequence.finish(n_tokens)

    def sequence(self, rng, n_tokens, mix):
        return self.list_of_pairs(rng, n_tokens) if rng.random() < mix.lists else self.document(rng, n_tokens, mix)


class Parts:
    """A sequence being put together."""

    def __init__(self):
        self.tokens, self.kinds, self.n = [[BOS]], [[Kind.START]], 1

    def add(self, tokens, kind):
        self.tokens.append(tokens)
        self.kinds.append([kind] * len(tokens))
        self.n += len(tokens)

    def finish(self, n_tokens):
        tokens = np.concatenate(self.tokens).astype(np.int64)[:n_tokens]
        kinds = np.concatenate([np.array(k, dtype=np.int8) for k in self.kinds])[:n_tokens]
        assert len(tokens) == n_tokens
        return Sequence(tokens, kinds, np.arange(n_tokens), np.zeros(padded(n_tokens), np.float32))


def jump(rng, positions, borders):
    """Moves what follows one to three borders on, by up to a million in all, without a break inside a record."""
    places = [rng.choice(borders) for _ in range(rng.randrange(1, 4))]
    total = math.exp(rng.uniform(math.log(64), math.log(MILLION)))
    shares = [rng.expovariate(1.0) for _ in places]
    for place, share in zip(places, shares):
        positions[place:] += int(total * share / sum(shares))
