"""Training sequences and masks: what a document must hold, and who sees what."""
import random
import re
import unittest

import needle_imports
import lessons
import numpy as np
from model import Config
from records import EOS, Builder, Kind, Mix
from train_needle import TextTokenizer


def make_builder():
    tokenizer = TextTokenizer(needle_imports.TOKENIZER)
    text = np.array(tokenizer.encode("The tide was late and nobody knew why. " * 200))
    return tokenizer, Builder(tokenizer, text, text, [" ferry", " harbour", " clerk", " ledger", " oil", " map", " key", " pump", " oar",
                                                      " mail", " storm", " noon", " frost", " rope", " chapel", " quarry"])


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tokenizer, cls.builder = make_builder()

    def documents(self, n, n_tokens, mix):
        for seed in range(n):
            yield self.builder.document(random.Random(seed), n_tokens, mix)

    def test_every_question_has_its_record(self):
        mix = Mix(jumps=0.5, replicated=0.5, copies=1e6)
        for document in self.documents(40, 512, mix):
            self.assertEqual(len(document.tokens), 512)
            text = self.tokenizer.tokenizer.decode(document.tokens.tolist(), skip_special_tokens=False)
            records = dict(re.findall(r"(?:The|the) access code of (.*?) is (\d+)\.(?!</s>)", text))
            answers = re.findall(r"of ((?:(?! of ).)*?)(?:\?\nAnswer:|\.\nAnswer:| is) (\d+)\.</s>", text)
            self.assertGreater(len(answers), 0)
            for name, code in answers:
                self.assertEqual(records[name], code)

    def test_digits_of_answers_are_marked(self):
        for document in self.documents(10, 256, Mix()):
            answered = document.tokens[document.kinds == Kind.CODE]
            self.assertTrue(np.isin(answered, self.builder.digits).all())
            self.assertEqual(document.tokens[-1], EOS)

    def test_jumps_never_break_a_record(self):
        for document in self.documents(40, 512, Mix(jumps=1.0)):
            jumps = np.flatnonzero(np.diff(document.positions) > 1)
            self.assertTrue((np.diff(document.positions) >= 1).all())
            for kind in (Kind.CODE, Kind.ANSWER):
                self.assertFalse((document.kinds[jumps + 1] == kind).any())

    def test_only_text_is_copied(self):
        for document in self.documents(20, 256, Mix(replicated=1.0, copies=1e7)):
            copied = np.flatnonzero(document.log_copies)
            self.assertTrue((document.kinds[copied] == Kind.TEXT).all())

    def test_names_share_words_but_not_all(self):
        for seed in range(20):
            names = self.builder.names(random.Random(seed), 40, other_words=False)
            self.assertEqual(len({tuple(n) for n in names}), 40)

    def test_lists_repeat_what_they_say(self):
        pairs = self.builder.list_of_pairs(random.Random(3), 192)
        self.assertEqual(len(pairs.tokens), 192)
        self.assertTrue((pairs.kinds == Kind.CODE).any())


class Masks(unittest.TestCase):
    def test_roles(self):
        config, n_tokens = Config(), 300
        first, later = np.zeros((4, n_tokens), bool), np.zeros((4, n_tokens), bool)
        first[:, 4], later[:, 5:7] = True, True
        sights = np.array([lessons.Sight.PROFILE, lessons.Sight.ROLES, lessons.Sight.DENSE, lessons.Sight.BLIND])
        reach = lessons.make_reach(random.Random(1), sights, first, later, config)
        full = reach == n_tokens
        self.assertTrue(full[:, 2].all())
        for layer in range(config.n_layers):
            for head in range(config.n_kv_heads):
                self.assertEqual(full[layer, 0, head].all(), (layer, head) in lessons.RETRIEVAL_HEADS)
                self.assertEqual(full[layer, 0, head].any(), (layer, head) in lessons.RETRIEVAL_HEADS)
        self.assertEqual(full[lessons.FINDER[0], 1, lessons.FINDER[1]].tolist(), [True] * 5 + [False] * 2 + [True] * 293)
        self.assertEqual(full[lessons.COPIER[0], 1, lessons.COPIER[1]].tolist(), [True] * 4 + [False] + [True] * 295)
        self.assertTrue((reach[lessons.FINDER[0], 3, lessons.FINDER[1]] == lessons.BLIND_REACH).all())
        self.assertTrue(full[lessons.COPIER[0], 3, lessons.COPIER[1]].all())


class Stages(unittest.TestCase):
    def test_shares_of_sights_are_whole_and_blind_sequences_come_late(self):
        for index, stage in enumerate(lessons.STAGES):
            for shares in (stage.sights, stage.long_sights):
                self.assertEqual(len(shares), len(lessons.Sight))
                self.assertAlmostEqual(sum(shares), 1.0)
                self.assertEqual(shares[lessons.Sight.BLIND] > 0, index >= 4)


if __name__ == "__main__":
    unittest.main()
