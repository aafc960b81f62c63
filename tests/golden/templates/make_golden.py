"""Renders every case by every template through Jinja2 and writes golden.json.

usage: make_golden.py TEMPLATE_FOLDER      (llama.cpp's models/templates; needs Jinja2 3.1)

Of each text its size and 64-bit FNV-1a hash are kept, of a template its hash, so that a failing test
can tell a changed template from a wrong rendering. "raises" stands where Jinja2 raises, "broken" where
it does not accept the template.
"""
import json
import pathlib
import sys

import reference
from cases import CASES


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def main(folder):
    env = reference.environment()
    golden = {}
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        source = path.read_bytes()
        entry = {"source": fnv1a(source)}
        try:
            template = env.from_string(source.decode())
        except Exception:
            template = None
        results = {}
        for name, chat in CASES.items():
            text = reference.render(template, chat) if template else None
            if text is None:
                results[name] = "raises" if template else "broken"
            else:
                data = text.encode()
                results[name] = f"{len(data)}:{fnv1a(data)}"
        entry["results"] = results
        golden[path.name] = entry
    out = pathlib.Path(__file__).with_name("golden.json")
    out.write_text(json.dumps(golden, indent=0) + "\n")
    flat = [r for e in golden.values() for r in e["results"].values()]
    print(len(golden), "templates,", len(flat), "results,", flat.count("raises"), "raise,",
          flat.count("broken"), "broken")


if __name__ == "__main__":
    main(sys.argv[1])
