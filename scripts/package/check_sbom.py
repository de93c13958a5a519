#!/usr/bin/env python3
"""Whether bills of materials are CycloneDX 1.5, by its own schema and strictly. Usage: check_sbom.py FILE..., in an environment with
what sbom_check.txt lists."""

import json
import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def main():
    validator = JsonStrictValidator(SchemaVersion.V1_5)
    assert validator.validate_str('{"bomFormat": "CycloneDX", "specVersion": "1.5", "parts": []}'), "the check cannot fail"
    for file in sys.argv[1:]:
        text = Path(file).read_text()
        error = validator.validate_str(text)
        assert error is None, f"{file}: {error}"
        parts = json.loads(text)["components"]
        assert all(part["version"] and part["licenses"] and part["hashes"] for part in parts)
        print(f"{file}: {len(parts)} parts")


if __name__ == "__main__":
    main()
