"""What a JSON value must look like, written as a value of the same form: a dict has exactly these keys
("key?" may be missing), a list has items of its one shape (or none), a tuple is a choice of shapes, a type is that
type (float takes whole numbers too), a pattern matches the whole string, anything else is equal."""

import json
import re

import httpx

ANY_OBJECT = object()


def fits(value, shape):
    """None when it fits, else where it does not."""
    if shape is ANY_OBJECT:
        return None if isinstance(value, dict) else "no object"
    if isinstance(shape, dict):
        return fits_object(value, shape)
    if isinstance(shape, list):
        return fits_list(value, shape)
    if isinstance(shape, tuple):
        reasons = [fits(value, one) for one in shape]
        return None if None in reasons else " and ".join(reasons)
    if isinstance(shape, re.Pattern):
        good = isinstance(value, str) and shape.fullmatch(value)
    elif isinstance(shape, type):
        good = type(value) in ((int, float) if shape is float else (shape,))
    else:
        good = type(value) is type(shape) and value == shape
    return None if good else f" is {value!r}, not {shape!r}"


def fits_object(value, shape):
    if not isinstance(value, dict):
        return f" is {value!r}, no object"
    required = {key for key in shape if not key.endswith("?")}
    known = {key.rstrip("?"): one for key, one in shape.items()}
    if required - value.keys() or value.keys() - known.keys():
        return f" lacks {sorted(required - value.keys())} and has {sorted(value.keys() - known.keys())} too much"
    for key, one in value.items():
        if reason := fits(one, known[key]):
            return f".{key}{reason}"
    return None


def fits_list(value, shape):
    if not isinstance(value, list):
        return f" is {value!r}, no list"
    if value and not shape:
        return f" is {value!r}, not empty"
    for index, one in enumerate(value):
        if reason := fits(one, shape[0]):
            return f"[{index}]{reason}"
    return None


def check(value, shape):
    reason = fits(value, shape)
    assert reason is None, f"answer{reason}"
    return value


def read_events(server, path, body):
    """The JSON of every event of a stream, whose framing is checked: `data: {...}`, an empty line, and
    `data: [DONE]` at the end."""
    with httpx.stream("POST", server.url + path, json=body, timeout=300) as reply:
        raw = reply.read().decode()
        assert reply.status_code == 200, raw
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert reply.headers["cache-control"] == "no-cache"
    events = raw.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""], raw[-200:]
    lines = [event for event in events[:-2] if not event.startswith(":")]
    assert all(re.fullmatch(r"data: \{.*\}", line) for line in lines), raw
    return [json.loads(line[len("data: "):]) for line in lines]
