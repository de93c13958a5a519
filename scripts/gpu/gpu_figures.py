"""How figures are judged and shown: shares of what the GPU can do, measured in the same run, and tables.

A call's floor is the longer of two times: its bytes over the bandwidth, its operations over the rate of the
large matrix product. Its share is the floor over the measured time.
"""

COPYING = {"norm", "act_mul", "soft_cap", "rope_store_kv", "copy_blocks"}  # as much written as read, about
OFF_GPU = {"swap_out", "swap_in"}  # bound by the way to the host, whose limit is not measured


def floor_us(line, limits):
    """None where no limit was measured, or none applies."""
    if limits is None or line["op"] in OFF_GPU:
        return None
    bandwidth = limits["copy_bytes_per_s" if line["op"] in COPYING else "read_bytes_per_s"]
    return 1e6 * max(line["bytes"] / bandwidth, line["flops"] / limits["bf16_flops_per_s"])


def share(line, limits):
    floor = floor_us(line, limits)
    return None if floor is None else floor / line["us"]


def percent(value):
    return "-" if value is None else f"{100 * value:.1f} %"


def table(heads, rows):
    """Lines of Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return lines + ["| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |" for row in rows] + [""]


def find(results, item, **wanted):
    """The line of a measured item with these values."""
    for line in results.data(item) or ():
        if all(line.get(key) == value for key, value in wanted.items()):
            return line
    return None


def measured(results, prefix):
    """(name, lines) of what has passed, of all items whose names begin so."""
    for name in list(results.items):
        if name.startswith(prefix) and results.data(name):
            yield name, results.data(name)
