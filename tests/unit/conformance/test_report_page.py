"""The HTML page as a file; what it does in a browser is tested in tests/browser."""

import json
import re

from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.catalogue.selection import is_meant
from nats_conformance.reports import judged
from nats_conformance.reports.html import page
from nats_conformance.reports.page_data import page_data
from tests.unit.conformance import sample_runs
from tests.unit.conformance.sample_runs import BYTES, CASES, ORDER, page_contents

MIXED = judged(sample_runs.mixed_run(), CASES)


def test_the_page_holds_its_data() -> None:
    assert page_contents(page(MIXED)) == json.loads(json.dumps(page_data(MIXED)))


def test_no_text_of_a_run_can_end_the_data() -> None:
    run = sample_runs.run((ORDER,), suite="</script><script>alert(1)</script><!--")
    text = page(judged(run, CASES))
    assert "alert(1)</script>" not in text
    assert page_contents(text)["run"]["suite"] == "</script><script>alert(1)</script><!--"


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = page(MIXED)
    head = text.split('<script type="application/json"', 1)[0]
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", head)
    assert "@import" not in head
    assert "url(" not in head
    assert "default-src 'none'" in head


def test_every_byte_is_in_the_data() -> None:
    data = page_data(MIXED)
    row = [case["id"] for case in data["cases"]].index(BYTES.id)
    column = [subject["label"] for subject in data["subjects"]].index("native 2.10.27")
    observation = data["observations"][data["cells"][row][column][2]]
    number, sequence = observation["stored"]["S"][0]
    payload = BYTES.expectation.stored["S"][0].payload if BYTES.expectation.stored else None
    assert data["parts"][number]["payload"].encode("latin-1") == payload
    assert sequence == 1


def test_the_same_is_stored_once() -> None:
    few = page_data(judged(sample_runs.run((ORDER,)), CASES))
    # 2.9 shows something else; everybody else shows the same.
    assert len(few["observations"]) == 2
    assert len(few["expectations"]) == 2


def test_five_hundred_cases_on_twelve_subjects_stay_small() -> None:
    history, cases = sample_runs.large_run(500)
    text = page(judged(history, cases))
    assert len(history.subjects) == 12
    assert len(text.encode()) < 5_000_000


def test_every_case_belongs_to_one_feature() -> None:
    features = [each for group in page_data(MIXED)["features"].values() for each in group]
    assert len({each["name"] for each in features}) == len(features)
    for case in read_catalogue():
        of = [each["name"] for each in features if any(is_meant(pattern, case.id) for pattern in each["cases"])]
        assert len(of) == 1, f"{case.id} belongs to {of or 'no feature'}: see features.yaml"
