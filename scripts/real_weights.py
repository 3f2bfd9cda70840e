"""Writes other forms of a GGUF model: all of it in 32-bit floats, or some of its layers, as a cheap draft.

Runs in .venv-real, so it imports gguf, numpy and the standard library alone. A file appears under its name only when it
is whole.

    real_weights.py SOURCE TARGET --floats
    real_weights.py SOURCE TARGET --layers 0 1 28 29
"""

import argparse
import re
from pathlib import Path

import gguf
import numpy as np

LAYER = re.compile(r"blk\.(\d+)\.(.*)")
# GGUF's number for "all floats of 32 bits".
ALL_F32 = 0


def main() -> None:
    """Write one file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--floats", action="store_true")
    parser.add_argument("--layers", type=int, nargs="+")
    options = parser.parse_args()
    unfinished = options.target.with_suffix(".part")
    write(options.source, unfinished, floats=options.floats, layers=options.layers)
    unfinished.rename(options.target)


def write(source: Path, target: Path, *, floats: bool, layers: list[int] | None) -> None:
    """Write `source` to `target`, as floats or as it is, with all layers or these."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    changed = {"general.file_type": ALL_F32} if floats else {}
    if layers is not None:
        changed[f"{architecture}.block_count"] = len(layers)
    _copy_fields(reader, writer, changed)
    for tensor in reader.tensors:
        name = _name(tensor.name, layers)
        if name is not None:
            _copy_tensor(tensor, writer, name, floats=floats)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_fields(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, changed: dict[str, int]) -> None:
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue  # the writer's own
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, changed.get(key, field.contents()), field.types[0], sub_type=inner)


def _name(name: str, layers: list[int] | None) -> str | None:
    """What a tensor is called among the layers that stay, which are numbered anew; None where its layer does not."""
    of_layer = LAYER.match(name)
    if layers is None or of_layer is None:
        return name
    number = int(of_layer[1])
    return f"blk.{layers.index(number)}.{of_layer[2]}" if number in layers else None


def _copy_tensor(tensor: gguf.ReaderTensor, writer: gguf.GGUFWriter, name: str, *, floats: bool) -> None:
    if floats and tensor.tensor_type != gguf.GGMLQuantizationType.F32:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(name, values.reshape([int(size) for size in reversed(tensor.shape)]))
    else:
        writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)


if __name__ == "__main__":
    main()
