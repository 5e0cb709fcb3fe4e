"""Write a small classifier as an ONNX model: ``python model.py PATH``.

Two layers with random weights, 64 pixels in, 10 probabilities out; about 5 KB. The file is written as protobuf has it,
message by message, so nothing has to be installed for it. The numbers of the fields are those of ``onnx.proto``.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

PIXELS, HIDDEN, CLASSES = 64, 16, 10
FLOAT = 1
IR_VERSION, OPSET = 8, 13
NAME, VERSION = "digits", 3


def number(field: int, value: int) -> bytes:
    """Return a field that is an integer."""
    return varint(field << 3) + varint(value)


def message(field: int, *content: bytes | str) -> bytes:
    """Return a field that is a message, bytes or a text."""
    joined = b"".join(part.encode() if isinstance(part, str) else part for part in content)
    return varint(field << 3 | 2) + varint(len(joined)) + joined


def varint(value: int) -> bytes:
    """Return an integer, seven bits a byte."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def node(kind: str, inputs: Sequence[str], output: str) -> bytes:
    """Return a NodeProto as a field of the graph."""
    return message(1, *(message(1, name) for name in inputs), message(2, output), message(4, kind))


def weights(name: str, source: random.Random, *shape: int) -> bytes:
    """Return a TensorProto with random numbers, as an initializer of the graph."""
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    values = struct.pack(f"<{count}f", *(source.gauss(0, 0.5) for _ in range(count)))
    sizes = b"".join(number(1, size) for size in shape)
    return message(5, sizes, number(2, FLOAT), message(8, name), message(9, values))


def tensor(field: int, name: str, *dimensions: str) -> bytes:
    """Return a ValueInfoProto whose dimensions have names: they are known when the model runs."""
    shape = message(2, *(message(1, message(2, dimension)) for dimension in dimensions))
    return message(field, message(1, name), message(2, message(1, number(1, FLOAT), shape)))


def model() -> bytes:
    """Return the ModelProto."""
    source = random.Random(1)
    graph = message(
        7,
        node("Gemm", ("image", "weights_1", "bias_1"), "summed"),
        node("Relu", ("summed",), "hidden"),
        node("Gemm", ("hidden", "weights_2", "bias_2"), "scores"),
        node("Softmax", ("scores",), "probabilities"),
        message(2, NAME),
        weights("weights_1", source, PIXELS, HIDDEN),
        weights("bias_1", source, HIDDEN),
        weights("weights_2", source, HIDDEN, CLASSES),
        weights("bias_2", source, CLASSES),
        weights("forgotten", source, 4),  # no node has it, so that ONNX Runtime has something to warn of
        tensor(11, "image", "batch", "pixels"),
        tensor(12, "probabilities", "batch", "classes"),
    )
    return number(1, IR_VERSION) + number(5, VERSION) + graph + message(8, number(2, OPSET))


def main() -> None:
    Path(sys.argv[1]).write_bytes(model())


if __name__ == "__main__":
    main()
