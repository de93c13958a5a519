#!/usr/bin/env python3
"""Checks what the grammars of JSON schemas admit against the jsonschema package.

    check_schemas.py SCHEMA_TEXTS FILE-OR-FOLDER... [--samples N] [--table] [--verbose]

A file holds groups as in the JSON Schema Test Suite: [{"description", "schema", "tests": [{"data",
"valid"}]}], or is one schema. Instances may also be in lists, "valid" and "invalid". A group may have "refused", a part of the message that it must be
refused with, and "narrow", why valid instances may be: "tests" are then only looked at where they
are invalid. For every schema that compiles, random texts of its grammar must be valid, no invalid
instance may be accepted, and every valid one must be.

An instance is tried with its members in the order of the schema's properties, and generated ones must
have it. What Quire narrows on
purpose (json_schema.h) is told apart by trying the schema again with that said in its words:
objects that name properties have no others, arrays with prefixItems have no further items, and
keywords imply a type.
"""

import argparse
import collections
import copy
import itertools
import json
import pathlib
import re
import subprocess
import sys
from decimal import Decimal

try:
    import jsonschema
    from jsonschema import validators
except ImportError:
    print("the package jsonschema is not there")
    sys.exit(77)

DRAFTS = {
    "draft3": "http://json-schema.org/draft-03/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
ALL_TYPES = ["null", "boolean", "number", "string", "array", "object"]
SUBSCHEMAS = {"items", "additionalItems", "additionalProperties", "contains", "not", "if", "then", "else",
              "propertyNames", "unevaluatedItems", "unevaluatedProperties"}
LISTS = {"allOf", "anyOf", "oneOf", "prefixItems", "items"}
MAPS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}


# --- The reference ---


def ecma_regex(pattern):
    """Python's notation for what ECMA-262 means: ASCII digits and letters, and $ only at the end."""
    spaces = "\\t-\\r \\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
    out, in_class, at = "", False, 0
    while at < len(pattern):
        c = pattern[at]
        if c == "\\" and at + 1 < len(pattern):
            pair = pattern[at:at + 2]
            if pair == "\\s":
                out += spaces if in_class else "[" + spaces + "]"
            elif pair == "\\S" and not in_class:
                out += "[^" + spaces + "]"
            else:
                out += pair
            at += 2
            continue
        if c == "[" and not in_class:
            in_class = True
        elif c == "]":
            in_class = False
        if c == "$" and not in_class:
            c = "\\Z"
        elif c == "." and not in_class:
            c = "[^\\n\\r\\u2028\\u2029]"
        out += c
        at += 1
    return re.compile(out, re.ASCII)


def pattern_keyword(validator, pattern, instance, schema):
    if isinstance(instance, str) and not ecma_regex(pattern).search(instance):
        yield jsonschema.ValidationError("does not match the pattern")


def pattern_properties(validator, properties, instance, schema):
    if isinstance(instance, dict):
        for pattern, subschema in properties.items():
            for name, value in instance.items():
                if ecma_regex(pattern).search(name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def additional_properties(validator, additional, instance, schema):
    if not isinstance(instance, dict):
        return
    for name, value in instance.items():
        named = name in schema.get("properties", {})
        if not named and not any(ecma_regex(p).search(name) for p in schema.get("patternProperties", {})):
            yield from validator.descend(value, additional, path=name)


def multiple_of(validator, divisor, instance, schema):
    if isinstance(instance, (int, float)) and not isinstance(instance, bool):
        try:
            if Decimal(str(instance)) % Decimal(str(divisor)) != 0:
                yield jsonschema.ValidationError("is no multiple")
        except ArithmeticError:
            pass


def reference(schema):
    cls = validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    own = {"pattern": pattern_keyword, "patternProperties": pattern_properties, "multipleOf": multiple_of,
           "additionalProperties": additional_properties}
    cls = validators.extend(cls, {k: v for k, v in own.items() if k in cls.VALIDATORS})
    return cls(schema, format_checker=cls.FORMAT_CHECKER)


# --- Texts of instances ---


def target_of(root, ref):
    for part in ref.split("/")[1:] if isinstance(ref, str) and ref.startswith("#/") else []:
        part = part.replace("~1", "/").replace("~0", "~")
        root = root.get(part) if isinstance(root, dict) else None
    return root


def names_in(schema, root, seen=()):
    """The lists of names in properties and in required, as the schema comes to them: $ref where it stands."""
    if isinstance(schema, list):
        for value in schema:
            yield from names_in(value, root, seen)
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key in ("properties", "required") and isinstance(value, (dict, list)):
            yield key, list(map(str, value))
        if key == "$ref" and value not in seen:
            yield from names_in(target_of(root, value), root, (*seen, value))
        elif key not in ("$defs", "definitions"):
            yield from names_in(value, root, seen)


def property_order(schema, order):
    """Where the names of all properties stand; those that are only required come last."""
    found = list(names_in(schema, schema))
    for kind in ("properties", "required"):
        for name in itertools.chain.from_iterable(names for key, names in found if key == kind):
            order.setdefault(name, len(order))
    return order


def plain(value):
    """The value as it is written: 1.0 as 1."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e20:
        return int(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def has_large_number(value):
    if isinstance(value, (list, dict)):
        return any(map(has_large_number, value.values() if isinstance(value, dict) else value))
    return isinstance(value, (int, float)) and abs(value) >= 1e20


def reorder(value, order):
    if isinstance(value, list):
        return [reorder(item, order) for item in value]
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: order.get(name, len(order)))
        return {name: reorder(value[name], order) for name in names}
    return value


def write(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def text_of(value, order, valid=True):
    """Writes it in order; what is not valid as it is, as another order may be."""
    return write(reorder(plain(value), order) if valid else value)


def distinct(pairs):
    """An object, none of whose names comes twice."""
    found = {}
    for name, value in pairs:
        if name in found:
            raise KeyError(name)
        found[name] = value
    return found


def misplaced(value, schema):
    """The members of an object that do not come in the order of the schema's properties."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return []
    names = [name for name in value if name in properties]
    if names != [name for name in properties if name in value]:
        return names
    return next(filter(None, (misplaced(value[name], properties[name]) for name in names)), [])


# --- Quire ---


class Texts:
    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **case):
        self.process.stdin.write(json.dumps(case).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"schema_texts ended: {case}")
        return json.loads(line)


def widen(schema):
    """The schema with all said that Quire takes to be meant."""
    if isinstance(schema, list):
        return [widen(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key in MAPS and isinstance(value, dict):
            out[key] = {name: widen(item) for name, item in value.items()}
        elif key in SUBSCHEMAS or key in LISTS:
            out[key] = widen(value)
        else:
            out[key] = value
    if not {"type", "enum", "const", "$ref"} & set(out):
        out["type"] = ALL_TYPES
    if {"properties", "patternProperties"} & set(out):
        if not {"additionalProperties", "unevaluatedProperties"} & set(out):
            out["additionalProperties"] = True
    if "prefixItems" in out and not {"items", "unevaluatedItems"} & set(out):
        out["items"] = True
    if isinstance(out.get("items"), list):
        out.setdefault("additionalItems", True)
    return out


# --- Corpora ---


def groups_of(path):
    draft = next((DRAFTS[part] for part in path.parts if part in DRAFTS), None)
    try:
        content = json.loads(path.read_text())
    except (ValueError, UnicodeDecodeError):
        return
    if isinstance(content, dict):
        yield {"description": path.name, "schema": content, "tests": []}
        return
    for group in content if isinstance(content, list) else []:
        if not isinstance(group, dict) or "schema" not in group:
            continue
        schema = group["schema"]
        for valid in (True, False):
            more = group.pop("valid" if valid else "invalid", [])
            group.setdefault("tests", []).extend({"data": data, "valid": valid} for data in more)
        if draft and isinstance(schema, dict) and "$schema" not in schema:
            group["schema"] = {"$schema": draft, **schema}
        yield group


def files_of(names):
    for name in names:
        path = pathlib.Path(name)
        yield from sorted(path.rglob("*.json")) if path.is_dir() else [path]


# --- The check ---


class Check:
    def __init__(self, options):
        self.options = options
        self.texts = Texts(options.binary)
        self.counts = collections.Counter()
        self.refusals = collections.Counter()
        self.times = []
        self.failures = []

    def fail(self, group, what):
        if self.failures and self.failures[-1].startswith(group["place"]):
            return
        self.failures.append(f"{group['place']}: {what}\n    {write(group['schema'])[:600]}")

    def validator(self, group):
        try:
            validator = reference(group["schema"])
            validator.check_schema(group["schema"])
            return validator
        except Exception:
            return None

    def is_valid(self, validator, value):
        try:
            return validator.is_valid(value)
        except Exception:
            return None

    def check_samples(self, group, validator, samples):
        for sample in samples:
            self.counts["generated"] += 1
            if sample is None:
                self.counts["generated, without an end"] += 1
                self.fail(group, "generated a text without an end")
                continue
            try:
                value = json.loads(sample, object_pairs_hook=distinct)
            except KeyError as name:
                self.fail(group, f"generated {name} twice: {sample[:200]}")
                continue
            except ValueError:
                self.fail(group, f"generated what is no JSON: {sample[:200]}")
                continue
            valid = self.is_valid(validator, value)
            self.counts[{True: "generated, valid", False: "generated, invalid", None: "generated, not judged"}[
                valid]] += 1
            if misplaced(value, group["schema"]):
                self.fail(group, f"generated members out of order: {sample[:200]}")
            if valid is False:
                error = next(validator.iter_errors(value)).message
                self.fail(group, f"generated {sample[:200]}: {error[:200]}")

    def check_valid(self, group, test, accepted, order):
        self.counts["valid"] += 1
        if accepted:
            self.counts["valid, accepted"] += 1
            return
        answer = self.texts.ask(schema=widen(group["schema"]), texts=[text_of(test["data"], order)])
        if any(answer.get("accepted", [])):
            self.counts["valid, accepted by the schema that says what is meant"] += 1
        elif has_large_number(test["data"]):
            self.counts["valid, with numbers of more than 20 digits"] += 1
        elif "narrow" in group:
            self.counts["valid, refused as documented"] += 1
        else:
            self.counts["valid, refused"] += 1
            self.fail(group, f"refuses the valid {write(test['data'])[:200]}")

    def check_test(self, group, test, validator, accepted, order):
        valid = test["valid"]
        if validator is not None and self.is_valid(validator, test["data"]) != valid:
            self.counts["judged otherwise by jsonschema with formats"] += 1
            return
        if valid:
            self.check_valid(group, test, accepted, order)
            return
        self.counts["invalid"] += 1
        self.counts["invalid, refused"] += not accepted
        if accepted:
            self.fail(group, f"accepts the invalid {write(test['data'])[:200]}")

    def refuse(self, group, answer):
        self.counts["refused"] += 1
        message = answer["error"].split(": ", 1)[-1]
        self.refusals[re.sub(r"\d+", "N", message)[:70]] += 1
        if answer["status"] != 400:
            self.fail(group, f"status {answer['status']}")
        if "refused" not in group and not self.options.table:
            self.fail(group, f"is refused: {answer['error']}")
        elif "refused" in group and group["refused"] not in answer["error"]:
            self.fail(group, f"is refused otherwise: {answer['error']}")

    def check(self, group):
        if "\\u0000" in json.dumps(group):
            self.counts["not tried: the server takes no NUL"] += 1
            return
        validator = self.validator(group)
        if validator is None:
            self.counts["not judged: jsonschema cannot"] += 1
            return
        self.counts["schemas"] += 1
        order = property_order(group["schema"], {})
        tests = group.get("tests", [])
        texts = [text_of(test["data"], order, test["valid"]) for test in tests]
        answer = self.texts.ask(schema=group["schema"], texts=texts, samples=self.options.samples,
                                seed=self.counts["schemas"], strict=group.get("strict", False))
        self.times.append(answer["microseconds"])
        if "error" in answer:
            self.refuse(group, answer)
            return
        if "refused" in group:
            self.fail(group, "is not refused")
        self.counts["compiled"] += 1
        self.check_samples(group, validator, answer["samples"])
        for test, accepted in zip(tests, answer["accepted"]):
            self.check_test(group, test, validator, accepted, order)

    def run(self):
        for path in files_of(self.options.files):
            for group in groups_of(path):
                group["place"] = f"{path.parent.name}/{path.name}: {group.get('description', '')}"
                self.check(copy.deepcopy(group))

    def report(self):
        for name, count in sorted(self.counts.items()):
            print(f"{count:7d} {name}")
        times = sorted(self.times)
        if times:
            print(f"compiling: median {times[len(times) // 2]} us, 99th percentile "
                  f"{times[len(times) * 99 // 100]} us, most {times[-1]} us")
        if self.options.table:
            for message, count in self.refusals.most_common():
                print(f"{count:7d} {message}")
        shown = self.failures if self.options.verbose else self.failures[:20]
        print(*shown, sep="\n")
        return bool(self.failures) or not self.counts["compiled"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--samples", type=int, default=20, help="texts to generate for each schema")
    parser.add_argument("--table", action="store_true", help="refused schemas are no fault: say what for")
    parser.add_argument("--verbose", action="store_true", help="say all that went wrong")
    check = Check(parser.parse_args())
    check.run()
    return check.report()


if __name__ == "__main__":
    sys.exit(main())
