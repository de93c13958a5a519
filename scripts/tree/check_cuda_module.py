#!/usr/bin/env python3
"""Checks what is in libquire-cuda.so without a GPU: every kernel is there as machine code for each
architecture and as PTX, for other GPUs, attention and our products work on tensor cores, and their registers,
local memory and instructions keep to their budgets.

Usage: check_cuda_module.py [--percent N] MODULE ARCH...        for instance: libquire-cuda.so 80 90 120

--percent takes so much of each budget: with little, the check must fail. The layout of fat binaries is not
documented: read off the output of nvcc 13.0, like the operation codes, which are the last 12 bits of the first 16
of an instruction of 16 bytes, on sm_80 to sm_120. What was compressed for size is a zstd frame (RFC 8878).
"""

import argparse
import ctypes
import ctypes.util
import re
import struct
import sys
from pathlib import Path

FATBIN = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes behind it
MAGIC = 0xBA55ED50
ENTRY = struct.Struct("<HHIQ")  # kind, version, bytes of this header, bytes behind it
ENTRY_VERSION, ARCH_AT = 0x101, 28
PTX, MACHINE_CODE = 1, 2
PTX_ARCH, LAST_KNOWN = 80, 120
EARLY_ARCH = 90  # from which on products begin before what is before them is done
FP8_ARCH = 89  # the least of source files with products of E4M3
NEEDED = {"HMMA": 0x23C, "LDSM": 0x83B, "LDGSTS": 0xFAE}  # mma, ldmatrix, cp.async
HGMMA = 0x9F0, 0xDF0  # wgmma with A in shared memory, and in registers
QMMA = 0x27A  # mma of 8 bits
LOCAL_MEMORY = {"LDL": 0x983, "STL": 0x387}  # spilled registers among them
BRANCH, LOAD, WAIT_FOR_GRIDS = 0x947, 0x981, 0x82E  # BRA, LDG, ACQBULK: griddepcontrol.wait
SYMBOL_TABLE, SYMBOL_BYTES = 2, 24
SIZED_FORM = 4
REGISTER_COUNT = (SIZED_FORM, 0x2F)  # form and attribute, as cuobjdump names them: EIATTR_REGCOUNT
ATTENTION = re.compile(r"attention_kernelILb([01])E(6__half|13__nv_bfloat16)L7kv_type(\d)ELi(\d+)E")
NARROW, WIDE = "0", "1"  # tiles, by the kernel's first parameter
WGMMA_ATTENTION = re.compile(r"wgmma_attention_kernelI(6__half|13__nv_bfloat16)L7kv_type(\d)ELi(\d+)E")
WGMMA_ARCH = 90
KV_TYPES = {"6__half": "134", "13__nv_bfloat16": "234"}  # kv_layout.h: its own, int8, e4m3
ATTENTION_KERNELS = {(tile, dtype, kv, dim) for tile in (NARROW, WIDE) for dtype, types in KV_TYPES.items()
                     for kv in types for dim in ("64", "96", "128", "256")}
WGMMA_KERNELS = {kernel[1:] for kernel in ATTENTION_KERNELS if kernel[0] == WIDE}
# Of wide tiles by wgmma, by head_dim: registers, which let 4, 3, 3 and 2 blocks share a multiprocessor, and wgmma
# of a tile, each of which is in the code once: its scores, then its sums.
WGMMA_REGISTERS = {"64": 128, "96": 168, "128": 168, "256": 255}
WGMMA_PRODUCTS = {"64": 4 + 4, "96": 6 + 4, "128": 8 + 4, "256": 16 + 8}
# Registers of a narrow tile's kernel, by head_dim, which let so many blocks of 128 threads share the 65,536 of a
# multiprocessor: 4, 4, 4 and 2.
NARROW_REGISTERS = {"64": 128, "96": 128, "128": 128, "256": 255}
# Instructions of a warp for 16 tokens of a decode on sm_90, by (type of the cache, head_dim); no mask, no cap, and no
# row has a new maximum.
COUNTED_ARCH = 90
TILE_INSTRUCTIONS = {("1", "128"): 310, ("2", "128"): 310, ("3", "128"): 760, ("4", "128"): 910,
                     ("1", "64"): 175, ("2", "64"): 175, ("3", "64"): 440}
WITH_MIN = {"1", "3", "7", "9", "10"}  # forms; sums of x take 8 more products for each warp of a chunk
TWO_ROUNDS = {"7", "8", "11"}  # whose chunks a wide kernel for 64 rows multiplies by halves
# Products by the number of the weights' form (packed_layout.h; n1: plain ones; n2: E4M3 by E4M3), for up to 8 rows of
# x, 32 and 64: instructions of a warp for 16 rows by 128 columns of weights on sm_90, 64 weights a lane.
PACKED = re.compile(r"packed_(narrow|wide)_kernelILi(n?\d+)E(6__half|13__nv_bfloat16)(?:Li(\d)E)?Lb[01]E")
PACKED_INSTRUCTIONS = {  # Q4_0, Q8_0, Q4_K, Q6_K, I4_128, plain, E4M3 by E4M3
    "narrow": {"0": 230, "4": 250, "9": 330, "11": 380, "15": 235, "n1": 100, "n2": 225},
    "4": {"0": 390, "4": 430, "9": 610, "11": 610, "15": 390, "n1": 215, "n2": 335},
    "8": {"0": 620, "4": 660, "9": 950, "11": 950, "15": 620, "n1": 360, "n2": 575}}
# Tensor cores of sm_90 and sm_100 multiply E4M3 by instructions of their own only: an mma becomes two of f16 there. Of
# others (the narrow one is of 256 columns, as on sm_90):
QMMA_ARCHS, QMMA_COUNTED_ARCH = (89, 120), 120
QMMA_INSTRUCTIONS = {"narrow": 155, "4": 155, "8": 235}

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def unpack(payload):
    """What is compressed in it, or the payload itself."""
    if not payload.startswith(ZSTD_MAGIC):
        return payload
    zstd = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    for function in (zstd.ZSTD_findFrameCompressedSize, zstd.ZSTD_getFrameContentSize, zstd.ZSTD_decompress):
        function.restype = ctypes.c_ulonglong
    size = ctypes.c_size_t(len(payload))
    frame = ctypes.c_size_t(zstd.ZSTD_findFrameCompressedSize(payload, size))  # padding follows it
    length = zstd.ZSTD_getFrameContentSize(payload, frame)
    if frame.value > len(payload) or length > 1 << 30:
        sys.exit("a compressed entry of the fat binary is no zstd frame")
    out = ctypes.create_string_buffer(length)
    if zstd.ZSTD_decompress(out, ctypes.c_size_t(length), payload, frame) != length:
        sys.exit("a compressed entry of the fat binary cannot be unpacked")
    return out.raw


def fat_binaries(image):
    """Lists of (kind, architecture, bytes), one for each source file with kernels."""
    for found in re.finditer(re.escape(struct.pack("<IHH", MAGIC, 1, FATBIN.size)), image):
        size = FATBIN.unpack_from(image, found.start())[3]
        at, entries = found.end() + 8, []
        end = at + size
        while at < end <= len(image):
            kind, version, header, payload = ENTRY.unpack_from(image, at)
            if version != ENTRY_VERSION:
                break
            arch, = struct.unpack_from("<I", image, at + ARCH_AT)
            entries.append((kind, arch, unpack(image[at + header:at + header + payload])))
            at += header + payload
        yield entries


def sections_of(elf):
    """(name, type, bytes) of each section."""
    table, = struct.unpack_from("<Q", elf, 40)
    entry, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * entry) for i in range(count)]
    for name, kind, _, _, offset, size in headers:
        start = headers[names][4] + name
        yield elf[start:elf.index(b"\0", start)].decode(), kind, elf[offset:offset + size]


def register_counts(sections):
    """Number of a kernel's section -> registers of a thread."""
    symbols = next((data for _, kind, data in sections if kind == SYMBOL_TABLE), b"")
    info = next((data for name, _, data in sections if name == ".nv.info"), b"")
    counts, at = {}, 0
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if (form, attribute) == REGISTER_COUNT:
            symbol, count = struct.unpack_from("<II", info, at + 4)
            counts[struct.unpack_from("<IBBH", symbols, symbol * SYMBOL_BYTES)[3]] = count
        at += 4 + (size if form == SIZED_FORM else 0)
    return counts


def code_sections(elf):
    """Name, bytes and registers of the sections with instructions, one for each kernel."""
    sections = list(sections_of(elf))
    counts = register_counts(sections)
    for number, (name, _, data) in enumerate(sections):
        if name.startswith(".text."):
            yield name, data, counts.get(number, 0)


def count_operation(code, operation):
    return sum(struct.unpack_from("<H", code, at)[0] & 0xFFF == operation
               for at in range(0, len(code), 16))


def branch_target(word, at):
    """Of an instruction at that number, or None; and whether the next one may follow."""
    if word & 0xFFF != BRANCH:
        return None, True
    high = word >> 34 & (1 << 48) - 1
    offset = ((high - (high >> 47 << 48)) << 8 | word >> 16 & 0xFF) * 4
    is_conditional = word >> 12 & 0xF != 7 or word >> 87 & 0x1F != 7
    return at + 1 + offset // 16, is_conditional


def cheapest_round(code, needed=(NEEDED["HMMA"], NEEDED["LDGSTS"])):
    """(mma, cp.async, instructions) of one round of the innermost loop that has the operations needed, the first of
    them an mma: of all ways through it that have most mma and cp.async, the shortest. None where there is no such
    loop."""
    words = [int.from_bytes(code[at:at + 16], "little") for at in range(0, len(code), 16)]
    ops = [word & 0xFFF for word in words]
    targets = [branch_target(word, at) for at, word in enumerate(words)]
    loops = [(at - target, target, at) for at, (target, _) in enumerate(targets)
             if target is not None and target <= at
             and set(needed) <= set(ops[target:at + 1])]
    if not loops:
        return None
    _, first, last = min(loops)
    ways = {first: {(0, 0): 0}}  # number of an instruction -> work done before it -> least instructions
    for at in range(first, last + 1):
        target, goes_on = targets[at]
        following = [last + 1] if at == last else [at + 1] * goes_on
        if target is not None and at < target <= last:
            following.append(target)
        for (mma, copies), length in ways.pop(at, {}).items():
            done = mma + (ops[at] == needed[0]), copies + (ops[at] == NEEDED["LDGSTS"])
            for place in following:
                known = ways.setdefault(place, {})
                known[done] = min(known.get(done, length + 1), length + 1)
    work = max(ways[last + 1])
    return *work, ways[last + 1][work]


def over_budget(kernel, arch, code, registers, percent):
    """Yields what of an attention kernel is more than its budget."""
    tile, _, kv_type, dim = kernel
    for operation, bits in LOCAL_MEMORY.items():
        if count_operation(code, bits) > 0:
            yield f"has {operation}: registers are spilled, or an array is in local memory"
    if tile == NARROW and not 0 < registers <= NARROW_REGISTERS[dim] * percent / 100:
        yield f"has {registers} registers, {NARROW_REGISTERS[dim]} are allowed"
    budget = TILE_INSTRUCTIONS.get((kv_type, dim)) if tile == NARROW and arch == COUNTED_ARCH else None
    if budget is None:
        return
    mma, copies, instructions = cheapest_round(code) or (0, 0, 0)
    needed_mma, needed_copies = int(dim) // 4, int(dim) // 8 if kv_type in "12" else int(dim) // 16 + 2
    if (mma, copies) != (needed_mma, needed_copies):
        yield f"has {mma} mma and {copies} cp.async for 16 tokens instead of {needed_mma} and {needed_copies}"
    elif instructions > budget * percent / 100:
        yield f"has {instructions} instructions for 16 tokens, {budget} are allowed"
    else:
        print(f"sm_{arch}: {' '.join(kernel)}: {registers} registers, {instructions} instructions for 16 tokens")


def wgmma_over_budget(kernel, arch, code, registers, percent):
    """Yields what of an attention kernel with wgmma is wrong."""
    *_, dim = kernel
    if arch != WGMMA_ARCH:
        yield f"is for sm_{WGMMA_ARCH} alone"
    for operation, bits in LOCAL_MEMORY.items():
        if count_operation(code, bits) > 0:
            yield f"has {operation}: registers are spilled, or an array is in local memory"
    if not 0 < registers <= WGMMA_REGISTERS[dim] * percent / 100:
        yield f"has {registers} registers, {WGMMA_REGISTERS[dim]} are allowed"
    products = sum(count_operation(code, bits) for bits in HGMMA)
    if products != WGMMA_PRODUCTS[dim]:
        yield f"has {products} wgmma for a tile instead of {WGMMA_PRODUCTS[dim]}"
    print(f"sm_{arch}: wgmma {' '.join(kernel)}: {registers} registers, {products} wgmma, {len(code) // 16} instructions")


def packed_over_budget(kernel, arch, code, percent):
    """Yields what of a product of our own is more than its budget."""
    width, form, dtype, tiles = kernel
    is_qmma = form == "n2" and arch in QMMA_ARCHS
    multiply = QMMA if is_qmma else NEEDED["HMMA"]
    for operation, bits in LOCAL_MEMORY.items():
        if count_operation(code, bits) > 0:
            yield f"has {operation}: registers are spilled, or an array is in local memory"
    if count_operation(code, multiply) == 0:
        yield f"has no {'QMMA' if is_qmma else 'HMMA'}"
    operations = [struct.unpack_from("<H", code, at)[0] & 0xFFF for at in range(0, len(code), 16)]
    waits = operations.index(WAIT_FOR_GRIDS) if WAIT_FOR_GRIDS in operations else None
    if arch < EARLY_ARCH and waits is not None:
        yield "waits for other grids, which this GPU cannot"
    if arch >= EARLY_ARCH and LOAD not in operations[:waits or 0]:
        yield "reads no weights before it waits for other grids"
    budget = QMMA_INSTRUCTIONS[tiles or width] if is_qmma else PACKED_INSTRUCTIONS[tiles or width].get(form)
    if budget is None or arch != (QMMA_COUNTED_ARCH if is_qmma else COUNTED_ARCH):
        return
    needed = (multiply,) if tiles is None else (multiply, NEEDED["LDGSTS"])
    mma, _, instructions = cheapest_round(code, needed) or (0, 0, 0)
    products = (4 if is_qmma else 8) * int(tiles or 1) * (2 if form == "n2" and tiles is None else 1)
    if tiles == "8" and form in TWO_ROUNDS:
        half = cheapest_round(code, (multiply,)) or (0, 0, 0)
        mma, instructions = mma + half[0], instructions + half[2]
    if mma != products + 8 * (form in WITH_MIN) or instructions > budget * percent / 100:
        yield f"has {mma} mma and {instructions} instructions for 64 weights a lane, {budget} are allowed"
    else:
        rows = 8 * int(tiles or 1)
        print(f"sm_{arch}: packed form {form} {dtype}, {rows} rows: {instructions} instructions for 64 weights a lane")


def is_of_wgmma(entries):
    return all(WGMMA_ATTENTION.search(name) for _, _, elf in entries for name, _, _ in code_sections(elf))


def complaints(entries, archs, percent):
    """Yields what is wrong with the kernels of one source file."""
    got = {(kind, arch) for kind, arch, _ in entries}
    of_one = {(MACHINE_CODE, WGMMA_ARCH)}
    least = FP8_ARCH if (PTX, FP8_ARCH) in got else PTX_ARCH
    required = {(MACHINE_CODE, arch) for arch in archs if arch >= least} | {(PTX, least)}
    required |= {(PTX, EARLY_ARCH) for arch in archs if arch >= EARLY_ARCH}
    if got == of_one and is_of_wgmma(entries):
        required = of_one
    for kind, arch in sorted(required - got):
        yield f"a source file has no {'PTX' if kind == PTX else 'machine code'} for sm_{arch}"
    for kind, arch, elf in entries:
        for name, code, registers in code_sections(elf) if kind == MACHINE_CODE else ():
            if arch > LAST_KNOWN:
                continue
            packed = PACKED.search(name)
            for text in packed_over_budget(packed.groups(), arch, code, percent) if packed else ():
                yield f"sm_{arch}: {name} {text}"
            wgmma = WGMMA_ATTENTION.search(name)
            for text in wgmma_over_budget(wgmma.groups(), arch, code, registers, percent) if wgmma else ():
                yield f"sm_{arch}: {name} {text}"
            match = ATTENTION.search(name)
            if not match:
                continue
            for operation, bits in NEEDED.items():
                if count_operation(code, bits) == 0:
                    yield f"sm_{arch}: {name} has no {operation}"
            for text in over_budget(match.groups(), arch, code, registers, percent):
                yield f"sm_{arch}: {name} {text}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--percent", type=float, default=100)
    parser.add_argument("module", type=Path)
    parser.add_argument("archs", nargs="+", metavar="ARCH")
    options = parser.parse_args()
    image = options.module.read_bytes()
    archs = [int(re.match(r"\d+", word)[0]) for word in options.archs]
    binaries = [entries for entries in fat_binaries(image) if entries]
    wrong = [text for entries in binaries for text in complaints(entries, archs, options.percent)]
    for arch in archs:
        names = [name for entries in binaries for kind, of, elf in entries
                 if kind == MACHINE_CODE and of == arch for name, _, _ in code_sections(elf)]
        found = {match.groups() for match in map(ATTENTION.search, names) if match}
        wrong += [f"sm_{arch}: no attention kernel of {kernel}" for kernel in ATTENTION_KERNELS - found]
        by_wgmma = {match.groups() for match in map(WGMMA_ATTENTION.search, names) if match}
        wrong += [f"sm_{arch}: no wgmma kernel of {kernel}"
                  for kernel in (WGMMA_KERNELS if arch == WGMMA_ARCH else set()) ^ by_wgmma]
        if (arch >= FP8_ARCH) != any("kernelILin2E" in name for name in names):
            wrong.append(f"sm_{arch}: the products of E4M3 by E4M3 are for sm_{FP8_ARCH} and later")
        print(f"sm_{arch}: {len(names)} kernels from {len(binaries)} source files")
    print("\n".join(wrong))
    sys.exit(1 if wrong or not binaries else 0)


if __name__ == "__main__":
    main()
