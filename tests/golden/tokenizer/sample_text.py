"""Texts to train and test tokenizers with: made here or shipped with Python, the same at every run."""
import pathlib
import random
import sysconfig

PROSE = [
    "The quick brown fox jumps over the lazy dog, but the dog doesn't mind; it's what he'd have done, we'll say.",
    "In the beginning the Universe was created. They've called it a BAD MOVE; I'm not sure they're right.",
    "Der schnelle braune Fuchs springt über den faulen Hund. Größe, Straße, Füße – und „Anführungszeichen“.",
    "Le cœur a ses raisons que la raison ne connaît point. L'été, à l'école, où étiez-vous ? « Là-bas »…",
    "El veloz murciélago hindú comía feliz cardillo y kiwi. ¿Qué pasó? ¡Nada! La cigüeña tocaba el saxofón.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Объявление: подъезд №5, 12-й этаж.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Το άλφα και το ωμέγα· τι κάνεις;",
    "我能吞下玻璃而不伤身体。今天天气很好，我们去公园散步吧！第１２章：「紅樓夢」。",
    "いろはにほへと ちりぬるを。私はガラスを食べられます。それは私を傷つけません。カタカナ、ﾊﾝｶｸ。",
    "나는 유리를 먹을 수 있어요. 그래도 아프지 않아요. 대한민국의 수도는 서울입니다.",
    "أنا قادر على أكل الزجاج و هذا لا يؤلمني. اللُّغَةُ العَرَبِيَّة ٠١٢٣٤٥٦٧٨٩",
    "אני יכול לאכול זכוכית וזה לא מזיק לי. שָׁלוֹם עֲלֵיכֶם",
    "मैं काँच खा सकता हूँ और मुझे उससे कोई चोट नहीं पहुंचती। १२३४५ हिन्दी",
    "আমি কাঁচ খেতে পারি, তাতে আমার কোনো ক্ষতি হয় না। நான் கண்ணாடி சாப்பிடுவேன்.",
    "ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ ภาษาไทยไม่มีช่องว่าง",
    "Tôi có thể ăn thủy tinh mà không hại gì. Đường phố Hà Nội rất đông người.",
    "Pchnąć w tę łódź jeża lub ośm skrzyń fig. Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "İstanbul'da IĞDIR ılık; şişli çiğ köfte. Ďakujem veľmi pekne, dobrý deň.",
    "კარგია საქართველო. Ես կարող եմ ապակի ուտել. እኔ ብርጭቆ መብላት እችላለሁ።",
    "E = mc², ∑ₙ 1/n² = π²/6 ≈ 1.644934; ∀x∈ℝ: √(x²) = |x|; 3½ km² @ 25 °C ± 0.5 ‰; ½ ⅔ Ⅷ ①②③",
    "😀 😃😄 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 ❤️ ☎️ 1️⃣ 🧑🏿‍🚀 emoji everywhere 🎉🎉🎉",
]
SPECIAL = ["<s>", "</s>", "<unk>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>",
           "<|endoftext|>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "<tool_call>", "</tool_call>", "<0x41>", "<0xE4>",
           "<|", "|>", "<|im_start", "<s", "<mask>", "<word>", "Straße", "<NORM>", "   <keep>", "[INST", "<|eot_id|", "▁", "▁▁", "Ġ", "Ċ"]
SPACES = ["\t", "\n", "\r", "\r\n", "\v", "\f", " ", "  ", "   ", "\u0085", "\u00a0", "\u1680", "\u180e", "\u2000", "\u2003", "\u2009",
          "\u200b", "\u200c", "\u200d", "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000", "\ufeff", "\x1c", "\x1f"]
MARKS = "\u0300\u0301\u0302\u0303\u0308\u030a\u0323\u0327\u0328\u0334\u0338\u0345\u0315\u031b\u093c\u3099\u309a\u05b0\u0651\u064b\u1ab0\u20d7\u0898\u0e38"
COMPOSING = ["e\u0301", "A\u030a", "\u212b", "\u2126", "o\u0323\u0302", "o\u0302\u0323", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u1112\u1161\u11ab",
             "\u0928\u093c", "\u0958", "\u304b\u3099", "\ufb01", "\ufb06", "ﬁnance", "\u01c4", "\u2460", "\uff21\uff11", "\u00bd", "\u1e9b\u0323",
             "q\u0307\u0323", "\u0340", "\u0344", "\u2adc", "\U0001d15e", "\U0002f800", "\ufa10", "\uf900", "a\u0315\u0300\u05ae\u0898b", "\u09c7\u09be",
             "\U00011131\U00011127", "\u0041\u030a\u0301", "\u1100\u1161", "s\u0307\u0323", "\u0374", "\u1fbe"]
CONTRACTIONS = ["don't", "I'LL", "we'Ve", "'s", "'S", "'ſ", "o'clock", "’s", "y'all'd've", "'''", "'re're", "'D", "'llama", "it'Stop"]


def library_sources():
    """The standard library's modules in a fixed order."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    names = "argparse ast base64 bisect calendar configparser csv datetime decimal difflib enum fractions functools gettext heapq inspect json/decoder locale logging/__init__ mailbox optparse pathlib pickle pprint random re/_parser shutil socket statistics string tarfile textwrap threading tokenize traceback typing urllib/parse uuid zipfile".split()
    return [(folder / f"{name}.py").read_text(encoding="utf-8") for name in names]


def training_texts():
    sources = library_sources()
    lines = [line for source in sources for line in source.split("\n") if line]
    return ["\n".join(lines[i:i + 20]) for i in range(0, len(lines), 20)] + PROSE * 20


def random_character(rng):
    """Any character, common blocks more often; newly assigned ones and unassigned ones, too."""
    blocks = [(0x20, 0x7e), (0x20, 0x7e), (0, 0x1f), (0x7f, 0x17f), (0x180, 0x5ff), (0x600, 0x10ff), (0x1100, 0x1fff), (0x2000, 0x2bff),
              (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xe000, 0xffff), (0x10000, 0x1ffff), (0x1f300, 0x1faff),
              (0x20000, 0x323af), (0x10d40, 0x10d8f), (0x11b00, 0x11bff), (0x16100, 0x16d7f), (0xe0000, 0xe01ef), (0x10fff0, 0x10ffff),
              (0xa7c0, 0xa7ff), (0x1c80, 0x1c8f), (0x890, 0x8ff), (0x1e4d0, 0x1e5ff)]
    first, last = rng.choice(blocks)
    return chr(rng.randint(first, last))


def snippet(rng, text, longest):
    start = rng.randrange(max(1, len(text)))
    return text[start:start + rng.randint(1, longest)]


def piece(rng, sources):
    kind = rng.randrange(16)
    if kind < 3:
        return snippet(rng, rng.choice(sources), 80)
    if kind < 7:
        return snippet(rng, rng.choice(PROSE), 50)
    if kind == 7:
        return rng.choice(SPECIAL)
    if kind == 8:
        return "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 4)))
    if kind == 9:
        return rng.choice("aA .=-0\n\t中é😀▁") * rng.randint(2, 40)
    if kind == 10:
        return rng.choice(COMPOSING)
    if kind == 11:
        return rng.choice("aeoucnAEO한中 ") + "".join(rng.choice(MARKS) for _ in range(rng.randint(1, 4)))
    if kind == 12:
        return rng.choice(["", "-", "$", "+", "0x"]) + str(rng.randrange(10 ** rng.randint(1, 18))) + rng.choice(["", "%", ".5", "e-3", "½", "٣", "１"])
    if kind == 13:
        return "".join(random_character(rng) for _ in range(rng.randint(1, 8)))
    if kind == 14:
        return rng.choice(CONTRACTIONS) + rng.choice(["", " ", "\n", "."])
    return " " * rng.randint(1, 6)


def fixed_strings():
    everything = ["", " ", "  ", "\n", "\n\n", " \n", "\n ", "a", " a", "a ", "  a", "\r\n", "\r\n\r\n", "\0", "\x7f", "a\0b"]
    everything += SPECIAL + SPACES + COMPOSING + CONTRACTIONS + PROSE
    everything += [f"a{space}{space} b{space}" for space in SPACES] + [f" {s} {s}x{s}{s}" for s in SPECIAL]
    return [text.encode("utf-8") for text in everything]


INVALID = [b"\x80", b"\xff", b"\xc3", b"\xe4\xbd", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xfe\xff"]


def test_strings(count):
    """`count` byte strings; some are not UTF-8. Callers of the library would decode with errors='replace'."""
    rng = random.Random(20240601)
    sources = library_sources()
    strings = fixed_strings()
    while len(strings) < count:
        n = rng.choice([1, 1, 2, 2, 3, 3, 4, 6])
        if rng.random() < 0.002:
            n = 60
        raw = "".join(piece(rng, sources) for _ in range(n)).encode("utf-8", "replace")
        if rng.random() < 0.04:
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(raw) + 1)
                raw = raw[:at] + rng.choice(INVALID) + raw[at:]
        strings.append(raw)
    rng.shuffle(strings)
    return strings
