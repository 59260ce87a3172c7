"""Whether an address is one of this machine."""

import ipaddress


def is_loopback(peer: str | None) -> bool:
    """Return whether the peer is on this machine (in a pod: in the same pod)."""
    try:
        address = ipaddress.ip_address(peer or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
