"""Small tokenizers with the structure of published tokenizer.json files. A base is trained; a variant is a base with
other parts (`{"base": name, "replace": {...}}`), so that it needs no vocabulary of its own."""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from sample_text import training_texts

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]


def special(text, **flags):
    return AddedToken(text, special=True, normalized=False, **flags)


def plain(text, **flags):
    return AddedToken(text, special=False, **flags)


def byte_level(pattern):
    if pattern is None:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated", invert=False),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train_byte_level(pattern, vocab_size, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = byte_level(pattern)
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(training_texts(), trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def template(bos, bos_id):
    return processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, bos_id)])


def gpt2():
    tokenizer = train_byte_level(None, 1200)
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama3():
    tokenizer = train_byte_level(LLAMA3, 1500, ignore_merges=True)
    tokenizer.add_special_tokens([special(t) for t in ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]])
    bos = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(bos, tokenizer.token_to_id(bos))])
    with_words = json.loads(tokenizer.to_str())
    # Whole words that no merge makes, as ignore_merges finds them in the real vocabulary.
    vocab = with_words["model"]["vocab"]
    for token in with_words["added_tokens"]:
        token["id"] += 3
    for spare, word in enumerate(["ĠZażóÅĤÄĩ", "Ġfoxes", "ĠðŁĺĥðŁĺĦ"]):
        vocab[word] = len(vocab)
    with_words["post_processor"]["processors"][1]["special_tokens"][bos]["ids"][0] += 3
    return Tokenizer.from_str(json.dumps(with_words))


def qwen2():
    tokenizer = train_byte_level(QWEN2, 1500, normalizer=normalizers.NFC())
    tokenizer.add_special_tokens([special(t) for t in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]])
    tokenizer.add_tokens([plain("<tool_call>", normalized=False), plain("</tool_call>", normalized=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def sentencepiece_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def train_sentencepiece(specials):
    """As converted SentencePiece models are: specials, byte tokens, then pieces; newline only as a byte."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁+[^▁]*"), "isolated")  # for training only
    start = ["<unk>", "<s>", "</s>"] + specials + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=1900, special_tokens=start, limit_alphabet=500, show_progress=False)
    lines = [line for text in training_texts() for line in text.split("\n")]
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def rebuilt(tokenizer, specials, **parts):
    """The tokenizer with only `specials` as added tokens and with other parts, which are JSON."""
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t | {"special": True} for t in data["added_tokens"] if t["content"] in specials]
    data.update(parts)
    return Tokenizer.from_str(json.dumps(data))


def part(tokenizer_part):
    return json.loads(tokenizer_part.__getstate__())


def llama2():
    tokenizer = rebuilt(train_sentencepiece([]), ["<unk>", "<s>", "</s>"], pre_tokenizer=None)
    tokenizer.decoder = sentencepiece_decoder()
    tokenizer.post_processor = template("<s>", 1)
    return tokenizer


def mistral():
    controls = ["[INST]", "[/INST]", "[TOOL_CALLS]"]
    tokenizer = rebuilt(train_sentencepiece(controls), ["<unk>", "<s>", "</s>"] + controls, normalizer=None, pre_tokenizer=None)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = sentencepiece_decoder()
    tokenizer.post_processor = template("<s>", 1)
    return tokenizer


BASES = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "llama2": llama2, "mistral": mistral}


def sequence_of(*parts):
    return pre_tokenizers.Sequence(list(parts))


def with_flags(base):
    """Added tokens with every flag: their ids follow the base's."""
    tokenizer = Tokenizer.from_str(base.to_str())
    tokenizer.add_tokens([plain("<mask>", lstrip=True, normalized=False), plain("<word>", single_word=True), plain("Straße", rstrip=True),
                          plain("<NORM>", lstrip=True, rstrip=True, normalized=True), plain("<keep>", normalized=False), plain("don", single_word=True),
                          plain("  ", normalized=False), plain("    ", normalized=True), plain("é", normalized=True)])
    return json.loads(tokenizer.to_str())["added_tokens"]


def variants(bases):
    """name: (base, {top-level field: JSON})"""
    tail = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    text = part
    metaspace = pre_tokenizers.Metaspace
    return {
        "gpt2_prefix_space": ("gpt2", {"pre_tokenizer": text(pre_tokenizers.ByteLevel(add_prefix_space=True))}),
        "starcoder": ("gpt2", {"pre_tokenizer": text(sequence_of(pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)))}),
        "deepseek": ("gpt2", {"pre_tokenizer": text(sequence_of(*[pre_tokenizers.Split(Regex(p), "isolated") for p in DEEPSEEK], tail))}),
        "o200k": ("gpt2", {"pre_tokenizer": text(sequence_of(pre_tokenizers.Split(Regex(O200K), "removed", invert=True), tail))}),
        "neox": ("gpt2", {"normalizer": text(normalizers.NFC()), "added_tokens": with_flags(bases["gpt2"])}),
        "nfkc_digits": ("gpt2", {"normalizer": text(normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])),
                                 "pre_tokenizer": text(sequence_of(pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex(r"\bthe|\w+\b"), "merged_with_next"), tail))}),
        "words": ("qwen2", {"pre_tokenizer": text(sequence_of(pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"), tail))}),
        "gemma": ("llama2", {"normalizer": text(normalizers.Replace(" ", "▁")), "pre_tokenizer": text(pre_tokenizers.Split(" ", "merged_with_previous")),
                             "decoder": text(decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]))}),
        "metaspace": ("llama2", {"normalizer": text(normalizers.Strip(left=True, right=False)), "pre_tokenizer": text(metaspace(prepend_scheme="always")), "decoder": text(decoders.Metaspace())}),
        "metaspace_first": ("mistral", {"normalizer": text(normalizers.Sequence([normalizers.NFD(), normalizers.Replace(Regex(r"^\s+"), "")])),
                                        "pre_tokenizer": text(sequence_of(pre_tokenizers.Split("-", "removed"), metaspace(prepend_scheme="first"))), "decoder": None}),
        "llama2_flags": ("llama2", {"added_tokens": with_flags(bases["llama2"])}),
        "unknown": ("llama2", {"unknown": {"byte_fallback": False, "fuse_unk": False}}),
        "unknown_fused": ("llama2", {"unknown": {"byte_fallback": False, "fuse_unk": True}}),
    }


def variant_json(base, replace):
    """The whole tokenizer.json of a variant. "unknown" replaces fields of the model."""
    data = json.loads(base.to_str())
    replace = dict(replace)
    data["model"].update(replace.pop("unknown", {}))
    data.update(replace)
    return json.dumps(data, ensure_ascii=False)
