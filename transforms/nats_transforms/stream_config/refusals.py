"""The server's refusals: one table from the name of a case to the HTTP code, error code and text."""

from collections.abc import Mapping
from types import MappingProxyType

from nats_transforms.errors import StreamConfigError

REFUSALS: Mapping[str, tuple[int, int, str]] = MappingProxyType(
    {
        "invalid_json": (400, 10025, "invalid JSON{reason}"),
        "invalid": (500, 10052, "{reason}"),
        "not_created": (500, 10049, "{reason}"),
        "not_updated": (500, 10069, "{reason}"),
        "pedantic": (400, 10157, "pedantic mode: {reason}"),
        "name_mismatch": (400, 10056, "stream name in subject does not match request"),
        "path_separators": (400, 10128, "Stream name can not contain path separators"),
        "negative_replicas": (400, 10133, "replicas count cannot be negative"),
        "overlaps_stream": (400, 10065, "subjects overlap with an existing stream"),
        "external_api": (400, 10021, "stream external api prefix {prefix} must not overlap with $JS.API"),
        "external_delivery_overlap": (
            400,
            10022,
            "stream external delivery prefix {prefix} overlaps with stream subject {subject}",
        ),
        "external_delivery": (
            400,
            10024,
            "stream external delivery prefix {prefix} must not contain wildcards",
        ),
        "mirror_message_size": (400, 10030, "stream mirror must have max message size >= source"),
        "mirror_with_sources": (400, 10031, "stream mirrors can not also contain other sources"),
        "mirror_with_subjects": (400, 10034, "stream mirrors can not contain subjects"),
        "mirror_with_first_seq": (400, 10143, "stream mirrors can not have first sequence configured"),
        "mirror_with_counters": (400, 10173, "stream mirrors can not also calculate counters"),
        "mirror_with_schedules": (400, 10186, "stream mirrors can not also schedule messages"),
        "mirror_with_atomic": (400, 10198, "stream mirrors can not also use atomic publishing"),
        "mirror_with_batches": (400, 10209, "stream mirrors can not also use batch publishing"),
        "mirror_consumer": (400, 10213, "stream mirror consumer config is invalid"),
        "mirror_name": (400, 10142, "mirrored stream name is invalid"),
        "mirror_filter_and_transforms": (
            400,
            10150,
            "mirror with multiple subject transforms cannot also have a single subject filter",
        ),
        "mirror_filter": (400, 10151, "mirror subject filter is invalid"),
        "mirror_transform_source": (400, 10151, "mirror transform source: {reason}"),
        "mirror_overlap": (400, 10152, "mirror subject filters can not overlap"),
        "mirror_transform": (400, 10154, "mirror transform: {reason}"),
        "mirror_update": (400, 10055, "stream mirror configuration can not be updated"),
        "source_message_size": (400, 10046, "stream source must have max message size >= target"),
        "source_duplicate": (400, 10140, "duplicate source configuration detected"),
        "source_name": (400, 10141, "sourced stream name is invalid"),
        "source_filter_and_transforms": (
            400,
            10144,
            "source with multiple subject transforms cannot also have a single subject filter",
        ),
        "source_filter": (400, 10145, "source subject filter is invalid"),
        "source_transform_source": (400, 10145, "source transform source: {reason}"),
        "source_destination": (400, 10146, "source transform destination is invalid"),
        "source_transform": (400, 10146, "source transform: {reason}"),
        "source_overlap": (400, 10147, "source filters can not overlap"),
        "source_with_schedules": (400, 10187, "stream source can not also schedule messages"),
        "source_consumer": (400, 10215, "stream source consumer config is invalid"),
        "source_consumer_duplicate": (400, 10216, "duplicate stream source consumer detected"),
        "ingress_transform_source": (400, 10155, "stream transform source: {reason}"),
        "ingress_transform": (400, 10156, "stream transform: {reason}"),
    }
)


def refusal(case: str, **values: str) -> StreamConfigError:
    """Return the error of a case, with its text filled in."""
    http_code, err_code, text = REFUSALS[case]
    return StreamConfigError(http_code, err_code, text.format(**values))


def invalid(reason: str) -> StreamConfigError:
    """Return error 10052: the configuration as a whole is invalid, for this reason."""
    return refusal("invalid", reason=reason)


def not_created(reason: str) -> StreamConfigError:
    """10049: the stream could not be built."""
    return refusal("not_created", reason=reason)


def not_updated(reason: str) -> StreamConfigError:
    """10069: the update could not be carried out."""
    return refusal("not_updated", reason=reason)


def pedantic(reason: str, *, repeats: bool = False) -> StreamConfigError:
    """Return error 10157: the request was pedantic, and the server would have changed something.

    `repeats` means that the server's first words appear twice.
    """
    return refusal("pedantic", reason=f"pedantic mode: {reason}" if repeats else reason)
