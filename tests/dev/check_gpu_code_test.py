#!/usr/bin/env python3
"""tools/dev/check_gpu_code.py, over what ptxas says."""
import pathlib
import sys
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

    def test_products_in_a_row_are_refused(self):
        line = ("ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient "
                "register resources for the function 'hopper_kernel'")
        self.assertEqual(check_gpu_code.complaints(line), [line])


if __name__ == "__main__":
    unittest.main()
