#!/usr/bin/env python3
"""The recipes in packaging/ that other tools read say what the build knows: names of files, of options, of the version.

Neither Spack nor Apptainer is needed: the one's recipe is run with functions that write down what it declares, the other's file is read as its
manual describes it.
"""
import pathlib
import re
import subprocess
import sys
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFINITION = ROOT / "packaging/apptainer/longhaul.def"
REPOSITORY = ROOT / "packaging/spack/spack_repo/longhaul"


def stages_of(text):
    """[(header fields, {section: lines})], a stage for each Bootstrap."""
    stages, lines = [], None
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        field = re.match(r"(\w+): *(.+)", line)
        section = re.match(r"%(\w+)(.*)", line)
        if field and field[1] == "Bootstrap":
            stages.append(({}, {}))
            lines = None
        if section:
            lines = stages[-1][1].setdefault(section[1], [section[2].strip()])
        elif lines is not None:
            lines.append(line.strip())
        elif field:
            stages[-1][0][field[1]] = field[2]
        else:
            raise ValueError(f"neither a field nor a section: {line}")
    return stages


class Apptainer(unittest.TestCase):
    def setUp(self):
        self.stages = stages_of(DEFINITION.read_text())

    def test_has_two_stages(self):
        self.assertEqual([fields["Stage"] for fields, _ in self.stages], ["build", "final"])
        self.assertEqual(self.stages[1][1]["files"][0], "from build")

    def test_copies_all_that_a_build_without_tests_needs(self):
        pairs = [line.split() for line in self.stages[0][1]["files"] if line]
        self.assertEqual([pair for pair in pairs if pair[1] != f"/src/{pair[0]}"], [])
        copied = {source for source, _ in pairs}
        self.assertEqual([source for source in copied if not (ROOT / source).exists()], [])
        folders = set(re.findall(r"add_subdirectory\((\w+)\)", (ROOT / "CMakeLists.txt").read_text())) - {"tests"}
        self.assertLessEqual(folders | {"cmake", "docs", "examples", "CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE"}, copied)

    def test_scripts_are_scripts(self):
        for _, sections in self.stages:
            for name in {"post", "test", "runscript", "environment"} & set(sections):
                done = subprocess.run(["sh", "-n"], input="\n".join(sections[name]), text=True, capture_output=True)
                self.assertEqual(done.stderr, "", name)


class Recorder(types.ModuleType):
    """A module of Spack's whose directives write down what they are called with."""

    def __init__(self, calls):
        super().__init__("spack.package")
        names = ("conflicts", "depends_on", "license", "requires", "variant", "version", "generator")
        self.__all__ = [*names, "join_path", "Executable"]
        for name in names:
            setattr(self, name, lambda *words, _name=name, **keys: calls.append((_name, words, keys)))
        self.join_path = self.Executable = None


class Builder:
    """What a recipe asks of the class that it derives from; all variants that it names are on."""

    define_cuda_architectures = staticmethod(lambda package: "CMAKE_CUDA_ARCHITECTURES")
    spec = types.SimpleNamespace(satisfies=lambda text: text != "cuda_arch=none")
    define = staticmethod(lambda name, value: name)
    define_from_variant = staticmethod(lambda name, variant: name)


class Spack(unittest.TestCase):
    def setUp(self):
        self.calls = []
        recorder = Recorder(self.calls)
        fakes = {"spack": types.ModuleType("spack"), "spack.package": recorder}
        for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems", "spack_repo.builtin.build_systems.cmake",
                     "spack_repo.builtin.build_systems.cuda"):
            fakes[name] = types.ModuleType(name)
        cmake = fakes["spack_repo.builtin.build_systems.cmake"]
        cmake.CMakeBuilder, cmake.CMakePackage, cmake.generator = Builder, type("CMakePackage", (Builder,), {}), recorder.generator
        fakes["spack_repo.builtin.build_systems.cuda"].CudaPackage = type("CudaPackage", (), {})
        before = {name: sys.modules.get(name) for name in fakes}
        sys.modules.update(fakes)
        try:
            self.recipe = {"__file__": str(REPOSITORY / "packages/longhaul/package.py"), "__name__": "recipe"}
            exec(compile(pathlib.Path(self.recipe["__file__"]).read_text(), self.recipe["__file__"], "exec"), self.recipe)
        finally:
            for name, module in before.items():
                sys.modules.pop(name) if module is None else sys.modules.__setitem__(name, module)

    def test_lies_where_its_repository_says(self):
        self.assertEqual((REPOSITORY / "repo.yaml").read_text().split(), ["repo:", "namespace:", REPOSITORY.name, "api:", "v2.0"])

    def test_builds_from_this_checkout(self):
        self.assertEqual(self.recipe["Longhaul"].git, ROOT.as_uri())

    def test_sets_options_that_the_build_has(self):
        known = "".join((ROOT / path).read_text() for path in ("CMakeLists.txt", "cmake/LonghaulDependencies.cmake"))
        options = self.recipe["Longhaul"]().cmake_args()
        self.assertEqual(len(options), 7)
        for option in options:
            name = option.removeprefix("LONGHAUL_")
            self.assertRegex(known, rf"option\({option}|foreach\(name .*\b{name}\b|set\({option}\b", option)

    def test_depends_on_what_the_build_looks_for(self):
        needs = {words[0].split("@")[0].split("+")[0].split("~")[0].split()[0] for name, words, _ in self.calls if name == "depends_on"}
        packages = {"Boost": "boost", "CLI11": "cli11", "CUDAToolkit": "cuda", "HDF5": "hdf5", "ICU": "icu4c", "MPI": "mpi", "NCCL": "nccl",
                    "OneDNN": "onednn", "OpenSSL": "openssl", "PkgConfig": "pkgconfig", "Python3": "python", "fmt": "fmt", "nlohmann_json": "nlohmann-json"}
        with_compilers = {"Threads", "OpenMP"}
        of_tests = {"GTest"}
        for path in [*ROOT.glob("cmake/*.cmake"), *(p for room in ("base", "model", "partition", "tools", "worker") for p in (ROOT / room).rglob("CMakeLists.txt"))]:
            for found in re.findall(r"find_package\((\w+)", path.read_text()):
                if found not in with_compilers | of_tests:
                    self.assertIn(packages.get(found), needs, f"{path.relative_to(ROOT)} looks for {found}")
        self.assertLessEqual({"pcre2", "tomlplusplus", "cmake", "c", "cxx"}, needs)


if __name__ == "__main__":
    unittest.main(verbosity=2)
