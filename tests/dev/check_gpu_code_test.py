#!/usr/bin/env python3
"""tools/dev/check_gpu_code.py, over what ptxas says."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools/dev"))
import check_gpu_code  # noqa: E402


def messages(function, stores, loads):
    return (f"ptxas info    : Function properties for {function}\n"
            f"    0 bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
            "ptxas info    : Used 168 registers, used 1 barriers\n")


class CheckGpuCode(unittest.TestCase):
    def test_code_without_spills_is_well(self):
        self.assertEqual(check_gpu_code.complaints(messages("hopper_kernelILi128E", 0, 0)), [])

    def test_spills_are_refused(self):
        found = check_gpu_code.complaints(messages("hopper_kernelILi128E", 12, 0) + messages("other", 0, 0))
        self.assertEqual(found, ["hopper_kernelILi128E: 12 bytes spill stores, 0 bytes spill loads"])
        self.assertEqual(len(check_gpu_code.complaints(messages("mma_kernelINS1_6ConfigILi1ELi128E", 0, 4))), 1)

    def test_head_dim_256_may_spill(self):
        self.assertEqual(check_gpu_code.complaints(messages("10mma_kernelINS1_6ConfigILNS_6KvTypeE1ELi256ELNS", 164, 164)), [])

    def test_chips_before_9_0_may_spill(self):
        old = "ptxas info    : Compiling entry function 'other' for 'sm_80'\n" + messages("other", 4, 4)
        new = "ptxas info    : Compiling entry function 'other' for 'sm_90a'\n" + messages("other", 8, 8)
        self.assertEqual(check_gpu_code.complaints(old + new), ["other: 8 bytes spill stores, 8 bytes spill loads"])

    def run_with(self, says, name="attention.cu"):
        """The status, what it said, and whether the object file is there, of a compiler that says that."""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.o"
            done = subprocess.run([sys.executable, check_gpu_code.__file__, "--only", "attention.cu", "--", "sh", "-c",
                                   f"printf '%s' \"$0\" >&2; touch {out}", says, "-c", name, "-o", str(out)],
                                  capture_output=True, text=True)
            return done.returncode, done.stderr, out.exists()

    def test_it_compiles_and_is_silent_about_good_code(self):
        self.assertEqual(self.run_with(messages("f", 0, 0)), (0, "", True))

    def test_code_that_spills_leaves_no_object(self):
        status, said, is_there = self.run_with(messages("f", 0, 4))
        self.assertEqual((status, is_there), (1, False))
        self.assertIn("attention.cu: f: 0 bytes spill stores, 4 bytes spill loads", said)

    def test_silence_about_registers_is_refused(self):
        self.assertEqual(self.run_with("")[0], 1)

    def test_other_files_are_only_compiled(self):
        self.assertEqual(self.run_with(messages("f", 0, 4), "rows.cu")[0], 0)

    def test_products_in_a_row_are_refused(self):
        line = ("ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient "
                "register resources for the function 'hopper_kernel'")
        self.assertEqual(check_gpu_code.complaints(line), [line])


if __name__ == "__main__":
    unittest.main()
