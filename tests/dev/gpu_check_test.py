"""tools/dev/gpu_check.sh on machines that are made up: tools that say what those of a machine with a GPU would say, and programs that pass,
fail or take too long. That what it starts is right only a GPU shows."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/dev/gpu_check.sh"

NVIDIA_SMI = """case "$*" in
  *compute_cap*) echo 9.0 ;;
  *driver_version\\ *|*query-gpu=driver_version*) echo "${DRIVER:-580.65.06}" ;;
  *query-gpu=name*) echo "NVIDIA H0, 580.65.06, 1 MiB, 1 W, 1 MHz" ;;
  *timestamp*) echo "timestamp, clocks.current.sm [MHz], reasons"; echo "2026/01/01, 1755, 0x4"; echo "2026/01/01, 1980, 0x0" ;;
  *) echo "a GPU" ;;
esac
"""
NVCC = """case "$*" in
  *list-gpu-code*) echo sm_90a; echo sm_100a ;;
  *) echo "Cuda compilation tools, release 13.0, V13.0.88"; echo "Build x" ;;
esac
"""
# Makes the programs that it is asked to build.
CMAKE = """build= ; targets=
while [ $# -gt 0 ]; do
  case $1 in
    -B|--build) build=$2; shift ;;
    --target) shift; while [ $# -gt 0 ] && [ "$1" != -- ]; do targets="$targets $1"; shift; done ;;
  esac
  shift
done
for t in $targets; do
  case $t in
    kernels_test) d=tests/unit/kernels ;;
    gpu_bench) d=tests/bench/gpu ;;
    gpu_conformance) d=tests/multirank ;;
    *) d=tests/gpu ;;
  esac
  mkdir -p "$build/$d"; cp "$PROGRAM" "$build/$d/$t"
done
"""
PROGRAM = """echo "$0 $*" >> "$CALLS"
case "$*" in
  *$FAILING*) echo "it failed"; exit 1 ;;
esac
if [ "$1" = --gtest_list_tests ]; then
  printf 'Suite.\n  Test\n'
  exit 0
fi
if [ "$2" = --json ]; then
  echo '{"name": "decode", "milliseconds": 1.5, "host_microseconds": 12, "rate": 100, "unit": "GB/s", "attainable": 200, "beside": "read"}' > "$3"
fi
echo "[  PASSED  ] 3 tests."
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.calls = self.folder / "calls"
        self.calls.touch()
        self.results = self.folder / "results"
        for name, text in (("nvidia-smi", NVIDIA_SMI), ("nvcc", NVCC), ("cmake", CMAKE), ("program", PROGRAM)):
            self.tool(name, text)
        for name in ("ncu", "compute-sanitizer"):
            self.tool(name, 'echo "$0 $*" >> "$CALLS"\n')
        # Where the script looks for cuBLASLt: beside nvcc.
        (self.folder / "lib64").mkdir()
        (self.folder / "lib64/libcublasLt.so.13").touch()

    def tool(self, name, text):
        path = self.bin / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def run_part(self, *words, **variables):
        environment = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "RESULTS": str(self.results),
            "BUILD": str(self.folder / "build"),
            "CALLS": str(self.calls),
            "PROGRAM": str(self.bin / "program"),
            "FAILING": "nothing",
            **variables,
        }
        return subprocess.run([SCRIPT, *words], env=environment, capture_output=True, text=True, timeout=120)

    def table(self):
        return (self.results / "table.md").read_text()

    def test_wrong_words_are_refused(self):
        for words in ((), ("everything",), ("tests", "bench")):
            ended = self.run_part(*words)
            self.assertEqual(ended.returncode, 2)
            self.assertNotEqual(ended.stderr, "")

    def test_a_machine_without_a_driver_is_refused_before_anything_is_built(self):
        (self.bin / "nvidia-smi").unlink()
        if shutil.which("nvidia-smi"):
            self.skipTest("this machine has a driver")
        for part in ("tests", "bench", "profile"):
            ended = self.run_part(part)
            self.assertEqual(ended.returncode, 2)
            self.assertIn("no nvidia-smi", ended.stderr)
        self.assertFalse(self.results.exists())

    def test_an_old_driver_is_refused(self):
        ended = self.run_part("tests", DRIVER="570.10")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("need 580 or later", ended.stderr)

    def test_tests_leave_a_table(self):
        ended = self.run_part("tests")
        self.assertIn(ended.returncode, (0, 3), ended.stdout + ended.stderr)  # 3: no NCCL
        for text in ("| tests | operators | passed |", "the same bits, 200 times | passed", "needles in 65536 tokens | passed", "NVIDIA H0"):
            self.assertIn(text, self.table())

    def test_what_fails_is_named_and_the_rest_is_run(self):
        ended = self.run_part("tests", FAILING="RepeatedBits*/cuda")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("it failed", ended.stdout)
        self.assertIn("the same bits, 200 times | FAILED (1)", self.table())
        self.assertIn("rings of ranks that share the GPU | passed", self.table())

    def test_what_has_no_time_left_is_not_run_and_did_not_fail(self):
        ended = self.run_part("tests", BUDGET="4")
        self.assertEqual(ended.returncode, 3, ended.stdout)
        self.assertIn("not run: no time left", self.table())
        self.assertNotIn("FAILED", self.table())

    def test_bench_notes_figures_and_clocks(self):
        ended = self.run_part("bench")
        self.assertIn(ended.returncode, (0, 3), ended.stdout + ended.stderr)  # 3: no torch
        self.assertIn("| decode | 1.500 | 12 | 100.0 GB/s | 50 % of read |", self.table())
        self.assertIn("| clocks.current.sm [MHz] | 1755.0 | 1980.0 | 1980.0 |", self.table())
        figures = (self.results / "figures.jsonl").read_text().splitlines()
        self.assertEqual(json.loads(figures[0])["name"], "decode")

    def test_profile_keeps_hopper_out_of_racecheck(self):
        ended = self.run_part("profile")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        calls = self.calls.read_text().splitlines()
        races = [call for call in calls if "racecheck" in call]
        self.assertEqual(len(races), 1)
        self.assertNotIn("Hopper", races[0])
        self.assertTrue(any("memcheck" in call and "Hopper" in call for call in calls))
        self.assertTrue(any("--clock-control none" in call for call in calls))

    def test_the_program_is_not_run_where_it_was_not_carried(self):
        ended = self.run_part("program")
        self.assertEqual(ended.returncode, 3, ended.stdout + ended.stderr)
        self.assertIn("the program | not run: no ", self.table())

    def test_a_build_without_programs_is_not_packed(self):
        ended = self.run_part("pack-programs")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("build has no tests/unit/kernels/kernels_test", ended.stderr)

    def test_a_test_that_does_not_end_hides_no_other(self):
        self.tool("suite", """case "$*" in
  *list_tests*) printf 'Suite.\\n  Passes\\n  Hangs\\n  Fails  # GetParam() = 1\\n' ;;
  *Suite.Hangs*) exec sleep 30 ;;
  *Suite.Fails*) echo "it failed"; exit 1 ;;
  *) echo "[  PASSED  ] 1 test." ;;
esac
""")
        ended = subprocess.run([SCRIPT.with_name("each_test.sh"), self.bin / "suite", "*", "5"], capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 1)
        for text in ("[  FAILED  ] Suite.Hangs (no end after 5 s)", "[  FAILED  ] Suite.Fails (failed (1))", "it failed", "[  PASSED  ] 1 tests."):
            self.assertIn(text, ended.stdout)

    def test_a_filter_that_no_test_has_is_no_success(self):
        self.tool("suite", "")
        ended = subprocess.run([SCRIPT.with_name("each_test.sh"), self.bin / "suite", "None*"], capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("no test is called None*", ended.stdout)

    def test_tokens_are_counted_kernel_by_kernel(self):
        self.results.mkdir()
        lines = ['"Kernel Name","Grid Size","gpu__time_duration.sum"', '"","","ns"']
        for token in range(2):
            lines += ['"void few_rows<1>(int)","(8, 1, 1)","2,000"'] * 2 + ['"best_of_row(TopK)","(1, 1, 1)","500"']
        (self.results / "profile-kernels_of_tokens__int8.log").write_text("==PROF== text\n" + "\n".join(lines) + "\n")
        self.assertEqual(self.run_part("table").returncode, 0)
        self.assertIn("| few_rows<1> | (8, 1, 1) | 2 | 4 |", self.table())

    def test_compile_says_which_compilers_are_not_there(self):
        ended = self.run_part("compile", NVCC_12_0="/nowhere/nvcc")
        self.assertEqual(ended.returncode, 3, ended.stdout + ended.stderr)
        self.assertIn("compile for sm_100a | passed", self.table())
        self.assertIn("compile for sm_120 | not run: this nvcc does not know it", self.table())
        self.assertIn("compile with CUDA 12.0 | not run: /nowhere/nvcc is not there", self.table())


if __name__ == "__main__":
    unittest.main()
