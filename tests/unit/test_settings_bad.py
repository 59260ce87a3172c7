"""Wrong configurations and exactly what is said about them; the cases are in `test_settings_bad*.txt`.

`test_settings_bad.txt` has files, connections and republish rules, `_shape` the keys and values of all other kinds,
the others what their names say. A case is `=== id`, the file's text, `>>>`, and the lines expected, one per problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nats_bridge.errors import ConfigError
from nats_bridge.settings import load

_FILES = sorted(Path(__file__).parent.glob("test_settings_bad*.txt"))


def _cases(file: Path) -> Iterator[tuple[str, str, list[str]]]:
    for block in file.read_text(encoding="utf-8").removeprefix("=== ").split("\n=== "):
        name, _, rest = block.partition("\n")
        text, _, expected = rest.rpartition(">>>\n")
        yield name, text, expected.splitlines()


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_every_problem_names_place_value_and_remedy(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = []
    for name, text, expected in _cases(file):
        Path("bridge.yaml").write_text(text, encoding="utf-8")
        try:
            load("bridge.yaml", {})
        except ConfigError as error:
            if (list(error.problems), str(error), error.exit_code) != (expected, "\n".join(expected), 2):
                wrong.append(f"=== {name}: ended with {error.exit_code} and\n{error}\n>>>\n" + "\n".join(expected))
        else:
            wrong.append(f"=== {name}: accepted\n>>>\n" + "\n".join(expected))
    assert not wrong, f"{file.name}\n" + "\n".join(wrong)


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_no_two_cases_have_the_same_name(file: Path) -> None:
    names = [name for name, _, _ in _cases(file)]
    assert sorted(names) == sorted(set(names))


def test_there_are_cases_for_every_kind_of_mistake() -> None:
    assert sum(1 for file in _FILES for _ in _cases(file)) >= 200


def test_no_message_shows_an_inline_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    secrets = [text for file in _FILES for _, text, _ in _cases(file) if "hunter2" in text]
    assert len(secrets) >= 3
    for text in secrets:
        Path("bridge.yaml").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load("bridge.yaml", {})
        assert "hunter2" not in str(caught.value) + repr(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file; name the configuration with -c FILE"):
        load(tmp_path / "none.yaml", {})


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder; name the configuration file in it"):
        load(tmp_path, {})


def test_bytes_that_are_not_utf8_have_a_place(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_bytes(b"name: a\nlog: {level: \xff}\n")
    with pytest.raises(ConfigError, match=r"bridge\.yaml:2:14: not UTF-8; save the file in that encoding"):
        load(file, {})


def test_aliases_that_multiply_are_stopped(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigError, match="more than 100000 values; aliases multiply them"):
        load(file, {})
