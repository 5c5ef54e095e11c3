"""Reads saved KV caches (docs/kv_files.md) as numpy arrays, at the speed of the files. Needs numpy and h5py.

  import longhaul_kv
  with longhaul_kv.open("caches/doc-0123456789abcdef.h5") as document:
      head = document.head(layer=7, kv_head=2)
      head.positions, head.k, head.v      # [n], [n, head_dim], [n, head_dim] float32, by position
"""
import dataclasses
import hashlib
import pathlib

import h5py
import numpy as np

FORMAT_VERSIONS = (2, 3)
SEAL_BYTES = 512
GROUP = 32  # tokens or dims that kivi4 and kivi2 quantise together
# What each code of fp8 (E4M3: a sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinities) is worth.
E4M3 = np.array([sign * (fraction / 8 if exponent == 0 else 1 + fraction / 8) * 2.0 ** (max(exponent, 1) - 7)
                 for sign in (1, -1) for exponent in range(16) for fraction in range(8)], "f4")
E4M3[[127, 255]] = np.nan
NO_CHUNKS = np.empty(0, [("file", "i8"), ("offset", "i8"), ("bytes", "i8")])
SEAL_TITLE = b"longhaul-kv sealed; SHA-256 from byte 512 on: "


class DamagedFile(Exception):
    """A file is not what was written; the message names it."""


@dataclasses.dataclass
class Head:
    """What one KV head keeps: a row for each token, by position. Keys are after RoPE at their own positions."""

    role: str  # "retrieval", "streaming", "window"
    sink: int
    recent: int  # tokens; -1: all; -2: those that a method chose; -3: slots that tokens were merged into
    positions: np.ndarray  # int64 [n_kept]; of slots, their numbers
    k: np.ndarray  # float32 [n_kept, head_dim]
    v: np.ndarray  # float32 [n_kept, head_dim]
    seen_by: np.ndarray | None = None  # uint64 [n_kept]: bit g of each is the KV head's query head g; None: all see all


def _sha256(path, begin=0):
    digest = hashlib.sha256()
    with builtin_open(path, "rb") as file:
        file.seek(begin)
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _sha256_between(path, chunks):
    """Of the bytes outside of the chunks."""
    digest, at = hashlib.sha256(), 0
    with builtin_open(path, "rb") as file:
        for offset, n_bytes in sorted(zip(chunks["offset"].tolist(), chunks["bytes"].tolist())):
            file.seek(at)
            digest.update(file.read(offset - at))
            at = offset + n_bytes
        file.seek(at)
        digest.update(file.read())
    return digest.hexdigest()


def _rows(group, name):
    """Keys or values as float32, without HDF5's own conversion, which is slow."""
    rows = group[name]
    kind = rows.attrs["dtype"]
    if kind in ("f32", "bf16"):
        bits = np.empty(rows.shape, "u2" if kind == "bf16" else "u4")
        rows.id.read(h5py.h5s.ALL, h5py.h5s.ALL, bits, rows.id.get_type())
        return (bits.astype("u4") << 16 if kind == "bf16" else bits).view("f4")
    codes = rows[...]
    if kind == "fp8":  # no minimum
        return E4M3[codes] * group[name + "_scale"][...].astype("f4")[:, None]
    if kind in ("int4", "kivi4"):  # two codes to a byte, the even dim in the lower half
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1)
    elif kind == "kivi2":  # four, the first dim in the lowest bits
        codes = np.stack([codes >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1).reshape(len(codes), -1)
    scale, minimum = (group[name + part][...].astype("f4") for part in ("_scale", "_minimum"))
    if not kind.startswith("kivi"):
        scale, minimum = scale[:, None], minimum[:, None]
    else:  # of groups: of keys of tokens in one dim, of values of dims of one token
        axis = 0 if name == "k" else 1
        scale, minimum = scale.repeat(GROUP, axis), minimum.repeat(GROUP, axis)
    return codes.astype("f4") * scale + minimum


def _open(group):
    """The newest tokens' keys and values, which types that quantise groups of tokens keep as float32 until their block is full."""
    return (group["open"]["k"][...], group["open"]["v"][...]) if group.attrs.get("n_open", 0) else None


class Document:
    """A saved document. Not safe for threads, as h5py is not."""

    def __init__(self, master):
        self.path = pathlib.Path(master).resolve()  # parts are found beside it
        self._file = h5py.File(self.path, "r")
        version = int(self._file.attrs["format_version"])
        if version not in FORMAT_VERSIONS:
            raise ValueError(f"{self.path} has format version {version}; this module reads {FORMAT_VERSIONS}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._file.close()

    @property
    def attrs(self):
        """The root's attributes: model_id, n_layers, n_kv_heads, head_dim, seq_len, k_dtype, ..."""
        return dict(self._file.attrs)

    @property
    def n_layers(self):
        return int(self._file.attrs["n_layers"])

    @property
    def n_kv_heads(self):
        return int(self._file.attrs["n_kv_heads"])

    @property
    def tokens(self):
        return self._file["tokens"][...]  # int32 [seq_len]

    @property
    def last_hidden(self):
        """float32 [d_model] of the last token; None where the files have none."""
        return self._file["last_hidden"][...] if "last_hidden" in self._file else None

    def roles(self):
        """Names, [n_layers][n_kv_heads]."""
        roles = self._file["head_roles"]
        names = {number: name for name, number in h5py.check_enum_dtype(roles.dtype).items()}
        return [[names[number] for number in layer] for layer in roles[...]]

    def _group(self, layer, kv_head):
        return self._file[f"layers/{layer:02}/kv_heads/{kv_head:02}"]

    def positions(self, layer, kv_head):
        """int64, ascending; reads no keys or values."""
        group = self._group(layer, kv_head)
        closed = np.sort(group["positions"][...]) if group.attrs["n_kept"] else np.empty(0, "i8")
        return np.concatenate([closed, self._newest(group)])

    def _newest(self, group):
        """Positions of the tokens that lie open: the document's last ones."""
        n_tokens = int(self._file.attrs["seq_len"])
        return np.arange(n_tokens - group.attrs.get("n_open", 0), n_tokens)

    def head(self, layer, kv_head):
        group = self._group(layer, kv_head)
        facts = {"role": str(group.attrs["role"]), "sink": int(group.attrs["sink"]), "recent": int(group.attrs["recent"])}
        empty = np.empty((0, int(self._file.attrs["head_dim"])), "f4")
        positions, k, v = np.empty(0, "i8"), empty, empty
        if group.attrs["n_kept"]:
            positions, k, v = group["positions"][...], _rows(group, "k"), _rows(group, "v")
        if "seen_by" in group:
            facts["seen_by"] = group["seen_by"][...]
        if not group.attrs["in_order"]:
            order = np.argsort(positions)
            positions, k, v = positions[order], k[order], v[order]
            if "seen_by" in facts:
                facts["seen_by"] = facts["seen_by"][order]
        newest = _open(group)
        if newest is not None:
            positions = np.concatenate([positions, self._newest(group)])
            k, v = np.concatenate([k, newest[0]]), np.concatenate([v, newest[1]])
        return Head(positions=positions, k=k, v=v, **facts)

    def _state(self, layer, kv_head, name):
        """A head's groups in the newest parts that have something of this name."""
        for row in self._file["files"][...]:
            with h5py.File(self.path.parent / row["name"].decode(), "r") as part:
                group = part.get(f"layers/{layer:02}/kv_heads/{kv_head:02}")
                if part.attrs["seq_len"] == self._file.attrs["seq_len"] and group is not None and name in group:
                    yield group

    def attention(self, layer, kv_head, local=False):
        """What each token got of attention, of methods that sum it up: positions, ascending, and sums; empty where there are none. With
        local, the part of it from queries in whose local window it was."""
        found, sums, name = [np.empty(0, "i8")], [np.empty(0)], "local_attention" if local else "attention"
        for group in self._state(layer, kv_head, name):
            found.append(group["attention_positions"][...])
            sums.append(group[name][...])
        positions, sums = np.concatenate(found), np.concatenate(sums)
        order = np.argsort(positions)
        return positions[order], sums[order]

    def recipe(self, layer, kv_head):
        """What a head goes by since the document was whole (fastgen): "special", "punctuation", "frequent", "local" or "all", and how many
        frequent and local tokens; None of other heads."""
        facts = self._group(layer, kv_head).attrs
        return (str(facts["recipe"]), int(facts["n_frequent"]), int(facts["n_local"])) if "recipe" in facts else None

    def gone(self, layer, kv_head):
        """Of heads that keep a key for what has left their window (razor): how many tokens, and the sums of their keys and values, float64
        [head_dim]; None where none has left."""
        for group in self._state(layer, kv_head, "gone"):
            return int(group["gone"].attrs["n_tokens"]), group["gone/k"][...], group["gone/v"][...]
        return None

    def merging(self, layer):
        """Of heads that merge tokens (dmc): the document's last tokens as they were projected, before RoPE, float32 k and v [n, n_kv_heads,
        head_dim] and weight [n, n_kv_heads]; None of others."""
        group = self._file.get(f"layers/{layer:02}/merging")
        if group is None:
            return None
        head_dim = int(self._file.attrs["head_dim"])
        tokens = group["tokens"][...] if group.attrs["n_tokens"] else np.empty((0, self.n_kv_heads * (2 * head_dim + 1)), "f4")
        tokens = tokens.reshape(len(tokens), self.n_kv_heads, 2 * head_dim + 1)
        return tokens[..., :head_dim], tokens[..., head_dim:-1], tokens[..., -1]

    def queries(self, layer):
        """A layer's newest queries that a method chooses by: positions [n], and float32 [n, n_heads * head_dim]; None where there are none."""
        group = self._file.get(f"layers/{layer:02}/queries")
        return None if group is None else (group["positions"][...], group["q"][...])

    def verify(self):
        """Raises DamagedFile unless the master and all parts are whole: by SHA-256 what lies between the chunks of
        rows, by HDF5's checksums the rows, all of which are read. (`longhaul kv verify` compares 128 bits of each chunk.)"""
        with builtin_open(self.path, "rb") as file:
            seal = file.read(SEAL_BYTES)
        want = SEAL_TITLE + _sha256(self.path, SEAL_BYTES).encode() + b"\n"
        if seal != want.ljust(SEAL_BYTES, b"\0"):
            raise DamagedFile(f"{self.path}: its checksum is wrong")
        chunks = self._file["chunks"][...] if "chunks" in self._file else NO_CHUNKS
        for number, row in enumerate(self._file["files"][...]):
            part = self.path.parent / row["name"].decode()
            if not part.exists() or part.stat().st_size != row["bytes"]:
                raise DamagedFile(f"{part}: missing, or not as long as it was written")
            if self._file.attrs["format_version"] == 2:
                found, want = _sha256(part), row["sha256"]
            else:
                found, want = _sha256_between(part, chunks[chunks["file"] == number]), row["sha256_between"]
            if found != want.decode():
                raise DamagedFile(f"{part}: not what was written")
        for layer in range(self.n_layers):
            for kv_head in range(self.n_kv_heads):
                try:
                    self.head(layer, kv_head)
                except (OSError, KeyError) as error:
                    raise DamagedFile(f"{self.path}: layer {layer}, KV head {kv_head}: {error}") from error


builtin_open = open


def open(master):  # noqa: A001: as in h5py, gzip and others
    return Document(master)
