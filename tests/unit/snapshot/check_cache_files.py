#!/usr/bin/env python3
"""Reads saved KV caches with h5py, by docs/kv_files.md alone; exits 1 with the reason when something is wrong.

  check_cache_files.py same MASTER FOLDER     compares with the arrays in FOLDER (see dealt_caches.cc), bit for bit
  check_cache_files.py whole MASTER           checks what the file says about itself; prints a line about it
  check_cache_files.py close MASTER MASTER      two files of one sequence, computed by different ranks, agree but for rounding
  check_cache_files.py lost MASTER            with a part missing: what is read is right or NaN, never zeros
  check_cache_files.py module MASTER FOLDER   like `same`, read with tools/python/longhaul_kv.py
  check_cache_files.py state MASTER           what longhaul_kv.py reads of methods that choose by attention
  check_cache_files.py gone MASTER WHOLE      sums of what has left windows are those of a file that has every token
  check_cache_files.py picture MASTER         what tools/python/draw_kept_positions.py draws of it
  check_cache_files.py version MASTER NUMBER  makes a file of another format version of it, sealed anew; of version 2 all that it says
  check_cache_files.py damaged MASTER FOLDER  like `same`, but reading may be refused: exits 3 then
"""
import hashlib
import os
import pathlib
import sys
import xml.etree.ElementTree

import h5py
import numpy as np


def raw_bits(dataset):
    """The rows as stored, without HDF5's slow conversion: uint16 for bf16, uint32 for f32."""
    bits = np.empty(dataset.shape, "u2" if dataset.attrs["dtype"] == "bf16" else "u4")
    dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, bits, dataset.id.get_type())
    return bits


def e4m3(code):
    """What one byte is worth: OFP8's E4M3."""
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = float("nan") if code & 127 == 127 else mantissa / 512 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -magnitude if code & 128 else magnitude


def floats(group, name):
    """K or V of a head, whatever its type."""
    rows = group[name]
    kind = rows.attrs["dtype"]
    if kind in ("f32", "bf16"):
        return rows[...]
    codes = rows[...]
    if kind.startswith("kivi"):
        bits = int(kind[-1])
        codes = np.stack([codes >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], axis=-1).reshape(len(codes), -1)
        axis = 0 if name == "k" else 1
        scale, minimum = (np.repeat(group[name + part][...].astype("f4"), 32, axis) for part in ("_scale", "_minimum"))
        return codes.astype("f4") * scale + minimum
    if kind == "fp8":
        check(name + "_minimum" not in group, "fp8 has minima")
        values = np.array([e4m3(code) for code in range(256)], "f4")[codes]
        return values * group[name + "_scale"][...].astype("f4")[:, None]
    if kind == "int4":
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1)
    scale, minimum = (group[name + part][...].astype("f4")[:, None] for part in ("_scale", "_minimum"))
    return codes.astype("f4") * scale + minimum


def as_f32_bits(group, name):
    rows = group[name]
    if rows.attrs["dtype"] not in ("f32", "bf16"):
        check(rows.dtype == np.uint8 and group[name + "_scale"].dtype == np.float16, rows.dtype)
        return floats(group, name).view("u4")
    bits = raw_bits(rows)
    return bits.astype("u4") << 16 if bits.dtype == np.uint16 else bits


def check(condition, *what):
    if not condition:
        sys.exit("wrong: " + " ".join(str(w) for w in what))


def heads(file):
    for layer in range(file.attrs["n_layers"]):
        for head in range(file.attrs["n_kv_heads"]):
            yield layer, head, file[f"layers/{layer:02}/kv_heads/{head:02}"]


def check_whole(path):
    file = h5py.File(path, "r")
    check(file.attrs["format"] == "longhaul-kv", file.attrs["format"])
    check(file.attrs["format_version"] == 3 and file.attrs["complete"] == 1, "version, complete")
    n = file.attrs["seq_len"]
    check(file["tokens"].shape == (n,) and file["tokens"].dtype == np.int32, "tokens")
    chunks = file["chunks"][...] if "chunks" in file else None
    for number, (name, size, digest) in enumerate(file["files"][...]):
        part = pathlib.Path(path).parent / name.decode()
        check(part.stat().st_size == size, part, "size")
        data, between, at = part.read_bytes(), hashlib.sha256(), 0
        of_part = [] if chunks is None else chunks[chunks["file"] == number]
        for chunk in sorted(of_part, key=lambda row: row["offset"]):
            check(chunk["offset"] >= at, part, "chunks overlap")
            between.update(data[at:chunk["offset"]])
            at = chunk["offset"] + chunk["bytes"]
        between.update(data[at:])
        check(between.hexdigest() == digest.decode(), part, "sha256_between")
    in_groups = "kivi" in file.attrs["k_dtype"] + file.attrs["v_dtype"]
    n_open = n % file.attrs["block_size"] if in_groups else 0
    role_names = {v: k for k, v in h5py.check_enum_dtype(file["head_roles"].dtype).items()}
    total = 0
    for layer, head, group in heads(file):
        where = (path, layer, head)
        positions = group["positions"][...] if group.attrs["n_kept"] else np.empty(0, "i8")
        role = group.attrs["role"]
        check(role == role_names[file["head_roles"][layer, head]], where, "role")
        check(group.attrs["n_kept"] == len(positions) == len(set(positions)), where, "n_kept")
        check(bool(group.attrs["in_order"]) == bool((np.diff(positions) > 0).all()), where, "in_order")
        seen = np.arange(n)
        if group.attrs["recent"] == -2:  # chosen by a method
            check(len(positions) and positions.max() < n, where, "chosen positions")
            seen = positions
        elif group.attrs["recent"] == -3:  # slots
            seen = np.arange(len(positions))
            check(len(positions) and len(file[f"layers/{layer:02}/merging/n_slots"]) == file.attrs["n_kv_heads"], where, "slots")
            check(file[f"layers/{layer:02}/merging/n_slots"][head] == len(positions) <= n, where, "number of slots")
        elif role != "retrieval":
            seen = seen[(seen < group.attrs["sink"]) | (n - seen < group.attrs["recent"])]
        check(np.isin(seen[seen < n - n_open], positions).all(), where, "positions are missing")
        check(group.attrs.get("n_open", 0) == n_open and (not in_groups or "n_open" in group.attrs), where, "n_open")
        for name in ("k", "v") if n_open else ():
            rows = group["open"][name]
            check(rows.shape == (n_open, file.attrs["head_dim"]) and rows.dtype == np.float32, where, "open", rows.shape)
            check(rows.attrs["dtype"] == "f32" and rows.fletcher32, where, "open", name)
            total += n_open
        if not len(positions):
            continue
        check(not in_groups or (positions.max() < n - n_open and len(positions) % 32 == 0), where, "groups")
        for name in ("k", "v"):
            rows = group[name]
            columns = file.attrs["head_dim"] // {"int4": 2, "kivi4": 2, "kivi2": 4}.get(rows.attrs["dtype"], 1)
            check(rows.shape == (len(positions), columns), where, name, rows.shape)
            check(rows.attrs["dtype"] == file.attrs[name + "_dtype"], where, name, "dtype")
            check([d.label for d in rows.dims] == ["token", "dim"], where, name, "labels")
            check(rows.attrs["rotated"] == (1 if name == "k" else 0), where, name, "rotated")
            if not rows.is_virtual:
                check(rows.fletcher32 and rows.chunks[1] == rows.shape[1], where, name, "chunks")
            total += rows.shape[0]
    print(f"{path}: {n} tokens, {len(file['files'])} parts, {total} rows")
    return file


def compare(file, folder, may_lack=False):
    tokens = np.fromfile(folder / "tokens", "i4")
    check((file["tokens"][...] == tokens).all(), "tokens differ")
    n_seen = 0
    for layer, head, group in heads(file):
        stem = f"{layer}-{head}-{group.attrs['role']}-"
        want_positions = np.fromfile(folder / (stem + "positions"), "i8")
        n_open = group.attrs.get("n_open", 0)
        for name in ("k", "v") if n_open else ():
            want = np.fromfile(folder / (stem + name), "u4").reshape(-1, file.attrs["head_dim"])[-n_open:]
            check((group["open"][name][...].view("u4") == want).all(), stem, name, "newest bits differ")
            n_seen += want.size
        if not group.attrs["n_kept"]:
            check(len(want_positions) == n_open, stem, "positions differ")
            continue
        order = np.argsort(group["positions"][...], kind="stable")
        closed = len(want_positions) - n_open
        check(len(order) == closed, stem, "positions differ")
        check((group["positions"][...][order] == want_positions[:closed]).all(), stem, "positions differ")
        check((want_positions[closed:] == np.arange(len(tokens) - n_open, len(tokens))).all(), stem, "newest positions")
        for name in ("k", "v"):
            want = np.fromfile(folder / (stem + name), "u4").reshape(-1, file.attrs["head_dim"])[:closed]
            if may_lack:  # rows whose data set could not be opened in its part are NaN
                lost = np.isnan(floats(group, name)[order]).all(axis=1)
                differs = (as_f32_bits(group, name)[order] != want).any(axis=1)
                check((lost | ~differs).all(), stem, name, "bits differ")
                if lost.any():
                    raise OSError(f"{stem}{name}: {lost.sum()} rows are NaN")
                n_seen += want.size
                continue
            check((as_f32_bits(group, name)[order] == want).all(), stem, name, "bits differ")
            values = floats(group, name)  # what h5py makes of it by itself
            check(values.dtype == np.float32, values.dtype)
            check((values[order].view("u4") == want).all(), stem, name, "h5py's floats differ")
            n_seen += want.size
    check(n_seen > 0, "nothing was compared")


def check_module(master, folder):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "python"))
    import longhaul_kv

    with longhaul_kv.open(master) as document:
        document.verify()
        check((document.tokens == np.fromfile(folder / "tokens", "i4")).all(), "tokens differ")
        for layer, roles in enumerate(document.roles()):
            for kv_head, role in enumerate(roles):
                head = document.head(layer, kv_head)
                stem = f"{layer}-{kv_head}-{role}-"
                check(head.role == role, stem, head.role)
                check((head.positions == np.fromfile(folder / (stem + "positions"), "i8")).all(), stem, "positions")
                check((document.positions(layer, kv_head) == head.positions).all(), stem, "positions alone")
                for name in ("k", "v"):
                    want = np.fromfile(folder / (stem + name), "u4").reshape(len(head.positions), -1)
                    check((getattr(head, name).view("u4") == want).all(), stem, name, "bits differ")
        damaged = bytearray(master.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        master.write_bytes(damaged)
        try:
            document.verify()
        except longhaul_kv.DamagedFile:
            return
        sys.exit("wrong: a flipped bit was not found")


def check_state(master):
    """Every query gives its head's tokens weights that are 1 together."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "python"))
    import longhaul_kv

    with longhaul_kv.open(master) as document:
        n_tokens = len(document.tokens)
        for layer in range(document.n_layers):
            positions, q = document.queries(layer) or (np.empty(0, "i8"), None)
            check((positions == np.arange(n_tokens - len(positions), n_tokens)).all(), layer, "queries", positions)
            check(q is None or len(q) == len(positions) and np.isfinite(q).all(), layer, "queries")
            for kv_head in range(document.n_kv_heads):
                positions, sums = document.attention(layer, kv_head)
                check(q is not None or (positions == np.arange(n_tokens)).all(), layer, kv_head, "positions of sums")
                total = sums.sum() / n_tokens  # the query heads of the KV head
                check(q is not None or (total > 0.5 and abs(total - round(total)) < 1e-4), layer, kv_head, "sums", total)
                where, local = document.attention(layer, kv_head, local=True)
                check(not len(where) or ((where == positions).all() and 0 < local.sum() < sums.sum()), layer, kv_head, "local sums")
                check((local <= sums[:len(local)] + 1e-12).all(), layer, kv_head, "local sums are more than all")


def check_gone(master, whole):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "python"))
    import longhaul_kv

    n_checked = 0
    with longhaul_kv.open(master) as document, longhaul_kv.open(whole) as everything:
        n_tokens = len(document.tokens)
        for layer, head, group in heads(h5py.File(master, "r")):
            sink, recent = group.attrs["sink"], group.attrs["recent"]
            n = max(0, n_tokens - recent - sink + 1) if recent >= 0 else 0
            gone = document.gone(layer, head)
            check((gone is None) == (n == 0), layer, head, "sums")
            if layer > 0 or gone is None:  # later layers have seen what other heads gave
                continue
            rows = everything.head(layer, head)
            check(gone[0] == n, layer, head, "number", gone[0], n)
            for sums, of_all in ((gone[1], rows.k), (gone[2], rows.v)):
                check(np.allclose(sums, of_all[sink:sink + n].astype("f8").sum(0), rtol=1e-5, atol=1e-4), layer, head, "sums")
            n_checked += 1
    check(n_checked > 0, "nothing was compared")


def check_picture(master):
    """The picture is XML and has a coloured rectangle for each run of positions of each head."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "python"))
    import draw_kept_positions
    import longhaul_kv

    with longhaul_kv.open(master) as document:
        picture = xml.etree.ElementTree.fromstring(draw_kept_positions.draw(document))
        drawn = {}
        for rectangle in picture.iter("{http://www.w3.org/2000/svg}rect"):
            if rectangle.get("height") == str(draw_kept_positions.ROW - 2):
                drawn[rectangle.get("fill")] = drawn.get(rectangle.get("fill"), 0) + 1
        for role, colour in draw_kept_positions.COLOURS.items():
            wanted = sum(len(draw_kept_positions.runs(document.positions(layer, kv_head)))
                         for layer, roles in enumerate(document.roles())
                         for kv_head, of_head in enumerate(roles) if of_head == role)
            check(drawn.get(colour, 0) == wanted, role, "drawn:", drawn.get(colour, 0), "kept:", wanted)


def check_close(one, other):
    check((one["tokens"][...] == other["tokens"][...]).all(), "tokens")
    for (layer, head, a), (_, _, b) in zip(heads(one), heads(other)):
        check(a.attrs["role"] == b.attrs["role"], layer, head, "role")
        if not a.attrs["n_kept"] and not b.attrs["n_kept"]:
            continue
        _, in_a, in_b = np.intersect1d(a["positions"][...], b["positions"][...], return_indices=True)
        check(len(in_a) > 0, layer, head, "no common positions")
        if a.attrs["role"] == "retrieval":
            check(len(in_a) == len(a["positions"]) == len(b["positions"]), layer, head, "positions")
        for name in ("k", "v"):
            x, y = floats(a, name)[in_a], floats(b, name)[in_b]
            check(np.allclose(x, y, rtol=1e-4, atol=1e-4), layer, head, name, abs(x - y).max())


def check_lost(file):
    n_missing = 0
    for layer, head, group in heads(file):
        for name in ("k", "v"):
            try:
                rows = group[name]
            except (KeyError, OSError):
                n_missing += 1
                continue
            values = floats(group, name)
            lost = np.isnan(values).all(axis=1)
            check(rows.is_virtual or not lost.any(), layer, head, name)
            check(not (values == 0).all(axis=1).any(), layer, head, name, "reads as zeros")
            n_missing += lost.any()
    check(n_missing > 0, "nothing is missing")


def make_version(master, version):
    """Version 2 has no table of chunks, but checksums of whole parts."""
    with h5py.File(master, "r+") as file:
        file.attrs["format_version"] = version
        if version == 2:
            rows = [(row["name"], row["bytes"], hashlib.sha256((master.parent / row["name"].decode()).read_bytes()).hexdigest())
                    for row in file["files"][...]]
            del file["chunks"], file["files"]
            file["files"] = np.array(rows, [("name", "S128"), ("bytes", "i8"), ("sha256", "S64")])
    data = master.read_bytes()
    seal = data[:512].split(b": ")[0] + b": " + hashlib.sha256(data[512:]).hexdigest().encode() + b"\n"
    master.write_bytes(seal.ljust(512, b"\0") + data[512:])


def main():
    mode, master = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    os.chdir("/")  # the master finds its parts beside itself, wherever the reader stands
    if mode == "damaged":
        try:
            compare(h5py.File(master, "r"), pathlib.Path(sys.argv[3]), may_lack=True)
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            print("refused:", error)
            sys.exit(3)
        return
    if mode == "version":
        return make_version(master, int(sys.argv[3]))
    if mode == "module":
        check_module(master, pathlib.Path(sys.argv[3]))
        return
    if mode == "state":
        check_state(master)
        return
    if mode == "gone":
        check_gone(master, pathlib.Path(sys.argv[3]))
        return
    if mode == "picture":
        check_picture(master)
        return
    if mode == "lost":
        check_lost(h5py.File(master, "r"))
        return
    if mode == "close":
        check_close(check_whole(master), check_whole(sys.argv[3]))
        return
    file = check_whole(master)
    if mode == "same":
        compare(file, pathlib.Path(sys.argv[3]))


main()
