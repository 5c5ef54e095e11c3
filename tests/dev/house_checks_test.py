#!/usr/bin/env python3
"""Tests of the rules' own scripts: what they must see, and what they must not take for a breach."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev"))
sys.dont_write_bytecode = True

import check_includes  # noqa: E402
import check_layers  # noqa: E402
import check_stderr  # noqa: E402
import check_words  # noqa: E402


class Stderr(unittest.TestCase):
    def n_breaches(self, text):
        return len(list(check_stderr.breaches("file.cc", text)))

    def test_code_behind_quotes_of_any_kind_is_seen(self):
        for text in ("char q = '\"'; fmt::print(stderr, x); char e = '\"';", 'auto s = R"x(a )" )x"; f(stderr); g("");', "/* \" */ std::cerr << 1; /* \" */",
                     "int n = 1'000; perror(a); char c = '\\'';", "x = u8'\"'; f(stderr); y = '\"';", 'f("a//b"); dprintf(2, x);'):
            self.assertEqual(self.n_breaches(text), 1, text)

    def test_what_only_names_it_is_none(self):
        for text in ("// goes to stderr", '"stderr"', 'R"(stderr)"', 'R"x(stderr)" stderr)x"', "/* of\n stderr */"):
            self.assertEqual(self.n_breaches(text), 0, text)


class Includes(unittest.TestCase):
    def breaches(self, text):
        return list(check_includes.breaches("file.cc", text))

    def test_what_is_used_nowhere_is_seen(self):
        self.assertEqual(self.breaches('#include <map>\n#include <vector>\nstd::vector<int> map;  // std::map\nauto s = "std::map";\n'),
                         ["file.cc:1: <map> is included for nothing"])

    def test_what_is_used_under_any_of_its_names_is_none(self):
        for header, code in (("random", "std::minstd_rand r;"), ("cmath", "float x = sqrtf(2);"), ("cmath", "auto f = std::hypot;"), ("mutex", "std::scoped_lock l(m);"),
                             ("cstring", "memcpy(a, b, 1);"), ("map", "char q = '\"'; std::map<int, int> m; char e = '\"';"), ("memory", "std::static_pointer_cast<A>(p);"),
                             ("functional", "std::set<int, std::less<>> s;"), ("poll.h", ""), ("iterator", "")):
            self.assertEqual(self.breaches(f"#include <{header}>\n{code}\n"), [], header)


class Words(unittest.TestCase):
    def breaches(self, path, text):
        return [breach.partition(": ")[2] for breach in check_words.dangling(pathlib.PurePosixPath(path), text)]

    def test_paths_of_any_ending_are_looked_for(self):
        for name in ("tools/dev/no_such.py", "examples/slurm/none.sbatch", "packaging/apptainer/none.def", "tools/no_such_folder", "docs/Missing.md",
                     "examples/needle/none.jsonl", "docs/benchmarks/README.md"):
            self.assertEqual(self.breaches("docs/page.md", f"see `{name}`."), [f"{name} does not exist"])
            self.assertEqual(self.breaches("base/a.h", f"int x;  // see {name}"), [f"{name} does not exist"])

    def test_what_is_there_and_what_stands_for_any_name_is_none(self):
        text = "`base/error.h`, `model/tokenizer/`, `kernels/cpu/isa/*.cc`, `model/tokenizer/tokenizer`, `kernels/foo.cc`, `tests/golden/NAME.json`"
        self.assertEqual(self.breaches("docs/page.md", text), [])

    def test_messages_that_name_a_document_are_read(self):
        self.assertEqual(self.breaches("base/a.cc", 'f("docs/none.md says");'), ["docs/none.md does not exist"])

    def test_tests_that_are_named_are_looked_for(self):
        self.assertEqual(self.breaches("docs/page.md", "`no_such_test`, `dev.none`, `kernels_test` and `house.words`"),
                         ["there is no test or program no_such_test", "there is no test or program dev.none"])


class Layers(unittest.TestCase):
    def test_what_nobody_uses_is_said(self):
        used = [*check_layers.includes()]
        without = [include for include in used if not (include[0].startswith("coordinator/") and include[3].startswith("model/chat/"))]
        self.assertLess(len(without), len(used))
        self.assertEqual(list(check_layers.unused_permissions(without)), ["coordinator may include model/chat, and no file of it does"])


class Scripts(unittest.TestCase):
    def test_words_that_are_not_known_are_refused(self):
        for words in (["tools/install_dependencies.sh", "--tests"], ["tools/install_dependencies.sh", "--test", "--package"], ["tools/test.sh", "--quick", "x"],
                      ["tools/demo.sh", "x"], ["tools/dev/format.sh", "--checks"]):
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr[:6]), (2, "usage:"), words)

    def test_files_are_found_outside_of_a_checkout(self):
        with tempfile.TemporaryDirectory() as folder:
            there = pathlib.Path(folder)
            for name in ("tools/dev/repository.py", "base/error.h"):
                (there / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, there / name)
            (there / "build-x").mkdir()
            (there / "build-x/made.h").touch()
            done = subprocess.run([sys.executable, "tools/dev/repository.py", ".h"], cwd=there, capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout.split(), ["base/error.h"])


if __name__ == "__main__":
    unittest.main()
