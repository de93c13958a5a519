#!/usr/bin/env python3
"""Checks what is in libquire-cuda.so without a GPU: every kernel is there as machine code for each
architecture and as PTX, for other GPUs, and attention works on tensor cores.

Usage: check_cuda_module.py MODULE ARCH...        for instance: libquire-cuda.so 80 90 120

The layout of fat binaries is not documented: read off the output of nvcc 13.0, like the operation codes, which
are the last 12 bits of the first 16 of an instruction of 16 bytes, on sm_80 to sm_120. What was compressed for
size is a zstd frame (RFC 8878).
"""

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
NEEDED = {"HMMA": 0x23C, "LDSM": 0x83B, "LDGSTS": 0xFAE}  # mma, ldmatrix, cp.async
ATTENTION = re.compile(r"attention_kernelI(6__half|13__nv_bfloat16)L7kv_type(\d)ELi(\d+)E")
KV_TYPES = {"6__half": "134", "13__nv_bfloat16": "234"}  # kv_layout.h: its own, int8, e4m3
ATTENTION_KERNELS = {(dtype, kv, dim) for dtype, types in KV_TYPES.items() for kv in types
                     for dim in ("64", "96", "128", "256")}


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


def code_sections(elf):
    """Name -> bytes of the sections with instructions, one for each kernel."""
    table, = struct.unpack_from("<Q", elf, 40)
    entry, count, names = struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQ", elf, table + i * entry) for i in range(count)]
    for name, _, _, _, offset, size in sections:
        start = sections[names][4] + name
        text = elf[start:elf.index(b"\0", start)].decode()
        if text.startswith(".text."):
            yield text, elf[offset:offset + size]


def count_operation(code, operation):
    return sum(struct.unpack_from("<H", code, at)[0] & 0xFFF == operation
               for at in range(0, len(code), 16))


def complaints(entries, archs):
    """Yields what is wrong with the kernels of one source file."""
    got = {(kind, arch) for kind, arch, _ in entries}
    required = {(MACHINE_CODE, arch) for arch in archs} | {(PTX, PTX_ARCH)}
    for kind, arch in sorted(required - got):
        yield f"a source file has no {'PTX' if kind == PTX else 'machine code'} for sm_{arch}"
    for kind, arch, elf in entries:
        for name, code in code_sections(elf) if kind == MACHINE_CODE else ():
            for operation, bits in NEEDED.items() if ATTENTION.search(name) and arch <= LAST_KNOWN else ():
                if count_operation(code, bits) == 0:
                    yield f"sm_{arch}: {name} has no {operation}"


def main():
    image = Path(sys.argv[1]).read_bytes()
    archs = [int(re.match(r"\d+", word)[0]) for word in sys.argv[2:]]
    binaries = [entries for entries in fat_binaries(image) if entries]
    wrong = [text for entries in binaries for text in complaints(entries, archs)]
    for arch in archs:
        names = [name for entries in binaries for kind, of, elf in entries
                 if kind == MACHINE_CODE and of == arch for name, _ in code_sections(elf)]
        found = {match.groups() for match in map(ATTENTION.search, names) if match}
        wrong += [f"sm_{arch}: no attention kernel of {kernel}" for kernel in ATTENTION_KERNELS - found]
        print(f"sm_{arch}: {len(names)} kernels from {len(binaries)} source files")
    print("\n".join(wrong))
    sys.exit(1 if wrong or not binaries else 0)


if __name__ == "__main__":
    main()
