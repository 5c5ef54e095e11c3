#!/usr/bin/env python3
"""The Debian package of a build: package_test.py BUILD PROGRAM. Packs what `cmake --install` installs and looks at what came out.

Skipped where cpack or dpkg's tools are missing. Compressed lightly, since nobody installs it.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ("cpack", "dpkg-deb", "dpkg-shlibdeps", "file", "gzip")
SHARE = "./usr/share/longhaul/"
DOC = "./usr/share/doc/longhaul/"


def output_of(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        output_of("cpack", "-G", "DEB", "--config", f"{BUILD}/CPackConfig.cmake", "-B", folder.name, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip")
        (cls.file,) = cls.folder.glob("*.deb")
        cls.fields = dict(re.findall(r"^(\S+): (.*)$", output_of("dpkg-deb", "--field", cls.file), re.M))
        cls.files = {}  # path -> (mode, owner)
        for line in output_of("dpkg-deb", "--contents", cls.file).splitlines():
            mode, owner, _, _, _, path = line.split(None, 5)
            cls.files[path] = (mode, owner)

    def test_fields(self):
        version = output_of(PROGRAM, "--version").split()[1]
        self.assertEqual(self.file.name, f"longhaul_{version}_{self.fields['Architecture']}.deb")
        self.assertEqual((self.fields["Package"], self.fields["Version"], self.fields["Section"]), ("longhaul", version, "science"))
        self.assertRegex(self.fields["Maintainer"], r"^[^<]+ <[^@]+@[^>]+>$")
        self.assertEqual(self.fields["Description"][0].islower(), True, "no article, no capital")

    def test_depends_on_what_the_program_needs(self):
        needs = {dependency.split()[0] for dependency in self.fields["Depends"].split(", ")}
        linked = output_of("objdump", "-p", PROGRAM)
        for library, package in (("libc.so", "libc6"), ("libstdc++.so", "libstdc++6"), ("libmpi.so", "libopenmpi"), ("libhdf5", "libhdf5"),
                                 ("libdnnl.so", "libdnnl"), ("libfmt.so", "libfmt"), ("libpcre2", "libpcre2"), ("libicuuc.so", "libicu"),
                                 ("libcrypto.so", "libssl"), ("libgomp.so", "libgomp1")):
            if re.search(r"NEEDED +" + re.escape(library), linked):
                self.assertTrue(any(need.startswith(package) for need in needs), f"{library}, but no {package} among {sorted(needs)}")
        if "libmpi" in linked:
            self.assertIn("openmpi-bin", needs, "mpirun")

    def test_has_what_it_must(self):
        needed = ["./usr/bin/longhaul", "./usr/share/man/man1/longhaul.1.gz", "./usr/share/bash-completion/completions/longhaul",
                  SHARE + "python/longhaul_kv.py", DOC + "copyright", DOC + "changelog.gz", DOC + "README.md", DOC + "CONTRIBUTING.md", DOC + "SECURITY.md", DOC + "CHANGELOG.md"]
        needed += [SHARE + str(path.relative_to(ROOT)) for path in (ROOT / "examples").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        needed += [DOC + str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*") if path.is_file()]
        self.assertEqual([path for path in needed if path not in self.files], [])

    def test_has_nothing_else(self):
        known = ("./usr/bin/longhaul", "./usr/share/man/man1/longhaul.1.gz", "./usr/share/bash-completion/completions/longhaul", SHARE, DOC)
        files = [path for path in self.files if not path.endswith("/")]
        self.assertEqual([path for path in files if not path.startswith(known) or "__pycache__" in path], [])
        control = self.folder / "control"
        output_of("dpkg-deb", "--control", self.file, control)
        self.assertEqual({path.name for path in control.iterdir()}, {"control", "md5sums"}, "no conffiles, no scripts")

    def test_belongs_to_root_and_can_be_read_by_all(self):
        for path, (mode, owner) in self.files.items():
            self.assertEqual(owner, "root/root", path)
            self.assertIn(mode, ("drwxr-xr-x", "-rwxr-xr-x") if path.endswith("/") or mode[3] == "x" else ("-rw-r--r--",), path)
        self.assertEqual(self.files["./usr/bin/longhaul"][0], "-rwxr-xr-x")

    def test_the_manual_page_is_the_program_s(self):
        tree = self.folder / "tree"
        output_of("dpkg-deb", "--extract", self.file, tree)
        page = output_of("gzip", "-dc", tree / "usr/share/man/man1/longhaul.1.gz")
        self.assertTrue('.SH "LONGHAUL RUN"' in page, page[:500])
        # Indented as other text of such pages, help of 80 columns went on in the next line.
        for text in page.split("\n.nf\n")[1:]:
            self.assertTrue(text.startswith(".in 0\n"), text[:200])
            lines = text.partition("\n.fi\n")[0].replace("\\-", "-").splitlines()
            self.assertEqual([line for line in lines if len(line) > 80], [])
        # Stripped, it is the same program; and it stands alone.
        self.assertEqual(output_of(tree / "usr/bin/longhaul", "--version"), output_of(PROGRAM, "--version"))


if __name__ == "__main__":
    BUILD, PROGRAM = sys.argv[1:3]
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        print("SKIPPED:", ", ".join(missing), "not installed (cmake, dpkg-dev, file)")
    else:
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
