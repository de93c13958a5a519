"""Pretty printers for gdb: (gdb) source scripts/tree/gdb_printers.py

    struct sequence         choice, state, tokens, computed, in flight, block table
    struct sequence_group   request's id, state, sequences
    struct block_table      block ids, pool, keys
    struct text, struct byte_buffer, struct api_error    their text
    `quire-groups CORE`     all live groups of a struct engine_core *"""

import gdb
import gdb.printing

MAX_BLOCKS = 16
MAX_TEXT = 200


def enum_word(value, prefix):
    return str(value).removeprefix(prefix).lower()


def text_of(data, length):
    if int(length) == 0 or int(data) == 0:
        return '""'
    shown = data.string("utf-8", "replace", min(int(length), MAX_TEXT))
    return f'"{shown}"' + (f"... ({int(length)} bytes)" if int(length) > MAX_TEXT else "")


class Text:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        return text_of(self.value["data"], self.value["length"])


class ApiError:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        return f"{int(self.value['status'])} {self.value['param'].string()}: {self.value['message'].string()}"


class BlockTable:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        table = self.value
        count, pool = int(table["num_blocks"]), "host" if table["on_host"] else "device"
        ids = [str(int(table["blocks"][i])) for i in range(min(count, MAX_BLOCKS))]
        more = f", ... {count - MAX_BLOCKS} more" if count > MAX_BLOCKS else ""
        return f"{count} {pool} blocks [{', '.join(ids)}{more}], {int(table['num_keyed'])} keyed, last step {int(table['last_step'])}"


class Sequence:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        s, flight = self.value, self.value["in_flight"]
        state = enum_word(s["status"], "SEQUENCE_")
        return (f"choice {int(s['choice'])} {state}: {int(s['num_tokens'])} of {int(s['max_tokens'])} tokens, "
                f"{int(s['num_computed'])} computed, {int(flight['num_tokens'])} in flight, {BlockTable(s['table']).to_string()}")


class SequenceGroup:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        group = self.value
        request = group["request"]
        request_id = text_of_id(request) if int(request) != 0 else "none"
        return (f"request {request_id} {enum_word(group['status'], 'GROUP_')}: {int(group['num_unfinished'])} of "
                f"{int(group['num_sequences'])} sequences go on" + (", stalled" if group["stalled"] else ""))

    def children(self):
        for i in range(int(self.value["num_sequences"])):
            yield f"[{i}]", Sequence(self.value["sequences"][i]).to_string()


def text_of_id(request):
    """The request's number where it has one, else its address."""
    names = {field.name for field in request.dereference().type.fields()}
    return str(int(request["id"])) if "id" in names else hex(int(request))


def printers():
    collection = gdb.printing.RegexpCollectionPrettyPrinter("quire")
    for name, printer in (("text", Text), ("byte_buffer", Text), ("api_error", ApiError), ("block_table", BlockTable),
                          ("sequence", Sequence), ("sequence_group", SequenceGroup)):
        collection.add_printer(name, f"^{name}$", printer)
    return collection


class Groups(gdb.Command):
    """quire-groups CORE: the live groups of a struct engine_core *, in the order of their arrival."""

    def __init__(self):
        super().__init__("quire-groups", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        group = gdb.parse_and_eval(argument)["first_group"]
        while int(group) != 0:
            print(SequenceGroup(group.dereference()).to_string())
            for _, line in SequenceGroup(group.dereference()).children():
                print("    " + line)
            group = group["next"]


gdb.printing.register_pretty_printer(gdb.current_objfile(), printers(), replace=True)
Groups()
