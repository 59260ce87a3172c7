"""Walks are read as they are written, and outputs go back to where they stand."""

from dataclasses import replace

import pytest

from docs.walk import DOCS, WALKS, comparable, steps, with_outputs

PAGE = """# A page

<!-- the walk -->
<!-- terminal: server -->
```sh
serve
```

<!-- terminal server shows -->
```text
ready
```

<!-- terminal server shows: stored -->
```text
1 stored
```

```yaml
# a.yaml
a: 1
```

<!-- file: programs/watch.py -->

<!-- when: test -f a.yaml -->
```sh
cat a.yaml
```

```text
a: 1
```

<!-- terminal server: Ctrl-C -->
<!-- the end of the walk -->
```sh
not this
```
"""


def test_a_walk_is_read() -> None:
    found = [(step.kind, step.name, step.code, step.output, step.word) for step in steps(PAGE)]
    assert found == [
        ("terminal", "server", "serve\n", "", ""),
        ("shown", "server", "", "ready\n", ""),
        ("shown", "server", "", "1 stored\n", "stored"),
        ("file", "a.yaml", "# a.yaml\na: 1\n", "", ""),
        ("file", "watch.py", (DOCS / "programs/watch.py").read_text("utf-8"), "", ""),
        ("when", "", "test -f a.yaml", "", ""),
        ("sh", "", "cat a.yaml\n", "a: 1\n", ""),
        ("ctrl-c", "server", "", "", ""),
    ]


def test_an_output_of_no_command_is_refused() -> None:
    with pytest.raises(ValueError, match="that no command printed"):
        steps("<!-- the walk -->\n```text\nready\n```\n<!-- the end of the walk -->\n")


def test_outputs_go_back_to_where_they_stand() -> None:
    changed = [replace(step, output="b: 2\n") if step.kind == "sh" else step for step in steps(PAGE)]
    assert with_outputs(PAGE, changed) == PAGE.replace("```text\na: 1\n", "```text\nb: 2\n")


@pytest.mark.parametrize("name", WALKS)
def test_a_page_is_what_its_steps_make_of_it(name: str) -> None:
    page = (DOCS / name).read_text("utf-8")
    assert with_outputs(page, steps(page)) == page


def test_what_changes_from_run_to_run_is_left_out() -> None:
    one = "monitor  ready  910/s        0  0.8 ms / 4.2 ms\n2026-11-21T22:44:59.3Z [info] rule.stopped bytes_out=399\n"
    two = "monitor  ready    0/s  0                      -\n2026-11-22T01:00:00Z [info] rule.stopped bytes_out=1000\n"
    assert comparable(one) == comparable(two)
    assert comparable("a  1\n") != comparable("a  2\n")
