"""What a compiled program does in its loop, read from the text that XLA prints of it.

The text is that of `jax.stages.Compiled.as_text`: scheduled HLO, of one device, after layouts and
memory spaces were assigned. Everything here is a function of that text, of any back end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from specdec_jax.errors import SpecdecError

_BYTES = {"pred": 1, "bf16": 2, "f16": 2, "token": 0, "opaque": 0}
_COLLECTIVES = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all"),
    *("collective-permute", "collective-broadcast", "ragged-all-to-all"),
)
# Data movement: the same numbers elsewhere, in another order or of another width.
_MOVES = {
    *("copy", "copy-start", "transpose", "reshape", "convert", "bitcast-convert"),
    *("slice", "dynamic-slice", "concatenate", "pad"),
}
_CALLS = (
    r"(?:calls|to_apply|body|true_computation|false_computation|called_computations|"
    r"branch_computations)=(?:%([\w.\-]+)|\{(%[^}]*)\})"
)
_STILL = {"parameter", "constant", "bitcast", "get-tuple-element", "tuple"}


class Shape(NamedTuple):
    """One array of one device."""

    dtype: str
    dims: tuple[int, ...]
    space: int
    """Memory space; 0 is the device's main memory (HBM), 1 a TPU's on-chip memory."""

    @property
    def elements(self) -> int:
        """Numbers in it."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """Bytes without the padding of tiles."""
        bits = re.search(r"\d+", self.dtype)
        width = _BYTES.get(self.dtype, max(1, int(bits.group()) // 8) if bits else 0)
        return width * self.elements


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    opcode: str
    results: tuple[Shape, ...]
    """Its arrays; several where it returns a tuple."""
    called: tuple[str, ...]
    """Computations that it runs, fuses or applies."""
    scope: str
    """Where it comes from: JAX's name stack."""
    cycles: int
    """The compiler's estimate, where it prints one; else 0."""


class Module(NamedTuple):
    """A program."""

    entry: str
    computations: dict[str, tuple[Instruction, ...]]


class Loop(NamedTuple):
    """The decoding loop of a program."""

    carry: tuple[Shape, ...]
    """What goes from round to round, and what every round only reads: the weights."""
    body: str
    """Name of the computation of a round."""


class Step(NamedTuple):
    """An instruction of a round, and how surely a round runs it."""

    instruction: Instruction
    always: bool
    """False in a branch of a conditional or in an inner loop."""


def parse(text: str) -> Module:
    """Read a program.

    Raises:
        SpecdecError: when there is no entry computation in the text.
    """
    computations: dict[str, tuple[Instruction, ...]] = {}
    entry, name, lines = None, None, []
    for line in text.splitlines():
        header = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if header:
            name, lines = header.group(2), []
            entry = name if header.group(1) else entry
        elif line.startswith("}") and name is not None:
            computations[name], name = tuple(lines), None
        elif name is not None and " = " in line:
            lines.append(_instruction(line))
    if entry is None:
        raise SpecdecError(
            "The text is no HLO program (there is no ENTRY in it): give what "
            "jax.stages.Compiled.as_text returns."
        )
    return Module(entry, computations)


def _instruction(line: str) -> Instruction:
    name, _, rest = line.strip().removeprefix("ROOT ").partition(" = ")
    rest = re.sub(r"/\*.*?\*/", "", rest)
    end = _end_of_type(rest)
    opcode = re.match(r" ([\w\-]+)\(", rest[end:])
    called = []
    for one, many in re.findall(_CALLS, rest[end:]):
        called += [one] if one else re.findall(r"%([\w.\-]+)", many)
    scope = re.search(r'op_name="([^"]*)"', rest)
    cycles = re.search(r'"estimated_cycles":"(\d+)"', rest)
    return Instruction(
        name=name.removeprefix("%"),
        opcode=opcode.group(1) if opcode else "",
        results=_shapes(rest[:end]),
        called=tuple(called),
        scope=scope.group(1) if scope else "",
        cycles=int(cycles.group(1)) if cycles else 0,
    )


def _end_of_type(rest: str) -> int:
    """Return where the type before the opcode ends; a tuple's at the bracket that closes it."""
    if not rest.startswith("("):
        return rest.index(" ")
    depth = 0
    for bracket in re.finditer(r"[()]", rest):
        depth += 1 if bracket.group() == "(" else -1
        if depth == 0:
            return bracket.end()
    return len(rest)


def _shapes(written: str) -> tuple[Shape, ...]:
    found = []
    for dtype, dims, layout in re.findall(r"(\w+)\[([\d,<=]*)\](?:\{([^}]*)\})?", written):
        space = re.search(r"S\((\d+)\)", layout)
        sizes = tuple(int(size.lstrip("<=")) for size in dims.split(",") if size)
        found.append(Shape(dtype, sizes, int(space.group(1)) if space else 0))
    return tuple(found)


def loop_of(module: Module) -> Loop:
    """Return the loop that carries most bytes: the parameters of the models go through it.

    Raises:
        SpecdecError: when the program has no loop.
    """
    whiles = [
        step.instruction
        for step in _steps(module, module.entry, always=True, into_loops=False)
        if step.instruction.opcode == "while"
    ]
    if not whiles:
        raise SpecdecError(
            "The program has no loop, so it decodes nothing: compile a decode, not a step."
        )
    largest = max(whiles, key=lambda loop: sum(shape.bytes for shape in loop.results))
    return Loop(largest.results, largest.called[0])


def steps(module: Module, loop: Loop) -> list[Step]:
    """Return the instructions of a round, what is inside of a fusion left out.

    An inner loop's body is listed once, and every branch of a conditional.
    """
    return list(_steps(module, loop.body, always=True, into_loops=True))


def _steps(module: Module, name: str, *, always: bool, into_loops: bool) -> Iterator[Step]:
    for instruction in module.computations[name]:
        yield Step(instruction, always)
        sure = always and instruction.opcode in {"call", "async-start"}
        follow = {"call", "async-start", "conditional"} | ({"while"} if into_loops else set())
        if instruction.opcode in follow:
            for called in instruction.called:
                yield from _steps(module, called, always=sure, into_loops=into_loops)


def collectives(module: Module, loop: Loop) -> dict[str, dict[str, int]]:
    """Count what the chips send each other in a round.

    Returns:
        By kind (`all-reduce`, ..), `count` and `bytes`: of the results on one chip. Those in inner
        loops and branches are counted once each.
    """
    found: dict[str, dict[str, int]] = {}
    for instruction, _ in steps(module, loop):
        inner = [instruction]
        if instruction.opcode == "fusion":
            inner = [each for name in instruction.called for each in module.computations[name]]
        for each in inner:
            kind = each.opcode.removesuffix("-start")
            if kind in _COLLECTIVES:
                # What is started returns its operand beside its result, the result being no less.
                sizes = [shape.bytes for shape in each.results]
                size = max(sizes) if each.opcode.endswith("-start") else sum(sizes)
                entry = found.setdefault(kind, {"count": 0, "bytes": 0})
                entry["count"] += 1
                entry["bytes"] += size
    return found


def moves(module: Module, loop: Loop) -> list[tuple[str, Shape]]:
    """Return what a round only moves, within the device's main memory.

    That is a copy, a transposition or a conversion, or a fusion of nothing else, whose result lies
    in main memory. A copy to on-chip memory is none, since the numbers have to be read there
    anyway, nor is one that makes room in it.

    Returns:
        Names of the instructions, and what they write; the largest first.
    """
    found = []
    for instruction, _ in steps(module, loop):
        opcodes = {instruction.opcode}
        if instruction.opcode == "fusion":
            opcodes = {
                each.opcode for name in instruction.called for each in module.computations[name]
            } - _STILL
        # The second result of a copy that is started is where it comes from.
        ends = instruction.results[: 2 if instruction.opcode == "copy-start" else 1]
        if opcodes and opcodes <= _MOVES and not any(shape.space for shape in ends):
            found.append((instruction.name, ends[0]))
    return sorted(found, key=lambda move: -move[1].bytes)


def widened(loop: Loop, elements: Collection[int]) -> list[Shape]:
    """Return float32 arrays of so many elements in the carry: weights converted beforehand."""
    return [
        shape
        for shape in loop.carry
        if shape.dtype == "f32" and shape.space == 0 and shape.elements in elements
    ]


def cycles(module: Module, loop: Loop, scopes: Collection[str]) -> dict[str, int]:
    """Add up the compiler's estimates of a round, by where instructions come from.

    Branches and inner loops are left out: a greedy round runs none that costs anything. Waiting for
    other chips, or for copies from main memory, has no estimate.

    Args:
        module: the program.
        loop: its loop.
        scopes: names given with `jax.named_scope`.

    Returns:
        Cycles under each scope, and under `rest`.
    """
    found = dict.fromkeys((*scopes, "rest"), 0)
    for instruction, always in steps(module, loop):
        if always:
            path = instruction.scope.split("/")
            found[next((scope for scope in scopes if scope in path), "rest")] += instruction.cycles
    return found
