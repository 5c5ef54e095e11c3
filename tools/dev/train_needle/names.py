"""Words that records are named by: those of the example's documents."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/needle"))
from make_document import ADJECTIVES, NOUNS  # noqa: E402,F401
