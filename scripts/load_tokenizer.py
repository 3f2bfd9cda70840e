"""Writes the tokenizer inside a GGUF file as load generators want it: load_tokenizer.py GGUF FOLDER.

Runs in .venv-load, so it imports what is there and the standard library. Not here: any model; nothing is computed.
"""

import json
import sys
from pathlib import Path
from typing import Any

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

# What GGUF calls a token that stands for no text.
CONTROL = 3


def main() -> int:
    """Returns the exit code."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    fields = GGUFReader(source).fields
    words, kinds = _texts(fields["tokenizer.ggml.tokens"]), fields["tokenizer.ggml.token_type"]
    merges = [tuple(each.split(" ")) for each in _texts(fields["tokenizer.ggml.merges"])]
    tokenizer = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    special = [word for word, at in zip(words, kinds.data, strict=True) if int(kinds.parts[at][0]) == CONTROL]
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    [template] = _texts(fields["tokenizer.chat_template"])
    marks = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template, **marks}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": len(words)}))
    return 0


def _texts(field: Any) -> list[str]:
    return [bytes(field.parts[at]).decode() for at in field.data]


if __name__ == "__main__":
    sys.exit(main())
