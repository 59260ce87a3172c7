"""What the bridge of one version plays in front of a server of another one."""

import pytest

from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.implementations.bridge_plan import plan
from nats_conformance.subject import CannotPlay
from nats_transforms.dialect import dialect


@pytest.mark.parametrize(("behaves_like", "server"), [("2.12.15", "2.10.27"), ("2.9.10", "2.12.15")])
def test_the_server_decides_about_members_that_neither_version_knows(behaves_like: str, server: str) -> None:
    # Since 2.12 servers refuse what they do not know, and this one came with 2.14.
    (case,) = (each for each in read_catalogue() if each.id == "adr36/mirror-validation/batch/1")
    with pytest.raises(CannotPlay, match=f"'allow_batched' of a stream is unknown to {server}"):
        plan(case, dialect(behaves_like), dialect(server))
