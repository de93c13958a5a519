#!/usr/bin/env python3
"""The checks of this folder fail where they must: each gets a small tree that breaks its rule."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run(check, files, *arguments):
    """Runs a check over a tree of {path: text}; returns its exit status and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_text(text)
        result = subprocess.run([sys.executable, HERE / check, folder, *arguments], capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr


def module(name, *calls):
    """NAME.c and NAME.h in models/, whose function calls those of other modules."""
    includes = "".join(f'#include "models/{other}.h"\n' for other in calls)
    body = "".join(f"    {other}_do();\n" for other in calls)
    return {f"models/{name}.h": f"void {name}_do(void);\n",
            f"models/{name}.c": f'#include "models/{name}.h"\n{includes}\nvoid {name}_do(void) {{\n{body}}}\n'}


class Conflicts(unittest.TestCase):
    def test_a_marker_is_found_anywhere(self):
        begin, end = "<" * 7 + " HEAD\n", ">" * 7 + " branch\n"
        for path in ("README.md", "docs/a.md", "server/a.c", ".ci/run"):
            status, out = run("check_conflicts.py", {path: f"a\n{begin}b\n=======\nc\n{end}"})
            self.assertEqual(status, 1)
            self.assertIn(f"{path}:2: ", out)
            self.assertIn(f"{path}:6: ", out)

    def test_other_texts_are_right(self):
        status, out = run("check_conflicts.py", {"docs/a.md": "=======\n<<<<<<<<\na << b\n"})
        self.assertEqual(status, 0, out)


class Readmes(unittest.TestCase):
    def check(self, page, **more):
        files = {"engine/README.md": page, "engine/kv/block_pool.c": "", "server/page.html": "", **more}
        return run("check_readmes.py", files)

    def test_what_is_there_is_right(self):
        page = ("# A `b`: c\n`engine/kv`, `kv/block_pool.c`, `block_*.c`, `block_NAME.c`, [a](kv/block_pool.c), [b](https://a.b), [c](#a-b-c)\n"
                "| file | job |\n|---|---|\n| `block_pool`, `kv/` | `any_word` |\n\n    block_pool    blocks\n    tokens -> a\n")
        status, out = self.check(page)
        self.assertEqual(status, 0, out)

    def test_what_is_not_there_is_wrong(self):
        table = "| file | job |\n|---|---|\n"
        for page, place in (("`block_tool.c`", 1), ("`engine/kw`", 1), ("`./kv/block.h`", 1), ("`block_x*.c`", 1),
                            ("[a](kw/block_pool.c)", 1), ("# a\n[a](README.md#b)", 2), (table + "| `block_tool` | job |", 3), (table + "| `page` | job |", 3), ("a\n\n    block_tool   blocks", 3),
                            ("a\n\n    a -> b    block_tool.c", 3)):
            status, out = self.check(page)
            self.assertEqual(status, 1, page)
            self.assertIn(f"engine/README.md:{place}: there is no ", out)
        status, out = run("check_readmes.py", {"docs/a.md": "`engine/kv/block_pool.h`", "engine/kv/block_pool.c": ""})
        self.assertEqual(status, 1)

    def test_a_promise_has_a_test(self):
        table = "| promise | test |\n|---|---|\n| **a** | |\n"
        files = {"tests/e2e/test_a.py": "def test_one():\n    pass\n", "tests/unit/test_a.c": "static void test_two(void **state) {\n"}
        for rows, wrong in (("| a | `e2e/test_a.py::test_one`, `unit/test_a.c::test_two` |", None),
                            ("| a | `e2e/test_a.py::test_two` |", "there is no e2e/test_a.py::test_two"),
                            ("| a | `e2e/test_b.py::test_one` |", "there is no e2e/test_b.py::test_one"),
                            ("| a | somewhere |", "a promise without a test")):
            status, out = run("check_readmes.py", {**files, "tests/PROMISES.md": table + rows})
            self.assertEqual(status, 0 if wrong is None else 1, rows)
            self.assertIn(f"tests/PROMISES.md:4: {wrong}" if wrong else "what they name exists", out)

    def test_a_readme_has_80_lines(self):
        self.assertEqual(self.check("a\n" * 80)[0], 0)
        status, out = self.check("a\n" * 81)
        self.assertEqual(status, 1)
        self.assertIn("engine/README.md:81: more than 80 lines", out)
        self.assertEqual(run("check_readmes.py", {"README.md": "a\n" * 81, "docs/a.md": "a\n" * 81})[0], 0)


class Words(unittest.TestCase):
    def check(self, text):
        return run("check_words.py", {"engine/a.c": f"int x;\n{text}\n"})

    def test_plain_words_are_right(self):
        for text in ("/* There is no limit, and it is no longer\n * waited for behind a proxy. */", "/* so many rows that it waits */",
                     'const char text[] = "behind the prompt";', "int beside;", "/* \"behind\" */"):
            status, out = self.check(text)
            self.assertEqual(status, 0, out)

    def test_turns_of_phrase_are_wrong(self):
        for text, line in (("/* What stands behind the prompt. */", 2), ("/* a\n * b\n * so\n * many tokens */", 4), ("// It is no URL.", 2),
                           ("/* It goes on. */", 2), ("/* As vLLM; as vLLM has it. */", 2), ("/* beside it */", 2), ("/* for ever */", 2)):
            status, out = self.check(text)
            self.assertEqual(status, 1, text)
            self.assertIn(f"engine/a.c:{line}: say ", out)


    def test_pages_are_read_too(self):
        for page, text, wrong in (("docs/a.md", "It waits, also if the caller disconnects.", False), ("docs/a.md", "Whoever asks may hang up.", True),
                                  ("README.md", "a\nWhat becomes of a request.", True), ("docs/migrating.md", "beside it", False)):
            status, out = run("check_words.py", {"engine/a.c": "int x;\n", page: text + "\n"})
            self.assertEqual(status, 1 if wrong else 0, out)
            self.assertEqual(f"{page}:" in out, wrong)


class Layers(unittest.TestCase):
    def test_downwards_is_right(self):
        status, out = run("check_layers.py", {"models/a.c": '#include "kernels/b.h"\n', "kernels/b.h": ""})
        self.assertEqual(status, 0, out)

    def test_upwards_is_wrong(self):
        status, out = run("check_layers.py", {"models/a.c": '#include "engine/b.h"\n', "engine/b.h": ""})
        self.assertEqual(status, 1)
        self.assertIn("models/a.c:1", out)

    def test_folders_have_an_order(self):
        def include(path, target):
            return run("check_layers.py", {path: f'#include "{target}"\n', target: ""})

        for path, target in (("engine/core/a.c", "engine/kv/b.h"), ("engine/kv/a.c", "engine/kv/b.h"),
                             ("engine/a.c", "engine/core/b.h"), ("kernels/cpu/a.c", "kernels/b.h"),
                             ("kernels/cpu/ops/a.c", "kernels/cpu/b.h"), ("kernels/cpu/a.c", "kernels/cpu/levels/b.h"),
                             ("engine/grammar/read/a.c", "engine/grammar/build/b.h"), ("server/http/a.c", "server/api/call/b.h")):
            status, out = include(path, target)
            self.assertEqual(status, 0, out)
        for path, target in (("engine/kv/a.c", "engine/core/b.h"), ("engine/kv/a.c", "engine/b.h"), ("kernels/a.c", "kernels/cpu/b.h"),
                             ("engine/grammar/build/a.c", "engine/grammar/read/b.h"), ("server/a.c", "server/http/b.h"),
                             ("kernels/cpu/a.c", "kernels/cpu/ops/b.h"), ("kernels/cpu/levels/a.c", "kernels/cpu/b.h"),
                             ("kernels/cuda/step/a.c", "kernels/cuda/ops/b.h"),
                             ("server/api/call/a.c", "server/http/b.h"), ("engine/new/a.c", "engine/kv/b.h")):
            status, out = include(path, target)
            self.assertEqual(status, 1)
            self.assertIn(f"{path}:1", out)

    def test_a_unit_test_lies_where_its_source_does(self):
        files = {"models/files/a.c": "", "tests/unit/models/files/test_a.c": ""}
        self.assertEqual(run("check_layers.py", files)[0], 0)
        status, out = run("check_layers.py", {**files, "tests/unit/models/old/test_a.c": ""})
        self.assertEqual(status, 1)
        self.assertIn("tests/unit/models/old/test_a.c:1: there is no folder models/old", out)

    def test_an_include_guard_is_its_path(self):
        self.assertEqual(run("check_layers.py", {"models/a.h": "#ifndef QUIRE_MODELS_A_H\n"})[0], 0)
        status, out = run("check_layers.py", {"models/a.h": "#ifndef QUIRE_ENGINE_A_H\n"})
        self.assertEqual(status, 1)
        self.assertIn("models/a.h:1: its guard is to be QUIRE_MODELS_A_H", out)

    def test_a_library_stays_with_those_that_wrap_it(self):
        status, out = run("check_layers.py", {"config/options.c": "#include <yaml.h>\n"})
        self.assertEqual(status, 0, out)
        status, out = run("check_layers.py", {"models/a.c": "\n#include <yaml.h>\n"})
        self.assertEqual(status, 1)
        self.assertIn("models/a.c:2: #include yaml.h: belongs only in", out)

    def test_the_server_sees_little_of_the_rooms_below_the_engine(self):
        seen = {"server/api/a.c": '#include "models/tokenizer/tokenizer.h"\n#include "engine/engine.h"\n',
                "server/program/main.c": '#include "models/weights/weights.h"\n'}
        status, out = run("check_layers.py", seen)
        self.assertEqual(status, 0, out)
        for hidden in ("models/weights/weights.h", "kernels/backend.h", "engine/kv/block_manager.h"):
            status, out = run("check_layers.py", {"server/api/a.c": f'#include "{hidden}"\n'})
            self.assertEqual(status, 1)
            self.assertIn(f"server/api/a.c:1: #include {hidden}: server/ sees of", out)

    def test_a_client_knows_no_engine(self):
        status, out = run("check_layers.py", {"server/client/a.c": '#include "engine/request/request.h"\n'})
        self.assertEqual(status, 1)
        self.assertIn("a client knows nothing of the engine", out)


class Circles(unittest.TestCase):
    def test_a_chain_is_right(self):
        status, out = run("check_circles.py", {**module("a", "b"), **module("b", "c"), **module("c")})
        self.assertEqual(status, 0, out)

    def test_a_circle_is_wrong(self):
        status, out = run("check_circles.py", {**module("a", "b"), **module("b", "c"), **module("c", "a")})
        self.assertEqual(status, 1)
        self.assertIn("models/c.c -> models/a.c (a_do)", out)

    def test_comments_and_strings_call_nothing(self):
        quiet = {**module("a", "b"), **module("b")}
        quiet["models/b.c"] += '/* as a_do */ static const char text[] = "a_do";\n'
        status, out = run("check_circles.py", quiet)
        self.assertEqual(status, 0, out)

    def test_a_body_counts_as_the_text_of_its_file(self):
        files = {**module("a", "b"), **module("b")}
        files["models/b.c"] += '#include "models/b_template.h"\n'
        files["models/b_template.h"] = "static void again(void) {\n    a_do();\n}\n"
        self.assertEqual(run("check_circles.py", files)[0], 1)


class Headers(unittest.TestCase):
    def test_a_header_beside_its_source_is_right(self):
        status, out = run("check_headers.py", module("a"), "models")
        self.assertEqual(status, 0, out)

    def test_a_header_of_types_needs_no_source(self):
        inline = "struct a {\n    int b;\n};\nstatic inline int a_b(struct a a) {\n    return a.b;\n}\n"
        status, out = run("check_headers.py", {"models/a.h": inline}, "models")
        self.assertEqual(status, 0, out)

    def test_a_header_without_its_source_is_wrong(self):
        files = module("a")
        files["models/a_more.c"] = files.pop("models/a.c")
        status, out = run("check_headers.py", files, "models")
        self.assertEqual(status, 1)
        self.assertIn("models/a.h: declares a_do", out)

    def test_a_private_header_without_its_module_is_wrong(self):
        private = {"models/a_private.h": "void a_more_do(void);\n"}
        status, out = run("check_headers.py", {**module("a"), **private}, "models")
        self.assertEqual(status, 0, out)
        status, out = run("check_headers.py", {**module("b"), **private}, "models")
        self.assertEqual(status, 1)
        self.assertIn("models/a_private.h: there is no models/a.c", out)

    @unittest.skipUnless(shutil.which("cc"), "no compiler")
    def test_a_header_that_leans_on_another_is_wrong(self):
        size = "static inline size_t a_size(void) {\n    return 1;\n}\n"
        whole = "#ifndef A_H\n#define A_H\n#include <stddef.h>\n" + size + "#endif\n"
        status, out = run("check_headers.py", {"models/a.h": whole}, "models", "cc")
        self.assertEqual(status, 0, out)
        status, out = run("check_headers.py", {"models/a.h": whole.replace("#include <stddef.h>\n", "")}, "models", "cc")
        self.assertEqual(status, 1)
        self.assertIn("size_t", out)


if __name__ == "__main__":
    unittest.main()
