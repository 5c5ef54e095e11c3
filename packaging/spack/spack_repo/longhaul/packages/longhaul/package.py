"""The recipe for Spack 1.0 and later; it builds from the checkout of Git in which it lies (docs/operators.md)."""

import json
from pathlib import Path

from spack_repo.builtin.build_systems.cmake import CMakeBuilder, CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Longhaul(CMakePackage, CudaPackage):
    """Answers questions about huge documents with LLMs on clusters: no Ray, no Python, no daemon. Keeps full KV caches only for the
    attention heads that need every token."""

    git = Path(__file__).resolve().parents[6].as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant("mpi", default=True, description="Ranks on several nodes")
    variant("hdf5", default=True, description="Saving of KV caches")
    variant("onednn", default=True, description="Matrix products of prompts with float weights by oneDNN")
    variant("nccl", default=False, description="Transfers straight between GPUs", when="+cuda")

    generator("ninja")
    requires("target=x86_64:", msg="the kernels are written for x86-64")
    conflicts("%gcc@:11", msg="C++20 as GCC 12 has it")

    depends_on("c", type="build")  # HDF5 is found with it
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type="build")  # the manual page

    depends_on("boost@1.74:")  # headers of Asio and Beast
    depends_on("cli11@2.1:")
    depends_on("fmt@9:")
    depends_on("icu4c")
    depends_on("nlohmann-json@3.11:")
    depends_on("openssl@3:")
    depends_on("pcre2@10.40:")
    depends_on("tomlplusplus@3.3:")

    depends_on("mpi", when="+mpi")
    depends_on("hdf5+mpi", when="+hdf5+mpi")
    depends_on("hdf5~mpi", when="+hdf5~mpi")
    depends_on("onednn@2.6: cpu_runtime=omp", when="+onednn")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+nccl", type=("build", "run"))  # opened where the program runs

    def cmake_args(self):
        args = [self.define("LONGHAUL_TESTS", False), self.define("LONGHAUL_NCCL", self.spec.satisfies("+nccl"))]
        for part in ("mpi", "hdf5", "onednn", "cuda"):
            args.append(self.define_from_variant(f"LONGHAUL_{part.upper()}", part))
        if self.spec.satisfies("+cuda") and not self.spec.satisfies("cuda_arch=none"):
            args.append(CMakeBuilder.define_cuda_architectures(self))
        return args

    def test_example(self):
        """answers questions about the document of the example"""
        example = self.prefix.share.longhaul.examples.needle
        flags = ["--model", example.model, "--head-profile", example.profile, "-i", join_path(example, "requests.jsonl"), "-o", "-"]
        out = Executable(self.prefix.bin.longhaul)("run", *flags, output=str.split, error=str.split)
        for answer in json.loads(Path(example, "requests.answers.json").read_text()).values():
            assert answer in out
