"""Configurations, and exactly what they become or what is said about them; `settings_cases` reads the cases.

`test_settings_good*.txt` expects `expression = value` of the settings; `options` in it are a connection's for nats-py.
`test_settings_bad*.txt` expects a line per problem: `test_settings_bad.txt` has files, connections and republish rules,
`_shape` the keys and values of all other kinds, the others what their names say.
"""

from pathlib import Path

import pytest
from pydantic import ValidationError

from nats_bridge.errors import ConfigError
from nats_bridge.settings import load, loads
from nats_bridge.settings.connect_options import connect_options
from tests.unit.settings_cases import Case, cases, files, in_folder

RULE = "rules: [{name: a, kind: republish, stream: S, republish: {src: a, dest: b}}]"


def _becomes(case: Case) -> list[str]:
    settings = load("bridge.yaml")
    options = {name: connect_options(each, name) for name, each in settings.connections.items()}
    assert "hunter2" not in repr((settings, options)), case.name
    names = {"settings": settings, "options": options, **dict(settings)}
    expressions = (line.partition(" = ")[0] for line in case.expected)
    return [f"{each} = {eval(each, names)!r}" for each in expressions]


def _problems(case: Case) -> list[str]:
    with pytest.raises(ConfigError) as caught:  # or the case is accepted
        load("bridge.yaml")
    error = caught.value
    assert (str(error), error.exit_code) == ("\n".join(error.problems), 2), case.name
    assert "hunter2" not in str(error) + repr(error), case.name
    return list(error.problems)


@pytest.mark.parametrize("file", [*files("good"), *files("bad")], ids=lambda file: file.stem)
def test_every_case_becomes_or_says_what_is_expected(file: Path, tmp_path: Path) -> None:
    seen, wrong = _becomes if file in files("good") else _problems, []
    for number, case in enumerate(cases(file)):
        with pytest.MonkeyPatch.context() as patch:
            in_folder(case, tmp_path / str(number), patch)
            try:
                lines = seen(case)
            except pytest.fail.Exception as accepted:
                lines = [str(accepted)]
        if lines != case.expected:
            wrong.append(f"=== {case.name} {case.given}\n" + "\n".join(lines))
    assert not wrong, f"{file.name} expects something else of\n" + "\n".join(wrong)
    names = [block.partition("\n")[0] for block in file.read_text("utf-8").removeprefix("=== ").split("\n=== ")]
    assert sorted(names) == sorted(set(names))


def test_there_are_cases_for_every_kind_of_mistake() -> None:
    found = [case for file in files("bad") for case in cases(file)]
    assert len(found) >= 200
    assert sum("hunter2" in case.text for case in found) >= 3, "and secrets in some, which nothing may show"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file; give the configuration with -c FILE"):
        load(tmp_path / "none.yaml", {})


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder; give the configuration file in it"):
        load(tmp_path, {})


def test_bytes_that_are_not_utf8_have_a_place(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_bytes(b"name: a\nlog: {level: \xff}\n")
    with pytest.raises(ConfigError, match=r"bridge\.yaml:2:14: not UTF-8; save the file as UTF-8"):
        load(file, {})


def test_aliases_that_multiply_are_stopped(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigError, match="more than 100000 values; aliases multiply them"):
        load(file, {})


def test_secrets_are_files_or_links_as_kubernetes_makes_them(tmp_path: Path) -> None:
    (tmp_path / "bridge.yaml").write_text(RULE, encoding="utf-8")
    data = tmp_path / "secrets" / "..data"
    data.mkdir(parents=True)
    (data / "BRIDGE_NAME").write_text("linked\n", encoding="utf-8")
    (data.parent / "BRIDGE_NAME").symlink_to("..data/BRIDGE_NAME")
    (data.parent / "BRIDGE_LOG__LEVEL").mkdir()  # no secret
    assert load(tmp_path / "bridge.yaml", {"BRIDGE_SECRETS_DIR": str(data.parent)}).name == "linked"


def test_settings_are_frozen_values() -> None:
    first, same, other = (loads(text, Path(), "").rules[0] for text in (RULE, RULE, RULE.replace("dest: b", "dest: c")))
    assert (first == same, hash(first) == hash(same), first == other) == (True, True, False)
    with pytest.raises(ValidationError):
        first.stream = "T"  # type: ignore[misc, union-attr]  # that it is refused is what is tested
