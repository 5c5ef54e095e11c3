"""What is trained when: stages, what each query may see, and which tokens count."""
import dataclasses
import enum

import numpy as np
import torch

from model import Masks
from records import Kind, Mix

# The two retrieval heads, (layer, key-value head). The finder looks up the record, the copier reads on from there.
FINDER, COPIER = (2, 1), (3, 2)
RETRIEVAL_HEADS = (FINDER, COPIER)
WINDOWS = (48, 64, 64, 96, 128)  # recent tokens of streaming heads
SINKS = (4, 16, 16)
DENSE_LENGTH = 512  # longer sequences are hardly ever dense: they take long, and copies of keys do the same
BLIND_REACH = 8  # tokens, of the finder


class Sight(enum.IntEnum):
    """Who sees what in a sequence."""
    PROFILE = 0  # the retrieval heads everything, the others sinks and recent tokens
    ROLES = 1    # the same, but the copier is short-sighted where a first digit is asked for, the finder where a later one is
    DENSE = 2    # every head everything
    BLIND = 3    # the finder sees next to nothing, the others what they see in PROFILE or DENSE; first digits are nobody's business then


@dataclasses.dataclass
class Stage:
    lengths: dict  # {n_tokens: weight}
    mix: Mix
    sights: tuple = (0.25, 0.45, 0.3, 0.0)  # shares of Sight
    long_sights: tuple = (0.35, 0.6, 0.05, 0.0)  # the same of sequences longer than DENSE_LENGTH
    later_weight: float = 1.0  # of later digits; a first one has 4
    tokens: int = 2048  # of one process and step


# Blind sequences wait until records are found: from the first step on they made that take half as long again.
STAGES = [
    Stage({192: 1}, Mix(lists=0.6, completions=0.5, most_records=5)),
    Stage({256: 1}, Mix(lists=0.2, other_words=0.1, jumps=0.3, replicated=0.3, copies=2e4)),
    Stage({256: 6, 512: 4}, Mix(lists=0.05, other_words=0.25, jumps=0.6, replicated=0.6, copies=4e5)),
    Stage({256: 35, 512: 30, 1024: 25, 2048: 10}, Mix(other_words=0.3, jumps=0.7, replicated=0.7, copies=3e6)),
    Stage({256: 30, 512: 33, 1024: 25, 2048: 9, 4096: 3}, Mix(other_words=0.25, jumps=0.75, replicated=0.8, copies=1e7, crowded=0.4),
          sights=(0.2, 0.4, 0.3, 0.1), long_sights=(0.25, 0.55, 0.05, 0.15)),
    Stage({256: 30, 512: 33, 1024: 25, 2048: 9, 4096: 3}, Mix(other_words=0.25, jumps=0.75, replicated=0.8, copies=1e7, crowded=0.5),
          sights=(0.15, 0.3, 0.45, 0.1), long_sights=(0.25, 0.5, 0.15, 0.1), later_weight=2.0),
]


@dataclasses.dataclass
class Batch:
    tokens: torch.Tensor     # [n_sequences, n_tokens]
    positions: torch.Tensor
    masks: Masks
    where: torch.Tensor      # flat indices of tokens whose next token is learned
    targets: torch.Tensor    # that next token
    first: torch.Tensor      # of those: a first digit
    later: torch.Tensor      # a later digit
    sights: torch.Tensor     # Sight of their sequence
    in_list: torch.Tensor    # in a list of pairs


def make_batch(builder, rng, n_tokens, stage, sink, config):
    n_sequences = max(1, stage.tokens // n_tokens)
    sequences = [builder.sequence(rng, n_tokens, stage.mix) for _ in range(n_sequences)]
    shares = stage.sights if n_tokens <= DENSE_LENGTH else stage.long_sights
    sights = np.array(rng.choices(list(Sight), shares, k=n_sequences))
    tokens, kinds, positions, log_copies = (np.stack([getattr(s, name) for s in sequences])
                                            for name in ("tokens", "kinds", "positions", "log_copies"))
    following = np.pad(kinds[:, 1:], ((0, 0), (0, 1)))
    first = (following == Kind.CODE) & (kinds != Kind.CODE)
    later = (following == Kind.CODE) & (kinds == Kind.CODE)
    reach = make_reach(rng, sights, first, later, config)
    next_tokens = np.pad(tokens[:, 1:], ((0, 0), (0, 1)))
    where = np.flatnonzero(first | later | other_lessons(rng, following, next_tokens, builder))

    def chosen(array):
        return torch.from_numpy(array.reshape(-1)[where])

    return Batch(torch.from_numpy(tokens), torch.from_numpy(positions),
                 Masks(torch.from_numpy(reach), torch.from_numpy(log_copies), sink), torch.from_numpy(where), chosen(next_tokens),
                 chosen(first), chosen(later), torch.from_numpy(np.repeat(sights, n_tokens)[where]), chosen(kinds == Kind.ASK))


def make_reach(rng, sights, first, later, config):
    """[n_layers, n_sequences, n_kv_heads, n_tokens], int32."""
    n_sequences, n_tokens = first.shape
    reach = np.full((config.n_layers, n_sequences, config.n_kv_heads, n_tokens), n_tokens, np.int32)
    for i, sight in enumerate(sights):
        if sight == Sight.DENSE:
            continue
        window = rng.choice(WINDOWS)
        reach[:, i] = window
        if sight == Sight.BLIND:
            reach[:, i] = rng.choice((window, n_tokens))
        for (layer, head), short_sighted in ((FINDER, later), (COPIER, first)):
            reach[layer, i, head] = np.where(short_sighted[i] & (sight == Sight.ROLES), window, n_tokens)
        if sight == Sight.BLIND:
            reach[FINDER[0], i, FINDER[1]] = BLIND_REACH
    return reach


def other_lessons(rng, following, next_tokens, builder):
    """Tokens around codes always, and one of eight of the others; never a digit of a record, which nobody can know."""
    sample = np.random.default_rng(rng.getrandbits(64)).random(following.shape) < 0.12
    digits = np.isin(next_tokens, builder.digits) & (following == Kind.RECORD)
    return (following == Kind.ANSWER) | (sample & np.isin(following, (Kind.TEXT, Kind.RECORD, Kind.QUESTION)) & ~digits)
