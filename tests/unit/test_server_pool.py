"""Which server a connection tries next."""

from collections.abc import Callable

from nats_bridge.client.server_pool import ServerPool

GONE = [f"gone-{number}:4222" for number in range(8)]
SEEDS = range(50)


def connected(pool: ServerPool, server: str) -> None:
    """Connect to one server; every other one fails."""
    while pool.next() != server:
        pool.failed()
    pool.accepted()


def tried(pool: ServerPool, count: int) -> list[str]:
    """The next servers, none of which accepts."""
    servers = []
    for _ in range(count):
        servers.append(pool.next())
        pool.failed()
    return servers


def each(make: Callable[[int], ServerPool]) -> list[ServerPool]:
    return [make(seed) for seed in SEEDS]


def test_a_server_that_is_advertised_no_more_is_forgotten() -> None:
    pool = ServerPool(["service:4222"], 0)
    connected(pool, "service:4222")
    pool.advertise([*GONE, "a:4222"])
    assert set(pool.addresses) == {"service:4222", "a:4222", *GONE}
    pool.advertise(["a:4222"])
    assert set(pool.addresses) == {"service:4222", "a:4222"}
    pool.advertise([])
    assert pool.addresses == ("service:4222",)


def test_the_connected_server_stays_while_it_leaves_itself_out() -> None:
    pool = ServerPool(["service:4222"], 0)
    pool.advertise(["a:4222"])
    connected(pool, "a:4222")
    pool.advertise([])
    assert set(pool.addresses) == {"service:4222", "a:4222"}
    connected(pool, "service:4222")
    pool.advertise([])
    assert pool.addresses == ("service:4222",)


def test_configured_servers_that_are_gone_do_not_delay_a_present_one() -> None:
    for pool in each(lambda seed: ServerPool([*GONE, "there:4222"], seed)):
        connected(pool, "there:4222")
        for _ in range(3):
            pool.lost()
            servers = tried(pool, 20)
            assert "there:4222" in servers[:2]
            assert servers.count("there:4222") == 10
            connected(pool, "there:4222")


def test_advertised_servers_that_are_gone_do_not_delay_the_configured_one() -> None:
    for pool in each(lambda seed: ServerPool(["service:4222"], seed)):
        connected(pool, "service:4222")
        pool.advertise(GONE)
        pool.lost()
        assert tried(pool, 20).count("service:4222") == 10


def test_another_server_of_the_cluster_is_tried_first() -> None:
    for pool in each(lambda seed: ServerPool(["service:4222"], seed)):
        connected(pool, "service:4222")
        pool.advertise(["a:4222", "b:4222", "c:4222"])
        pool.lost()
        assert pool.next() in {"a:4222", "b:4222", "c:4222"}
    for pool in each(lambda seed: ServerPool(["a:4222", "b:4222", "c:4222"], seed)):
        pool.advertise(["a:4222", "b:4222", "c:4222"])
        for server in ("b:4222", "c:4222", "a:4222"):
            connected(pool, server)
        pool.advertise(["a:4222"])
        pool.advertise(["a:4222", "b:4222", "c:4222"])  # both are back
        pool.lost()
        assert set(tried(pool, 2)) == {"b:4222", "c:4222"}, "the one that was lost comes last"
        assert pool.next() == "a:4222"


def test_no_server_is_left_out_in_a_long_outage() -> None:
    for pool in each(lambda seed: ServerPool([*GONE, "a:4222", "b:4222"], seed)):
        connected(pool, "a:4222")
        connected(pool, "b:4222")
        pool.lost()
        tried(pool, 200)
        assert set(tried(pool, 32)) == set(pool.addresses)


def test_an_address_that_swallows_packets_gets_more_time_each_failure() -> None:
    pool = ServerPool(["a:4222"], 0)
    pool.next()
    assert pool.patience() == 1
    pool.failed()
    assert pool.patience() == 2
    pool.accepted()
    assert pool.patience() == 1


def test_a_server_that_was_left_is_not_the_next_one() -> None:
    for pool in each(lambda seed: ServerPool(["a:4222", "b:4222"], seed)):
        connected(pool, "a:4222")
        pool.leave()
        pool.lost()
        assert pool.next() == "b:4222"
    alone = ServerPool(["a:4222"], 0)
    connected(alone, "a:4222")
    alone.leave()
    alone.lost()
    assert alone.next() == "a:4222"
