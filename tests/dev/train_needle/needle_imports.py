"""Makes tools/dev/train_needle importable; skips where its packages are missing."""
import pathlib
import sys
import unittest

try:
    import numpy  # noqa: F401
    import tokenizers  # noqa: F401
    import torch  # noqa: F401
except ImportError as missing:
    raise unittest.SkipTest(str(missing))

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/dev/train_needle"))
TOKENIZER = ROOT / "examples/needle/model/tokenizer.json"
