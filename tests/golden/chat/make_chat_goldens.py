"""Makes stored/NAME.json: what transformers' apply_chat_template gives for each template of the folder
`templates` and each conversation of `conversations.py`.
Run: pip install transformers==5.23.0 jinja2; python make_chat_goldens.py. The same versions give the same files.

stored/conversations.json  the conversations: messages, and what else the template is told
stored/NAME.json           {"bos_token", "eos_token", "renderings"}: per conversation a text, or null where the
                           template raises an exception
stored/ids.json            token ids of some renderings by tokenizers of ../tokenizer/stored
stored/restricted.json     templates that may not lie here (README.md): SHA-256 of each and of its renderings; made
                           again only where fetch_restricted_templates.py has put them into the folder `fetched`
stored/shared_document.json  ten questions on one document: the ids that the conversations share, and the rest of each"""
import datetime
import hashlib
import json
import os
import pathlib

import transformers.utils.chat_template_utils as chat_template_utils
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from conversations import CONVERSATIONS

FOLDER = pathlib.Path(__file__).resolve().parent
TOKENIZERS = FOLDER.parent / "tokenizer" / "stored"
BOS_EOS = {"llama-3": ("<|begin_of_text|>", "<|eot_id|>"), "qwen": ("", "<|im_end|>"), "chatml": ("", "<|im_end|>"),
           "gemma": ("<bos>", "<eos>"), "gpt": ("<|startoftext|>", "<|return|>"),
           "own-header": ("<|begin_of_text|>", "<|eot_id|>"), "own-turns": ("<bos>", "<eos>")}
# template: the tokenizer of its family, which has its special tokens
WITH_IDS = {"own-header": "llama3", "qwen2.5": "qwen2", "qwen3": "qwen2", "chatml": "qwen2",
            "llama-2": "llama2", "mistral-v1": "mistral", "mistral-v3-tekken": "mistral"}
DOCUMENT = "".join(f"Line {i}: the harbour of Zürich holds {i * 37 % 101} boats <|im_end|>\n" for i in range(150))
QUESTIONS = [f"How many boats does line {i} name?" for i in range(0, 150, 15)]


class FixedClock(datetime.datetime):
    """Thursday, 5 March 2026, 09:07:08."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 5, 9, 7, 8)


def special_tokens(name):
    for beginning, tokens in BOS_EOS.items():
        if name.startswith(beginning):
            return tokens
    return "<s>", "</s>"


def tokenizer_for(name, template):
    bos, eos = special_tokens(name)
    backend = Tokenizer.from_file(str(TOKENIZERS / f"{WITH_IDS.get(name, 'llama2')}.json"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos, eos_token=eos)
    tokenizer.chat_template = template
    return tokenizer


def rendered(tokenizer, conversation, tokenize=False):
    given = {key: value for key, value in conversation.items() if key != "messages"}
    given.setdefault("add_generation_prompt", True)
    try:
        result = tokenizer.apply_chat_template(conversation["messages"], tokenize=tokenize, **given)
        return result["input_ids"] if tokenize else result
    except Exception as error:  # what a template does not take
        print(f"    {type(error).__name__}: {str(error)[:90]}")
        return None


def write(name, value):
    path = FOLDER / "stored" / f"{name}.json"
    path.write_text(json.dumps(value, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def sha256(text):
    return None if text is None else hashlib.sha256(text.encode("utf-8")).hexdigest()


def restricted_templates():
    entries = {}
    for path in sorted((FOLDER / "fetched").glob("*.jinja")):
        print(path.stem)
        template = path.read_text(encoding="utf-8")
        bos, eos = special_tokens(path.stem)
        tokenizer = tokenizer_for(path.stem, template)
        entries[path.stem] = {"sha256": sha256(template), "bos_token": bos, "eos_token": eos,
                              "rendering_sha256": [sha256(rendered(tokenizer, c)) for c in CONVERSATIONS]}
    return entries


def shared_document():
    """The special tokens that the document writes are text: the tokenizer is told so, as our engine does by itself."""
    name = "qwen2.5"
    tokenizer = tokenizer_for(name, (FOLDER / "templates" / f"{name}.jinja").read_text(encoding="utf-8"))
    marker = "\ue000"
    ids = []
    for question in QUESTIONS:
        text = rendered(tokenizer, {"messages": [{"role": "user", "content": marker + question}]})
        head, tail = text.split(marker + question)
        backend = tokenizer.backend_tokenizer
        # What stands between special tokens is one text for the tokenizer.
        start = head.rindex("<|im_start|>") + len("<|im_start|>")
        end = tail.index("<|im_end|>")
        whole = backend.encode(head[:start], add_special_tokens=False).ids
        backend.encode_special_tokens = True  # words of special tokens are text now
        whole += backend.encode(head[start:] + DOCUMENT + "\n\n" + question + tail[:end], add_special_tokens=False).ids
        backend.encode_special_tokens = False
        whole += backend.encode(tail[end:], add_special_tokens=False).ids
        ids.append(whole)
    shared = os.path.commonprefix(ids)
    return {"template": name, "tokenizer": WITH_IDS[name], "document": DOCUMENT, "questions": QUESTIONS,
            "shared_ids": shared, "rests": [one[len(shared):] for one in ids]}


def main():
    chat_template_utils.datetime = FixedClock
    write("conversations", CONVERSATIONS)
    ids = {}
    for path in sorted((FOLDER / "templates").glob("*.jinja")):
        print(path.stem)
        bos, eos = special_tokens(path.stem)
        tokenizer = tokenizer_for(path.stem, path.read_text(encoding="utf-8"))
        renderings = [rendered(tokenizer, conversation) for conversation in CONVERSATIONS]
        write(path.stem, {"bos_token": bos, "eos_token": eos, "renderings": renderings})
        if path.stem in WITH_IDS:
            ids[path.stem] = {"tokenizer": WITH_IDS[path.stem],
                              "ids": [rendered(tokenizer, c, tokenize=True) for c in CONVERSATIONS]}
    (FOLDER / "stored" / "ids.json").write_text(json.dumps(ids) + "\n", encoding="utf-8")
    (FOLDER / "stored" / "shared_document.json").write_text(json.dumps(shared_document()) + "\n", encoding="utf-8")
    if (FOLDER / "fetched").is_dir():
        write("restricted", restricted_templates())


if __name__ == "__main__":
    main()
