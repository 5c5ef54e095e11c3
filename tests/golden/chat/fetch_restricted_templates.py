#!/usr/bin/env python3
"""Puts published templates that may not lie in this repository into the folder `fetched` beside this file, so that
chat_golden_test compares them too: taken from the package trl 1.16.0 on PyPI, each checked against its SHA-256 in
stored/restricted.json.   fetch_restricted_templates.py"""
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

FOLDER = pathlib.Path(__file__).resolve().parent
PACKAGE = "trl==1.16.0"
FILES = {"llama-3": "llama3", "llama-3-generation": "llama3_training", "llama-3.1": "llama3_1", "llama-3.2": "llama3_2",
         "gemma-2": "gemma", "gemma-3": "gemma3", "deepseek-v3": "deepseekv3"}


def main():
    wanted = json.loads((FOLDER / "stored" / "restricted.json").read_text(encoding="utf-8"))
    target = FOLDER / "fetched"
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "-q", "download", "--no-deps", "-d", folder, PACKAGE], check=True)
        wheel = next(pathlib.Path(folder).glob("trl-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            for name, entry in wanted.items():
                text = archive.read(f"trl/chat_templates/{FILES[name]}.jinja")
                found = hashlib.sha256(text).hexdigest()
                if found != entry["sha256"]:
                    sys.exit(f"{FILES[name]}.jinja of {PACKAGE} is not the template that was compared: {found}")
                (target / f"{name}.jinja").write_bytes(text)
                print(f"{name}: {len(text)} bytes")


if __name__ == "__main__":
    main()
