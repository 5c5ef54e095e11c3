"""The fused attention against plain torch: outputs and gradients."""
import shutil
import unittest

import needle_imports  # noqa: F401
import attention
import torch

if shutil.which("g++") is None:
    raise unittest.SkipTest("no compiler")


def case(n_tokens, n_sequences=2, n_heads=4, n_kv_heads=2, sink=4, seed=1):
    torch.manual_seed(seed)
    qkv = torch.randn(n_sequences, n_tokens, (n_heads + 2 * n_kv_heads) * attention.HEAD_DIM)
    angles = torch.rand(n_sequences, n_tokens, attention.HEAD_DIM // 2) * 6
    reach = torch.full((n_sequences, n_kv_heads, n_tokens), n_tokens, dtype=torch.int32)
    reach[0, 0] = 40  # a streaming head
    reach[1, 1, ::3] = 70  # one that only some queries use for the whole sequence
    log_copies = torch.zeros(n_sequences, attention.padded(n_tokens))
    log_copies[:, :n_tokens] = torch.rand(n_sequences, n_tokens) * 5
    return qkv, (angles.cos(), angles.sin()), reach, log_copies, sink, n_heads


class FusedAttention(unittest.TestCase):
    def test_outputs_and_gradients_are_those_of_plain_torch(self):
        for n_tokens, sink in ((1, 4), (17, 4), (203, 4), (203, 0), (256, 16), (331, 20)):
            with self.subTest(n_tokens=n_tokens, sink=sink):
                qkv, *rest = case(n_tokens, sink=sink)
                results = []
                for function in (attention.attention, attention.plain_attention):
                    leaf = qkv.clone().requires_grad_()
                    out = function(leaf, *rest)
                    weights = torch.sin(torch.arange(out.numel())).view_as(out)
                    grad, = torch.autograd.grad((out * weights).sum(), leaf)
                    results.append((out.detach(), grad))
                (out, grad), (want_out, want_grad) = results
                torch.testing.assert_close(out, want_out, rtol=2e-5, atol=2e-5)
                torch.testing.assert_close(grad, want_grad, rtol=5e-5, atol=5e-5)

    def test_a_token_behind_the_window_changes_nothing(self):
        qkv, tables, reach, log_copies, sink, n_heads = case(128)
        before = attention.attention(qkv, tables, reach, log_copies, sink, n_heads)
        qkv[0, 20] += 1.0
        after = attention.attention(qkv, tables, reach, log_copies, sink, n_heads)
        streaming = slice(0, 2 * attention.HEAD_DIM)  # the two query heads of key-value head 0
        self.assertTrue(torch.equal(before[0, 60:, streaming], after[0, 60:, streaming]))
        self.assertFalse(torch.equal(before[0, 59, streaming], after[0, 59, streaming]))


if __name__ == "__main__":
    unittest.main()
